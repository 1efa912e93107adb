"""EM's M-step in C beside its formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from native_layers import layer
from test_fused import SETTINGS, example_moments
from torch import Tensor

from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError
from quatcaps.routing import EM, Moments, Parents, Votes, Window, em
from quatcaps.routing.native import em as em_native
from quatcaps.routing.native import libraries

pytestmark = pytest.mark.skipif(
    libraries.problem(torch.float32, 1, 3) is not None, reason=f"native {libraries.problem(torch.float32, 1, 3)}"
)


def outcomes(m_step: object, moments: list[Tensor], settings: EM, dtype: torch.dtype) -> list[Tensor]:
    """What the parents become, and the gradients of all that they come from."""
    leaves = [values.to(dtype, copy=True).requires_grad_() for values in moments]
    estimate = m_step(Moments(*leaves[:4]), *leaves[4:], settings, 0.0975, 1.7)  # type: ignore[operator]
    outputs = [*estimate.parents, estimate.activation]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(output.shape, generator=generator).to(dtype) for output in outputs]
    grads = torch.autograd.grad(outputs, leaves, weights)
    return [*(output.detach() for output in outputs), *grads]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize(("parents", "dims"), [(5, 3), (16, 4), (1, 16)])
def test_m_step(parents: int, dims: int, settings: EM) -> None:
    moments = example_moments(parents, dims)
    wanted = outcomes(em.m_step, moments, settings, torch.float64)
    for one, other in zip(outcomes(em_native.m_step, moments, settings, torch.float64), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    for index, found in enumerate(outcomes(em_native.m_step, moments, settings, torch.float32)):
        error = (found.double() - wanted[index]).norm() / wanted[index].norm().clamp(min=1e-30)
        assert error < (1e-6 if index < 4 else 1e-4), index


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (8, 8), (7, 9)])
def test_positions_may_end_anywhere_in_a_vector(size: tuple[int, int]) -> None:
    moments = [
        values.repeat(1, 1, *(1,) * (values.ndim - 4), 3, 5)[..., : size[0], : size[1]] if values.ndim > 1 else values
        for values in example_moments(3, 3)
    ]
    wanted = outcomes(em.m_step, moments, EM(), torch.float64)
    for one, other in zip(outcomes(em_native.m_step, moments, EM(), torch.float64), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("output", range(4))
def test_m_step_of_one_output_alone(output: int) -> None:
    """Gradients that nobody sends are zero."""
    results = []
    for m_step in (em_native.m_step, em.m_step):
        leaves = [values.double().requires_grad_() for values in example_moments(3, 3)]
        estimate = m_step(Moments(*leaves[:4]), *leaves[4:], EM(), 0.0975)
        chosen = [*estimate.parents, estimate.activation][output]
        results.append(torch.autograd.grad(chosen.square().sum(), leaves, allow_unused=True, materialize_grads=True))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("activation", em.ACTIVATIONS)
def test_m_step_of_equal_parents_with_no_logit(activation: str) -> None:
    """‖L‖ = 0: nothing is divided by zero."""
    leaves = [torch.zeros(1, 2, 3, 1, 1), torch.zeros(1, 2, 1, 1), *(torch.zeros(1, 2, 3, 1, 1) for _ in range(2))]
    tensors = [values.requires_grad_() for values in (*leaves, torch.zeros(2), torch.zeros(2))]
    estimate = em_native.m_step(Moments(*tensors[:4]), *tensors[4:], EM(activation=activation), 0.01)
    grads = torch.autograd.grad(sum(value.sum() for value in (*estimate.parents, estimate.activation)), tensors)
    assert torch.equal(estimate.activation, torch.full((1, 2, 1, 1), 0.5))
    assert all(torch.isfinite(grad).all() for grad in grads)


def test_the_number_of_threads_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(em_native, "WORTH_A_THREAD", 1)
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(outcomes(em_native.m_step, example_moments(16, 3), EM(), torch.float32))
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(others, found[0], strict=True))


WINDOWS = {
    "quaternions": (1, 3, Window(2, 2), (9, 7)),
    "few positions": (1, 3, Window(2, 2), (4, 3)),
    "rotors": (1, 4, Window(3, 3, stride=2), (11, 11)),
    "matrices": (4, 4, Window(2, 2), (6, 6)),
    "shared": (4, 4, Window(5, 5, shared=True, coordinates=True), (5, 5)),
}


def routed(shape: str, settings: EM, dtype: torch.dtype) -> Capsules:
    """Numbers alone, of a layer's poses and activations."""
    rows, columns, window, size = WINDOWS[shape]
    children, _ = layer(rows, columns, window, children=5, size=size, dtype=dtype)
    generator = torch.Generator().manual_seed(2)
    betas = torch.randn(2, 3, generator=generator)
    with torch.no_grad():
        votes = Votes(*children, window, competition=settings.competition, backend="native")
        return em.em_routing(votes, betas[0], betas[1], settings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("shape", WINDOWS)
def test_all_iterations_at_once_have_the_bits_of_one_after_the_other(
    shape: str, settings: EM, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.competition != "position" and shape != "shared":
        settings = replace(settings, competition="position")
    calls: list[str] = []
    call = em_native.call
    monkeypatch.setattr(em_native, "call", lambda name, *rest, **more: (calls.append(name), call(name, *rest, **more)))
    together = [routed(shape, replace(settings, iterations=count), dtype) for count in (1, 2, 3)]
    assert calls == ["quatcaps_em_routing"] * 3
    monkeypatch.setattr(em_native, "all_iterations", lambda *arguments: None)
    for count, found in enumerate(together, 1):
        wanted = routed(shape, replace(settings, iterations=count), dtype)
        assert torch.equal(found.poses, wanted.poses)
        assert torch.equal(found.activations, wanted.activations)


def test_iterations_come_one_by_one_where_more_than_numbers_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(em_native, "call", lambda *arguments, **more: pytest.fail("all at once"))
    rows, columns, window, size = WINDOWS["quaternions"]
    children, _ = layer(rows, columns, window, size=size, dtype=torch.float32)
    betas = torch.zeros(2, 3)
    found = em.em_routing(Votes(*children, window, backend="native"), betas[0], betas[1], EM())
    assert found.poses.requires_grad
    with torch.no_grad():
        competing = Votes(*children, window, competition="all", backend="native")
        em.em_routing(competing, betas[0], betas[1], EM(competition="all"))

        class Watched(Votes):
            asked = 0

            def under(self, parents: Parents) -> Moments:
                self.asked += 1
                return super().under(parents)

        watched = Watched(*children, window, backend="native")
        em.em_routing(watched, betas[0], betas[1], EM())
        assert watched.asked == 1


@pytest.mark.parametrize("gradients", [True, False])
def test_betas_of_other_parents_are_refused(gradients: bool) -> None:
    rows, columns, window, size = WINDOWS["quaternions"]
    children, _ = layer(rows, columns, window, size=size, dtype=torch.float32)
    with torch.set_grad_enabled(gradients), pytest.raises(QuatcapsError, match=r"\(2,\): 3 parent types need \(3,\)"):
        em.em_routing(Votes(*children, window, backend="native"), torch.zeros(2), torch.zeros(2), EM())

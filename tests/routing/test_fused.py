"""The kernels beside their formulas and compiled for a GPU that need not be here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from quatcaps import quaternion
from quatcaps.poses import fused, pose_type
from quatcaps.routing import EM, VB, Moments, Window, em, vb
from quatcaps.routing.moments import limited
from quatcaps.routing.shapes import pack
from quatcaps.routing.triton import children, operators, plan
from quatcaps.routing.triton import em as em_fused
from quatcaps.routing.triton import vb as vb_fused
from quatcaps.routing.triton.layout import parents_first, positions_first

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SCRIPTS = Path(__file__).parent


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).norm() / wanted.norm().clamp(min=1e-30))


def example_moments(parents: int, dims: int) -> list[Tensor]:
    """Centre, mass, first, second, β_u, β_a; one parent gets nothing."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, parents, dims, 3, 2)
    mass = 5 * torch.rand(2, parents, 3, 2, generator=generator)
    mass[0, 0] = 0
    first = 0.3 * torch.randn(shape, generator=generator) * mass[:, :, None]
    second = (0.5 + torch.rand(shape, generator=generator)) * mass[:, :, None]
    betas = (0.3 * torch.randn(parents, generator=generator) for _ in range(2))
    return [torch.randn(shape, generator=generator), mass, first, second, *betas]


SETTINGS = {
    "normalized": EM(),
    "more contrast": EM(contrast=3.0),
    "standardized": EM(activation="standardized", contrast=2.5),
    "logistic": EM(activation="logistic"),
    "isotropic": EM(variance="isotropic"),
    "EM-IBM": replace(em.EM_IBM, variance_floor=1e-4),
    "damped and isotropic": EM(one_child="damped", variance="isotropic"),
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize(("parents", "dims"), [(5, 3), (16, 4), (1, 16), (33, 16)])
def test_m_step(parents: int, dims: int, settings: EM) -> None:
    results = []
    for m_step, dtype in ((em_fused.m_step, torch.float32), (em.m_step, torch.float64)):
        leaves = [values.to(DEVICE, dtype).clone().requires_grad_() for values in example_moments(parents, dims)]
        estimate = m_step(Moments(*leaves[:4]), *leaves[4:], settings, 0.0975, 1.7)
        outputs = [*estimate.parents, estimate.activation]
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(output.shape, generator=generator).to(DEVICE, dtype) for output in outputs]
        loss = sum((output * weight).sum() for output, weight in zip(outputs, weights, strict=True))
        results.append([*(output.detach() for output in outputs), *torch.autograd.grad(loss, leaves)])
    for index, (found, wanted) in enumerate(zip(*results, strict=True)):
        assert relative(found, wanted) < (1e-6 if index < 4 else 1e-4), index


PRIORS = {
    "the authors'": VB(),
    "weak": VB(prior_concentration=1e-4, prior_mean_weight=1e-4, prior_scale=1e-4, prior_freedom=1e-4),
    "strong": VB(prior_concentration=50.0, prior_mean=0.7, prior_mean_weight=9.0, prior_scale=20.0, prior_freedom=30.0),
}


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS.keys())
@pytest.mark.parametrize(("parents", "dims"), [(5, 3), (1, 16), (33, 16)])
@pytest.mark.parametrize("outputs", [(0, 1, 2), (0, 3, 4), (0, 1, 2, 3, 4)])
def test_vb_step(parents: int, dims: int, prior: VB, outputs: tuple[int, ...]) -> None:
    """Of an iteration before the last, of the last, and all at once."""
    results = []
    for estimate_of, dtype in ((vb_fused.estimate_of, torch.float32), (vb.estimate_of, torch.float64)):
        leaves = [values.to(DEVICE, dtype).clone().requires_grad_() for values in example_moments(parents, dims)[:4]]
        found = estimate_of(Moments(*leaves), prior)
        chosen = [[*found.parents, found.log_share, found.log_determinant][number] for number in outputs]
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(output.shape, generator=generator).to(DEVICE, dtype) for output in chosen]
        loss = sum((output * weight).sum() for output, weight in zip(chosen, weights, strict=True))
        results.append([*(output.detach() for output in chosen), *torch.autograd.grad(loss, leaves)])
    for index, (found, wanted) in enumerate(zip(*results, strict=True)):
        assert torch.isfinite(found).all()
        assert relative(found, wanted) < (3e-6 if index < len(outputs) else 1e-4), index


@pytest.mark.parametrize("mass", [1e-30, 1e-4, 3.0, 1e6, 1e12])
def test_vb_step_of_any_mass(mass: float) -> None:
    """The series of the digamma function, from one parent with nothing to one with all."""
    moments = Moments(*(torch.zeros(1, 2, 3, 1, 1) if number != 1 else torch.zeros(1, 2, 1, 1) for number in range(4)))
    moments.mass[0, 0] = mass
    found = vb_fused.estimate_of(Moments(*(values.to(DEVICE) for values in moments)), VB())
    wanted = vb.estimate_of(Moments(*(values.double() for values in moments)), VB())
    for one, other in zip(found[1:], wanted[1:], strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=2e-6, atol=2e-6)


def test_m_step_of_one_output_alone() -> None:
    """Gradients that nobody sends are not made up."""
    for wanted_output in range(4):
        results = []
        for m_step, dtype in ((em_fused.m_step, torch.float32), (em.m_step, torch.float64)):
            leaves = [values.to(DEVICE, dtype).clone().requires_grad_() for values in example_moments(3, 3)]
            estimate = m_step(Moments(*leaves[:4]), *leaves[4:], EM(), 0.0975)
            output = [*estimate.parents, estimate.activation][wanted_output]
            grads = torch.autograd.grad(output.square().sum(), leaves, allow_unused=True, materialize_grads=True)
            results.append(grads)
        for found, wanted in zip(*results, strict=True):
            assert (found.double() - wanted).norm() <= 1e-4 * wanted.norm() + 1e-8


def test_m_step_of_equal_parents_with_no_logit() -> None:
    """‖L‖ = 0: nothing is divided by zero."""
    leaves = [torch.zeros(1, 2, 3, 1, 1), torch.zeros(1, 2, 1, 1), *(torch.zeros(1, 2, 3, 1, 1) for _ in range(2))]
    tensors = [values.to(DEVICE).requires_grad_() for values in (*leaves, torch.zeros(2), torch.zeros(2))]
    estimate = em_fused.m_step(Moments(*tensors[:4]), *tensors[4:], EM(), 0.01)
    grads = torch.autograd.grad(sum(value.sum() for value in (*estimate.parents, estimate.activation)), tensors)
    assert torch.equal(estimate.activation, torch.full((1, 2, 1, 1), 0.5, device=DEVICE))
    assert all(torch.isfinite(grad).all() for grad in grads)


@pytest.mark.parametrize("shape", [(2, 5, 3, 3, 2), (3, 40, 4, 5, 7), (1, 2, 4, 1, 3), (0, 2, 3, 2, 2)])
def test_what_was_routed_as_children(shape: tuple[int, ...]) -> None:
    """Within limits, and laid out as the next layer reads it; the gradient lies as the layer below reads that."""
    generator = torch.Generator().manual_seed(1)
    poses, activations = 2 * torch.randn(shape, generator=generator), torch.rand(shape[:2] + shape[3:])
    if len(poses):
        poses[0, 0, 0, 0, :5] = torch.tensor([1.5, -1.5, 1e30, -1e30, torch.nan])[: shape[-1]]
    weights = torch.randn(shape, generator=generator), torch.randn(activations.shape, generator=generator)
    results = []
    for within in (children.within, limited):
        routed = [parents_first(positions_first(values.to(DEVICE))).requires_grad_() for values in (poses, activations)]
        laid = within(*routed, 1.5)
        torch.autograd.backward(laid, [weight.to(DEVICE) for weight in weights])
        results.append((*laid, *(values.grad for values in routed)))
    assert all(values.is_contiguous() for values in results[0][:2])
    assert all(positions_first(grad).data_ptr() == grad.data_ptr() for grad in results[0][2:])
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_children_that_lie_otherwise_are_not_laid_again() -> None:
    poses, activations = torch.randn(2, 3, 3, 4, 4, device=DEVICE), torch.rand(2, 3, 4, 4, device=DEVICE)
    assert children.within(poses, activations, 2.0)[1] is activations
    matrices = parents_first(torch.randn(2, 4, 4, 16, 3, device=DEVICE))
    assert children.within(matrices, activations, 2.0)[1] is activations, "wide ones"


def test_one_gradient_alone_of_children() -> None:
    sizes = (2, 4, 4, 3, 5), (2, 4, 4, 5)
    routed = [parents_first(torch.rand(size, device=DEVICE)).requires_grad_() for size in sizes]
    _, activations = children.within(*routed, 1.0)
    activations.sum().backward()
    assert routed[1].grad is not None
    assert bool((routed[1].grad == 1).all())
    assert routed[0].grad is None or not routed[0].grad.any()


@pytest.mark.parametrize("right", [False, True])
def test_rotor_matrix(right: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    angle, axis = 4 * torch.randn(3, 4, 5, generator=generator), torch.randn(3, 4, 5, 3, generator=generator)
    axis[0, 0, 0] = 0
    axis[0, 0, 1] *= 1e-30
    axis[0, 0, 2] *= 1e30
    weights = torch.randn(3, 4, 5, *((4,) if right else (3, 3)), generator=generator)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [values.to(DEVICE, dtype).clone().requires_grad_() for values in (angle, axis)]
        if dtype == torch.float32:
            matrix = fused.rotor_matrix(*leaves, right)
        else:
            rotors = quaternion.rotor(*leaves)
            matrix = rotors if right else quaternion.rotor_to_matrix(rotors)
        grads = torch.autograd.grad((matrix * weights.to(DEVICE, dtype)).sum(), leaves)
        results.append([matrix.detach(), *grads])
    for found, wanted in zip(results[0][:2], results[1][:2], strict=True):
        assert (found.double() - wanted).abs().max() < 1e-5
    found, wanted = results[0][2].double(), results[1][2]
    assert ((found - wanted).norm(dim=-1) <= 1e-4 * wanted.norm(dim=-1) + 1e-6).all(), "each axis by its own size"


@pytest.mark.parametrize("pose", ["quaternion", "rotor", "fixed-axis"])
@pytest.mark.parametrize("by", ["triton", "native"])
def test_maps_of_rotors_by_kernels_and_in_c(pose: str, by: str) -> None:
    torch.manual_seed(0)
    kind, device = pose_type(pose), DEVICE if by == "triton" else torch.device("cpu")
    assert kind.fused
    maps = kind.maps(3, 4, 5).to(device)
    fast, wanted = maps(by=by), maps()
    torch.testing.assert_close(fast, wanted, rtol=0, atol=1e-6)
    weights, leaves = torch.randn_like(wanted), list(maps.parameters())
    grads, expected = (torch.autograd.grad((each * weights).sum(), leaves) for each in (fast, wanted))
    for grad, other in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, other, rtol=1e-4, atol=1e-5)
    names = {type(node).__name__ for node in nodes(fast.grad_fn)}
    assert not any("Cos" in name or "Stack" in name for name in names), "no formula beside the kernel"


def nodes(function: Any) -> Iterator[Any]:
    if function is not None:
        yield function
        for before, _ in function.next_functions:
            yield from nodes(before)


def layer() -> tuple[list[Tensor], list[int]]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, 2, 3, 3, 3), (1, 2, 3, 3), (4, 2, 3, 3, 3))
    children = [torch.rand(shape, generator=generator).to(DEVICE).requires_grad_() for shape in shapes]
    return children, pack(Window(2, 2), "position")


def example_parents() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((1, 3, 3, 2, 2), (1, 3, 3, 2, 2), (1, 3, 2, 2))
    return [torch.rand(shape, generator=generator).to(DEVICE).requires_grad_() for shape in shapes]


def test_layout_there_and_back() -> None:
    for shape in ((2, 3, 4, 5, 6), (2, 3, 5, 6)):
        values = torch.rand(shape)
        laid = positions_first(values)
        assert laid.is_contiguous()
        assert torch.equal(parents_first(laid), values)
        assert positions_first(parents_first(laid)).data_ptr() == laid.data_ptr(), "no copy of what lies so already"


@pytest.mark.parametrize("parents", [1, 5, 16, 32, 100, 1000])
@pytest.mark.parametrize("dims", [3, 16])
def test_plans_cover_everything(parents: int, dims: int) -> None:
    columns = 3 if dims == 3 else 4
    shapes = plan.Layer(7, 5, dims, 9, 8, parents, columns, Window(3, 2))
    for rows, steps, cut in (
        (shapes.positions, shapes.inside, plan.by_position(shapes, per_thread=8, least_steps=8, registers=(168, 168))),
        (shapes.inside, shapes.positions, plan.by_child(shapes, per_thread=4, registers=(None, 168))),
    ):
        assert cut.tile * cut.tiles >= rows
        assert (cut.splits - 1) * cut.per_program < steps <= cut.splits * cut.per_program, "no split is empty"
        assert cut.tile_parents >= parents
        assert cut.registers is None or cut.registers * 32 * cut.warps <= 65536, "or it could not be launched"
        for power in (cut.tile, cut.tile_parents, cut.warps):
            assert power & (power - 1) == 0


def test_nothing_is_kept_without_gradients() -> None:
    children, window = layer()
    with torch.no_grad():
        kept = operators.moments(*children, *example_parents(), [], False, window)[3]
    assert kept.numel() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")
def test_kernels_compile_for_sm_90() -> None:
    """Every kernel, in the shapes of the paper's network and of matrix capsules; no GPU is needed."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, SCRIPTS / "compile_kernels.py"], check=True, env=environment)

"""What only the lean backend can get wrong: its blocks, threads, choice of precision, and hand-written derivatives."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch
from torch import Tensor

from quatcaps.routing import Window
from quatcaps.routing.em import gaussian
from quatcaps.routing.soft_moments import Parents, lean, reference, threads, uniform

SHAPES = {
    "quaternions": (1, 3, Window(2, 2)),
    "stride": (1, 3, Window(3, 2, 2)),
    "matrices": (2, 2, Window(2, 2)),
    "shared": (1, 3, Window(4, 3, shared=True)),
    "one place": (1, 3, Window(1, 1)),
}


def layer(
    rows: int, columns: int, window: Window, children: int = 2, parents: int = 3, dtype: torch.dtype = torch.float64
) -> tuple[list[Tensor], Parents]:
    """Children on a 4×3 grid and parents, all of them leaves that require a gradient."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    dims, grid = rows * columns, window.positions(4, 3)
    inputs = [
        normal(2, children, dims, 4, 3),
        normal(2, children, 4, 3).sigmoid(),
        normal(window.offsets, children, parents, columns, columns),
    ]
    given = [normal(2, parents, dims, *grid), normal(2, parents, dims, *grid).exp(), normal(2, parents, *grid)]
    leaves = [tensor.requires_grad_() for tensor in inputs + given]
    return leaves[:3], Parents(*leaves[3:])


def bound(backend: object, children: list[Tensor], window: Window) -> object:
    return backend.bind(*children, window, competition="position")  # type: ignore[attr-defined]


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_finite_differences(shape: str) -> None:
    rows, columns, window = SHAPES[shape]
    children, parents = layer(rows, columns, window)

    def routed(*inputs: Tensor) -> tuple[Tensor, ...]:
        return bound(lean, list(inputs[:3]), window)(Parents(*inputs[3:]))[1:]

    def uniformly(*inputs: Tensor) -> tuple[Tensor, ...]:
        moments = bound(lean, list(inputs), window)(None)
        return moments.mass, *gaussian(moments, 1e-4)

    assert torch.autograd.gradcheck(routed, (*children, *parents), fast_mode=True)
    assert torch.autograd.gradcheck(uniformly, tuple(children), fast_mode=True)


@pytest.mark.parametrize("block", [1, 37, 150])
@pytest.mark.parametrize("shape", SHAPES)
def test_neither_blocks_nor_threads_change_the_moments(block: int, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns, window = SHAPES[shape]
    children, parents = layer(rows, columns, window, children=5)

    def results() -> list[Tensor]:
        votes = bound(lean, children, window)
        moments = [*votes(parents)[1:], *votes(None)[1:]]
        return moments + list(torch.autograd.grad([m.square().sum() for m in moments], [*children, *parents]))

    whole = results()
    monkeypatch.setattr(threads, "BLOCK", block)
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
    for one, other in zip(results(), whole, strict=True):
        torch.testing.assert_close(one, other)


def test_work_in_threads_leaves_the_number_of_threads_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = torch.get_num_threads(), []
    threads.pool.cache_clear()
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
    ranges = threads.shares(100, 100, torch.device("cpu"))
    threads.in_threads(lambda k, share: seen.append((k, torch.get_num_threads())), ranges)
    later = threading.Thread(target=lambda: seen.append((-1, torch.get_num_threads())))
    later.start()
    later.join()
    assert torch.get_num_threads() == before
    assert dict(seen)[-1] == before
    if len(ranges) > 1:
        assert all(dict(seen)[k] == 1 for k in range(len(ranges)))


def test_a_child_far_from_all_parents_is_still_shared() -> None:
    children, parents = layer(1, 3, Window(2, 2), dtype=torch.float32)
    far = Parents(parents.centre, parents.precision * 1e6, parents.logit)
    exact = Parents(*(tensor.double() for tensor in far))
    ours = bound(lean, children, Window(2, 2))(far)
    theirs = bound(reference, [tensor.double() for tensor in children], Window(2, 2))(exact)
    assert far.precision.amin() > 1e3
    torch.testing.assert_close(ours.mass.double(), theirs.mass, rtol=1e-5, atol=1e-5)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(ours.second.sum(), [*children, *parents]))


def test_the_first_iteration_keeps_a_variance_that_float32_would_lose() -> None:
    window = Window(2, 2)
    children, _ = layer(1, 3, window, dtype=torch.float32)
    base = torch.tensor([3.0, -20.0, 1.0]).view(1, 1, 3, 1, 1)
    poses = (base + 3e-3 * children[0].detach()).requires_grad_()
    inputs = [poses, children[1], torch.eye(3).expand(window.offsets, 2, 3, 3, 3).clone().requires_grad_()]
    doubles = [tensor.detach().double().requires_grad_() for tensor in inputs]
    moments = bound(lean, inputs, window)(None)
    mean, variance = gaussian(moments, 1e-4)
    expected_mean, expected = gaussian(bound(reference, doubles, window)(None), 1e-4)
    assert uniform.cancels(moments.centre, moments.mass[:, :, None], moments.second)
    torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(variance.double(), expected, rtol=1e-5, atol=0)
    grads = torch.autograd.grad(variance.log().sum(), inputs)
    for one, other in zip(grads, torch.autograd.grad(expected.log().sum(), doubles), strict=True):
        assert (one.double() - other).norm() <= 1e-4 * other.norm()


@pytest.mark.parametrize("shape", SHAPES)
def test_operators_hold_what_pytorch_asks_of_them(shape: str) -> None:
    rows, columns, window = SHAPES[shape]
    children, parents = layer(rows, columns, window)
    votes = bound(lean, children, window)
    laid = [tensor.detach().requires_grad_() for tensor in votes.children]
    torch.library.opcheck(uniform.uniform_moments, tuple(laid))
    given = [votes.lay_out(values).detach().requires_grad_() for values in parents]
    torch.library.opcheck(lean.lean_moments, (*laid, *given, True))


COMPILED = """
import torch
from quatcaps.routing import Window
from quatcaps.routing.soft_moments import Parents, lean

def routed(*inputs):
    votes = lean.bind(*inputs[:3], Window(2, 2), competition="position")
    moments = votes(None)
    return *moments[1:], *votes(Parents(moments.centre, *inputs[3:]))[1:]

torch.manual_seed(0)
shapes = [(2, 2, 3, 4, 3), (2, 2, 4, 3), (4, 2, 5, 3, 3), (2, 5, 3, 3, 2), (2, 5, 3, 2)]
inputs = [torch.rand(shape, requires_grad=True) for shape in shapes]
both = []
for function in (torch.compile(routed, fullgraph=True, backend="aot_eager"), routed):
    moments = function(*inputs)
    both.append([*moments, *torch.autograd.grad(sum(m.square().sum() for m in moments), inputs)])
for one, other in zip(*both, strict=True):
    torch.testing.assert_close(one, other)
"""


def test_it_compiles_into_one_graph() -> None:
    """In a process of its own: the compiler cannot see through the shape checks of the test runner."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)

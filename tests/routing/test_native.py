"""What only the native backend can get wrong: blocks, vectors, and hand-written derivatives."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from native_layers import bound, layer, results
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from quatcaps.errors import QuatcapsError
from quatcaps.layers import ConvolutionalCapsules
from quatcaps.native import build
from quatcaps.routing import EM, Parents, Votes, Window, native, reference
from quatcaps.routing.native import VotesSideBySide, libraries, side_by_side
from quatcaps.routing.shapes import Shapes

pytestmark = pytest.mark.skipif(
    libraries.problem(torch.float32, 1, 3) is not None, reason=f"native {libraries.problem(torch.float32, 1, 3)}"
)

SHAPES = {
    "quaternions": (1, 3, Window(2, 2)),
    "stride": (1, 3, Window(3, 2, 2)),
    "matrices": (2, 2, Window(2, 2)),
    "shared": (1, 3, Window(4, 3, shared=True)),
    "one place": (1, 3, Window(1, 1)),
    "coordinates": (2, 2, Window(3, 2, coordinates=True)),
}
WIDER = {
    "quaternions": (1, 3, Window(3, 3), 5, 4, (11, 9)),
    "four columns": (1, 4, Window(2, 3), 3, 5, (9, 8)),
    "stride": (1, 3, Window(3, 2, 2), 5, 4, (11, 9)),
    "children that no parent sees": (1, 3, Window(2, 2, 3), 2, 3, (9, 10)),
    "one parent": (1, 3, Window(2, 2), 7, 1, (6, 5)),
    "one child": (2, 2, Window(3, 1), 1, 2, (5, 4)),
    "matrices": (4, 4, Window(3, 3, 2), 3, 4, (8, 7)),
    "shared": (2, 2, Window(3, 2, shared=True), 20, 3, (5, 6)),
    "one position": (2, 2, Window(5, 4), 3, 4, (5, 4)),
    "a row": (1, 3, Window(1, 2), 4, 2, (1, 41)),
}
"""Rows and columns of a pose, window, children, parents, grid of children."""


WAYS = {"position": ("position", 0), "position, side by side": ("position", 1 << 30), "all": ("all", 0)}
"""Competition, and below how many positions of an image the windows of all images lie side by side."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_finite_differences(shape: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns, window = SHAPES[shape]
    competition, few = WAYS[way]
    monkeypatch.setattr(side_by_side, "FEW", few)
    children, parents = layer(rows, columns, window)

    def routed(*inputs: Tensor) -> tuple[Tensor, ...]:
        return bound(native, list(inputs[:3]), window, competition).under(Parents(*inputs[3:]))[1:]

    def uniformly(*inputs: Tensor) -> tuple[Tensor, ...]:
        moments = bound(native, list(inputs), window, competition).uniform()
        return moments.mass, moments.mean, moments.variance + 1e-4

    assert torch.autograd.gradcheck(routed, (*children, *parents), fast_mode=True)
    assert torch.autograd.gradcheck(uniformly, tuple(children), fast_mode=True)


@pytest.mark.parametrize("coordinates", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", WIDER)
def test_it_computes_what_the_reference_does(
    shape: str, way: str, coordinates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, columns, window, children, parents, size = WIDER[shape]
    competition, few = WAYS[way]
    monkeypatch.setattr(side_by_side, "FEW", few)
    if coordinates and rows == 1:
        rows = 2
    window = replace(window, coordinates=coordinates)
    inputs, given = layer(rows, columns, window, children, parents, size)
    assert native.refuses(Shapes.of(inputs[0], inputs[2], window, competition), torch.float64, inputs[0].device) is None
    expected = results(reference, inputs, given, window, competition)
    for ours, theirs in zip(results(native, inputs, given, window, competition), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("size", [(1, 1), (1, 3), (2, 4), (3, 3), (4, 8), (5, 7), (8, 8), (13, 11)])
def test_blocks_of_positions_may_end_anywhere(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "FEW", 0)
    for stride in (1, 2):
        window = Window(2, 1, stride)
        children, parents = layer(1, 3, window, size=((size[0] - 1) * stride + 2, (size[1] - 1) * stride + 1))
        assert parents.logit.shape[2:] == size
        expected = results(reference, children, parents, window)
        for ours, theirs in zip(results(native, children, parents, window), expected, strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("children", "parents"), [(1, 1), (1, 2), (7, 1), (5, 16), (9, 5), (16, 2), (17, 3), (40, 4)])
def test_children_and_parents_may_be_as_many_as_they_like(children: int, parents: int) -> None:
    window = Window(2, 2)
    inputs, given = layer(1, 3, window, children, parents)
    expected = results(reference, inputs, given, window)
    for ours, theirs in zip(results(native, inputs, given, window), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("width", "dtype"), [(16, torch.float32), (32, torch.float64), (64, torch.float32)])
def test_vectors_may_be_as_wide_as_a_machine_has_them(
    width: int, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled without ARM's own instructions, and with vectors of other machines, in as many steps as it takes."""
    window = Window(2, 2)
    children, parents = layer(1, 3, window, 9, 3, size=(7, 9), dtype=dtype)
    competitions = ("position", "all")
    expected = [results(native, children, parents, window, competition) for competition in competitions]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", f"{build.find_compiler()[0]} -U__aarch64__ -DBYTES={width}")
    monkeypatch.setattr(build, "attempt", functools.cache(build.attempt.__wrapped__))
    for competition, those in zip(competitions, expected, strict=True):
        for ours, theirs in zip(results(native, children, parents, window, competition), those, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert len(list((tmp_path / "quatcaps" / "native").iterdir())) == 1


@pytest.mark.parametrize("competition", ["position", "all"])
@pytest.mark.parametrize(("rows", "columns", "window"), [(1, 3, Window(2, 2)), (2, 2, Window(2, 2, coordinates=True))])
def test_a_child_far_from_all_parents_is_still_shared(
    rows: int, columns: int, window: Window, competition: str
) -> None:
    children, parents = layer(rows, columns, window, dtype=torch.float32)
    far = Parents(parents.centre, parents.precision * 1e6, parents.logit + 1e6)
    exact = Parents(*(tensor.double() for tensor in far))
    ours = bound(native, children, window, competition).under(far)
    theirs = bound(reference, [tensor.double() for tensor in children], window, competition).under(exact)
    torch.testing.assert_close(ours.mass.double(), theirs.mass, rtol=1e-5, atol=1e-5)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(ours.second.sum(), [*children, *parents]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_position_far_from_its_children_leaves_the_bits_of_those_beside_it(dtype: torch.dtype) -> None:
    """Exponentials are relative to the largest logit only where they would vanish."""
    window = Window(2, 2)
    children, near = layer(1, 3, window, 5, 3, (5, 11), dtype=dtype)
    factor = torch.ones_like(near.precision)
    factor[..., 1::3] = 1e3 if dtype == torch.float32 else 1e4
    far = near._replace(precision=(near.precision * factor).detach().requires_grad_())
    ours, plain = (bound(native, children, window).under(parents) for parents in (far, near))
    beside = factor[:, :, 0] == 1
    assert torch.equal(ours.mass[beside], plain.mass[beside])
    leaves = [*children, *far]
    grads = torch.autograd.grad(ours.mass.square().sum() + ours.second.square().sum(), leaves)
    exact = [tensor.double() for tensor in children]
    theirs = bound(reference, exact, window).under(Parents(*(tensor.double() for tensor in far)))
    expected = torch.autograd.grad(theirs.mass.square().sum() + theirs.second.square().sum(), leaves)
    for one, other in zip((*ours[1:], *grads), (*theirs[1:], *expected), strict=True):
        error, size = (one - other).abs().amax(), other.abs().amax()
        assert error < (2e-4 if dtype == torch.float32 else 1e-9) * size


def test_an_offset_of_all_logits_costs_no_digits_and_one_of_a_position_counts() -> None:
    """Where all positions compete: a parent that is likelier than those elsewhere takes their children."""
    window = Window(2, 2)
    children, parents = layer(1, 3, window)
    votes = bound(native, children, window, "all")
    plain = votes.under(parents)
    torch.testing.assert_close(votes.under(parents._replace(logit=parents.logit + 2.0**20)), plain)
    here = torch.zeros_like(parents.logit)
    here[0, :, 1, 1] = 1e4
    taken = votes.under(parents._replace(logit=parents.logit + here)).mass
    seen = children[1][0, :, 1:3, 1:3]
    torch.testing.assert_close(taken[0, :, 1, 1].sum(), seen.sum())
    torch.testing.assert_close(taken.sum((1, 2, 3)), plain.mass.sum((1, 2, 3)))
    torch.testing.assert_close(taken[1], plain.mass[1])


def test_the_first_iteration_keeps_a_variance_that_float32_would_lose() -> None:
    window = Window(2, 2)
    children, _ = layer(1, 3, window, dtype=torch.float32)
    keeps_variance(children[0], children[1], window)


@pytest.mark.parametrize("taken", [1.0, 1e-4, 0.0])
def test_it_does_so_by_a_centre_of_some_children(taken: float) -> None:
    """Of every seventh, whatever these weigh at some positions."""
    window = Window(3, 3)
    children, _ = layer(1, 3, window, 13, size=(6, 7), dtype=torch.float32)
    light = torch.ones(13 * 9).index_fill_(0, torch.arange(0, 13 * 9, 7), taken).view(3, 3, 13).permute(2, 0, 1)
    activations = children[1].detach().clone()
    activations[0, :, 1:4, 2:5] *= light
    keeps_variance(children[0], activations.requires_grad_(), window)


def keeps_variance(offsets: Tensor, activations: Tensor, window: Window) -> None:
    """Of poses that differ by little and lie far from the origin."""
    base = torch.tensor([3.0, -20.0, 1.0]).view(1, 1, 3, 1, 1)
    poses = (base + 3e-3 * offsets.detach()).requires_grad_()
    maps = torch.eye(3).expand(window.offsets, poses.shape[1], 3, 3, 3).clone().requires_grad_()
    inputs = [poses, activations, maps]
    doubles = [tensor.detach().double().requires_grad_() for tensor in inputs]
    ours, theirs = bound(native, inputs, window).uniform(), bound(reference, doubles, window).uniform()
    mean, variance = ours.mean, ours.variance + 1e-4
    expected_mean, expected = theirs.mean, theirs.variance + 1e-4
    torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(variance.double(), expected, rtol=1e-5, atol=0)
    grads = torch.autograd.grad(variance.log().sum(), inputs)
    for one, other in zip(grads, torch.autograd.grad(expected.log().sum(), doubles), strict=True):
        assert (one.double() - other).norm() <= 1e-4 * other.norm()


@pytest.mark.parametrize(
    ("dims", "columns", "dtype", "device", "reason"),
    [
        (3, 3, torch.float32, "meta", "runs on a CPU"),
        (3, 3, torch.float16, "cpu", "not float16"),
        (20, 4, torch.float32, "cpu", "at most 16 numbers in 4 columns"),
        (5, 5, torch.float32, "cpu", "not 5 in 5"),
    ],
)
def test_it_says_what_it_cannot_do(dims: int, columns: int, dtype: torch.dtype, device: str, reason: str) -> None:
    shapes = Shapes(1, 2, dims, 4, 4, 5, columns, Window(2, 2))
    assert reason in (native.refuses(shapes, dtype, torch.device(device)) or "")


@pytest.mark.parametrize("sums", ["uniform", "under"])
def test_a_gradient_of_gradients_names_the_backend_that_has_it(sums: str) -> None:
    window = Window(2, 2)
    children, parents = layer(1, 3, window)
    votes = Votes(*children, window, backend="native")
    moments = votes.uniform() if sums == "uniform" else votes.under(parents)
    (grad,) = torch.autograd.grad(moments.second.sum(), children[0], create_graph=True)
    with pytest.raises(QuatcapsError, match=r"not computed by quatcaps::native_.* use backend='reference'"):
        grad.square().sum().backward()


@pytest.mark.parametrize("competition", ["position", "all"])
def test_a_layer_under_checkpointing_has_the_same_gradients(competition: str) -> None:
    torch.manual_seed(0)
    capsules = ConvolutionalCapsules(3, 4, 3, 2, routing=EM(competition=competition), backend="native")
    poses, activations = torch.randn(2, 3, 3, 9, 7, requires_grad=True), torch.rand(2, 3, 9, 7, requires_grad=True)
    assert capsules.computed_by(poses) == "native"
    both = []
    for found in (capsules(poses, activations), checkpoint(capsules, poses, activations, use_reentrant=False)):
        loss = found.poses.square().sum() + found.activations.sum()
        both.append([*found, *torch.autograd.grad(loss, [poses, activations, *capsules.parameters()])])
    for one, other in zip(*both, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("shape", WIDER)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_windows_side_by_side_give_the_same_bits(
    shape: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, columns, window, children, parents, size = WIDER[shape]
    inputs, given = layer(rows, columns, window, children, parents, size, dtype)
    found = []
    for few in (0, 1 << 30):
        monkeypatch.setattr(side_by_side, "FEW", few)
        votes = bound(native, inputs, window)
        assert isinstance(votes, VotesSideBySide) == bool(few)
        found.append([*votes.uniform(), *votes.under(given)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_few_positions_lie_side_by_side_where_positions_do_not_know_of_each_other() -> None:
    def pays(images: int, size: tuple[int, int], window: Window, competition: str = "position") -> bool:
        return side_by_side.pays(Shapes(images, 4, 3, *size, 5, 3, window, competition))

    assert pays(2, (5, 5), Window(3, 3))
    assert not pays(1, (5, 5), Window(3, 3)), "one image has no other beside it"
    assert not pays(2, (6, 6), Window(3, 3)), "16 positions fill vectors"
    assert not pays(2, (5, 5), Window(3, 3), "all")
    assert pays(2, (3, 3), Window(3, 3), "all"), "one position competes with no other"
    assert not pays(2, (5, 5), Window(3, 3, coordinates=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_position_far_from_its_votes_leaves_the_bits_of_others(dtype: torch.dtype) -> None:
    """What its lanes need done again is done for all lanes of the vectors."""
    window = Window(2, 2)
    inputs, near = layer(1, 3, window, 3, 7, (5, 5), dtype)
    for row, column in ((0, 0), (1, 2), (3, 3)):
        distant = near.centre.clone()
        distant[0, :, :, row, column] += 100.0
        with torch.no_grad():
            both = [
                bound(native, inputs, window).under(near._replace(centre=centre)) for centre in (near.centre, distant)
            ]
        others = torch.ones(near.logit.shape[2:], dtype=torch.bool)
        others[row, column] = False
        for one, other in zip(*both, strict=True):
            assert torch.equal(one[0][..., others], other[0][..., others])
            assert torch.equal(one[1], other[1])

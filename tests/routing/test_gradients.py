"""Gradients are those of the reference, whatever a routing does: its order, number and gradient mode of iterations,
recomputation, several backward passes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lost import Lost
from quatcaps.errors import QuatcapsError
from quatcaps.layers import ClassCapsules, ConvolutionalCapsules
from quatcaps.models import build
from quatcaps.routing import BACKENDS, EM, Moments, Parents, Votes, Window
from quatcaps.routing.votes import check_children

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
ALL = [name for name in BACKENDS if not (ON_GPU and name == "native")]
FAST = [name for name in ALL if name != "reference"]
WINDOW = Window(2, 1)


def leaves(dtype: torch.dtype, dims: int = 3, columns: int = 3) -> list[Tensor]:
    """Poses, activations and maps of 2 images with 2 child types on a 3×2 grid, for 3 parents on 2×2.

    Rounding them to float32 must not be what the tests see: of the seeds from 0 to 11 this one's gradients move least,
    by at most 430 times what the numbers above move, over all routings and shapes; some of the others by thousands.
    """
    generator = torch.Generator().manual_seed(4)
    shapes = ((2, 2, dims, 3, 2), (2, 2, 3, 2), (2, 2, 3, columns, columns))
    draw = (torch.randn, torch.rand, torch.randn)
    made = (one(shape, generator=generator) for one, shape in zip(draw, shapes, strict=True))
    return [values.to(DEVICE, dtype).requires_grad_() for values in made]


def parents_of(moments: Moments) -> Parents:
    """An M-step that could be anyone's."""
    variance = moments.variance + 0.1
    return Parents(moments.mean, 1 / variance, moments.mass.log() - 0.5 * variance.log().sum(2))


def first_without_gradient(votes: Votes) -> list[Moments]:
    with torch.no_grad():
        parents = parents_of(votes.uniform())
    return [votes.under(parents)]


def first_two_without_gradient(votes: Votes) -> list[Moments]:
    with torch.no_grad():
        parents = parents_of(votes.under(parents_of(votes.uniform())))
    return [votes.under(parents)]


def second_without_gradient(votes: Votes) -> list[Moments]:
    first = votes.uniform()
    with torch.no_grad():
        parents = parents_of(votes.under(parents_of(first)))
    return [first, votes.under(parents)]


def three(votes: Votes) -> list[Moments]:
    return [votes.under(parents_of(votes.under(parents_of(votes.uniform()))))]


def many(votes: Votes) -> list[Moments]:
    found = [votes.uniform()]
    for _ in range(6 if ON_GPU else 4):
        found.append(votes.under(parents_of(found[-1])))
    return found[-1:]


def uniform_twice(votes: Votes) -> list[Moments]:
    return [votes.uniform(), votes.uniform()]


def uniform_last(votes: Votes) -> list[Moments]:
    with torch.no_grad():
        parents = parents_of(votes.uniform())
    return [votes.under(parents), votes.under(parents), votes.uniform()]


def iterations_recomputed(votes: Votes) -> list[Moments]:
    """The votes stand outside of what is recomputed."""

    def one(*parents: Tensor) -> Moments:
        return votes.under(Parents(*parents))

    first = checkpoint(votes.uniform, use_reentrant=False)
    return [checkpoint(one, *parents_of(first), use_reentrant=False)]


ROUTINGS: list[Callable[[Votes], list[Moments]]] = [
    first_without_gradient,
    first_two_without_gradient,
    second_without_gradient,
    three,
    many,
    uniform_twice,
    uniform_last,
    iterations_recomputed,
]


def gradients(
    routing: Callable[[Votes], list[Moments]],
    backend: str,
    dtype: torch.dtype,
    competition: str,
    dims: int,
    columns: int,
) -> tuple[Tensor, ...]:
    given = leaves(dtype, dims, columns)
    votes = Votes(*given, WINDOW, competition=competition, backend=backend)
    assert votes.backend == backend
    total = sum(value.sin().sum() for found in routing(votes) for value in (found.mean, found.variance, found.mass))
    return torch.autograd.grad(total, given)


def assert_close(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one.double() - other).norm() <= 5e-5 * other.norm()
        assert other.any(), "a test of nothing"


@pytest.mark.parametrize(("dims", "columns", "competition"), [(3, 3, "position"), (8, 4, "position"), (3, 3, "all")])
@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("backend", FAST)
def test_any_routing_has_the_gradients_of_the_reference(
    backend: str, routing: Callable[[Votes], list[Moments]], competition: str, dims: int, columns: int
) -> None:
    found = gradients(routing, backend, torch.float32, competition, dims, columns)
    assert_close(found, gradients(routing, "reference", torch.float64, competition, dims, columns))


@pytest.mark.parametrize("backend", ALL)
def test_votes_made_without_gradients_send_none_to_their_children(backend: str) -> None:
    given = leaves(torch.float32)
    with torch.no_grad():
        votes = Votes(*given, WINDOW, backend=backend)
        parents = parents_of(votes.uniform())
    centre = parents.centre.requires_grad_()
    total = votes.under(parents).mean.square().sum()
    found = torch.autograd.grad(total, [centre, *given], allow_unused=True)
    assert found[0].any()
    assert all(grad is None for grad in found[1:])


def of_one_sum(name: str, backend: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
    given = leaves(dtype)
    votes = Votes(*given, WINDOW, backend=backend)
    (moments,) = first_without_gradient(votes)
    return torch.autograd.grad(getattr(moments, name).sin().sum(), given)


@pytest.mark.parametrize("name", ["mass", "first", "second"])
@pytest.mark.parametrize("backend", FAST)
def test_the_gradient_of_one_sum_alone(name: str, backend: str) -> None:
    assert_close(of_one_sum(name, backend, torch.float32), of_one_sum(name, "reference", torch.float64))


@pytest.mark.parametrize("backend", ALL)
def test_gradients_that_are_lost_on_the_way_are_none_or_0(backend: str) -> None:
    given = leaves(torch.float32)
    votes = Votes(*given, WINDOW, backend=backend)
    moments = votes.under(parents_of(votes.uniform()))
    sum(Lost.apply(value).sum() for value in moments[1:]).backward()
    assert not any(values.grad is not None and values.grad.any() for values in given)


@pytest.mark.parametrize("backend", ALL)
def test_backward_twice_through_the_same_votes(backend: str) -> None:
    given = leaves(torch.float32)
    total = three(Votes(*given, WINDOW, backend=backend, iterations=3))[0].mean.square().sum()
    once, again = (torch.autograd.grad(total, given, retain_graph=True) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        assert torch.equal(one, other)
    alone = torch.autograd.grad(total, given[2])
    assert torch.equal(alone[0], once[2]), "of the maps only"


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("layer", [ConvolutionalCapsules(2, 3, 2), ClassCapsules(2, 3)], ids=["convolutional", "class"])
@pytest.mark.parametrize("backend", ALL)
def test_a_recomputed_layer_has_the_same_gradients(
    backend: str, layer: ConvolutionalCapsules | ClassCapsules, reentrant: bool
) -> None:
    layer.to(DEVICE).backend = backend
    results = []
    for route in (layer, lambda *given: checkpoint(layer, *given, use_reentrant=reentrant)):
        layer.zero_grad()
        poses, activations, _ = leaves(torch.float32)
        found = route(poses, activations)
        sum(values.square().sum() for values in found).backward()
        results.append([poses.grad, activations.grad, *(p.grad.clone() for p in layer.parameters())])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("backend", ALL)
def test_what_one_active_child_would_change(backend: str) -> None:
    """All others are exactly 0. The gradient is the limit from above, on every backend: what another child would change
    if it woke a little."""

    def activations_and_gradient(others: float, name: str, dtype: torch.dtype) -> Tensor:
        torch.manual_seed(3)
        layer = ClassCapsules(3, 4, backend=name).to(DEVICE, dtype)
        poses = torch.randn(1, 3, 3, 1, 1, generator=torch.Generator().manual_seed(4)).to(DEVICE, dtype)
        active = torch.full((1, 3, 1, 1), others, device=DEVICE, dtype=dtype)
        active[:, 0] = 0.5
        active.requires_grad_()
        return torch.autograd.grad(layer(poses, active).activations[0, 0], active)[0].flatten()

    limit = activations_and_gradient(1e-13, "reference", torch.float64)
    found = activations_and_gradient(0.0, backend, torch.float32)
    assert limit[1:].abs().min() > 1e-3, "a test of nothing"
    assert (found.double() - limit).norm() <= 1e-3 * limit.norm()
    exact = activations_and_gradient(0.0, "reference", torch.float64)
    assert (exact - limit).norm() <= 1e-4 * limit.norm()


@pytest.mark.parametrize("value", [-0.5, 1.5, 1e12, float("inf")])
def test_activations_outside_0_and_1_are_refused(value: float) -> None:
    poses, activations, maps = (values.detach().cpu() for values in leaves(torch.float32))
    activations[0, 1, 2, 0] = value
    with pytest.raises(QuatcapsError, match=re.escape(f"an activation of {value:g}: activations lie between 0 and 1")):
        Votes(poses, activations, maps, WINDOW, backend="reference")
    activations[0, 1, 2, 0] = 1 + 1e-6  # rounding
    Votes(poses, activations, maps, WINDOW, backend="reference")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, on its way to a jvp
@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize(
    ("field", "shape"),
    [("centre", (2, 4, 3, 2, 2)), ("precision", (2, 3, 3, 2, 1)), ("logit", (2, 3, 3, 3)), ("logit", (1, 3, 2, 2))],
)
def test_parents_that_are_not_of_these_votes_are_refused(field: str, shape: tuple[int, ...], backend: str) -> None:
    """Of other sizes, the C library and the kernels would read and write beside them."""
    votes = Votes(*leaves(torch.float32), WINDOW, backend=backend)
    parents = parents_of(Votes(*leaves(torch.float32), WINDOW, backend="reference").uniform())
    wrong = parents._replace(**{field: torch.ones(shape, device=DEVICE)})
    for look in (votes.under, votes.assignments):
        with pytest.raises(QuatcapsError, match=rf"{field}.*{re.escape(str(shape))}"):
            look(wrong)


@pytest.mark.parametrize("backend", ALL)
def test_parents_in_other_precisions_are_read_as_the_votes_are(backend: str) -> None:
    votes = Votes(*leaves(torch.float32), WINDOW, backend=backend)
    parents = parents_of(votes.uniform())
    wanted = votes.under(parents)
    for found, right in zip(votes.under(Parents(*(values.double() for values in parents))), wanted, strict=True):
        torch.testing.assert_close(found, right)


def test_children_that_do_not_fit_each_other_are_refused() -> None:
    """By the check itself: in tests, annotations would refuse them first."""
    poses, activations, maps = leaves(torch.float32)
    check_children(poses, activations, maps)
    check_children(torch.zeros(2, 2, 4, 3, 2), activations, torch.zeros(2, 2, 3, 4))
    for wrong, words in (
        ((poses[0], activations, maps), "poses have shape"),
        ((poses, activations[:, :, :2], maps), "activations have shape"),
        ((poses, activations, torch.cat([maps, maps], 1)), "2 children"),
        ((poses, activations, maps[..., :2]), "square"),
        ((poses, activations, maps[..., :2, :2]), "divides"),
    ):
        with pytest.raises(QuatcapsError, match=words):
            check_children(*wrong)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # of torch.func.jvp itself
@pytest.mark.parametrize("backend", FAST)
def test_what_fast_backends_leave_to_the_reference_says_so(backend: str) -> None:
    poses, activations, maps = leaves(torch.float32)

    def total(poses: Tensor, backend: str) -> Tensor:
        votes = Votes(poses, activations.detach(), maps.detach(), WINDOW, backend=backend)
        return votes.under(parents_of(votes.uniform())).mean.square().sum()

    refused = r"use backend='reference'"
    (grad,) = torch.autograd.grad(total(poses, backend), poses, create_graph=True)
    with pytest.raises(QuatcapsError, match=refused):
        grad.square().sum().backward()
    with pytest.raises(QuatcapsError, match=refused):
        torch.func.grad(total)(poses.detach(), backend)
    with pytest.raises(QuatcapsError, match=refused):
        torch.func.jvp(lambda one: total(one, backend), (poses.detach(),), (torch.ones_like(poses),))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(QuatcapsError, match=refused):
        total(torch.autograd.forward_ad.make_dual(poses.detach(), torch.ones_like(poses)), backend)
    assert torch.func.grad(total)(poses.detach(), "reference").shape == poses.shape
    (grad,) = torch.autograd.grad(total(poses, "reference"), poses, create_graph=True)
    assert torch.autograd.grad(grad.square().sum(), poses)[0].isfinite().all()


def test_matrix_maps_are_ordinary_parameters() -> None:
    """For `parameters_to_vector`, and optimisers that need it."""
    network = build("em", channels=1, classes=3, seed=0, primary=2, capsules=((2, 3, 2),), stem=(4, 5, 2))
    assert all(parameter.is_contiguous() for parameter in network.parameters())
    vector = torch.nn.utils.parameters_to_vector(network.parameters())
    images = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    optimiser = torch.optim.LBFGS(network.parameters(), max_iter=2)

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = network(images).activations.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    assert not torch.equal(torch.nn.utils.parameters_to_vector(network.parameters()), vector)


def test_a_seed_means_the_same_matrices_as_ever() -> None:
    torch.manual_seed(0)
    layer = ConvolutionalCapsules(2, 3, 2, pose="matrix", routing=EM())
    weight = layer.maps().detach()
    assert weight.stride() == (2 * 3 * 16, 3 * 16, 16, 4, 1)
    torch.testing.assert_close(
        weight[1, 1, 2, 3], torch.tensor([-0.079867, -0.004395, -0.052539, 0.941031]), rtol=0, atol=1e-6
    )

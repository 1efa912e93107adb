"""Who voted for whom: explanations agree with what the network computes, and their sums with each other."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import quatcaps
from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError
from quatcaps.layers import ConvolutionalCapsules
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.routing import EM, EMRouting
from quatcaps.routing.moments import SummedVotes


def network_of(name: str, **settings: object) -> CapsuleNetwork:
    torch.manual_seed(0)
    network = quatcaps.build(name, channels=2, classes=5, **settings).eval()
    assert isinstance(network, CapsuleNetwork)
    return network


def images(count: int = 2) -> torch.Tensor:
    return torch.rand(count, 2, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["qcn-small", "qcn-rotor-deep", "em", "vb"])
def test_explains_what_the_network_computes(name: str) -> None:
    network = network_of(name)
    with torch.no_grad():
        output = network(images())
    classes = network.explain(images()).layers[-1]
    torch.testing.assert_close(classes.capsules.poses[..., 0, 0], output.poses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(classes.capsules.activations[..., 0, 0], output.activations, rtol=1e-4, atol=1e-5)


def test_shares_of_a_child_sum_to_one_and_make_the_parents() -> None:
    """μ_j = Σ a_i r_ij v_ij / Σ a_i r_ij, with the assignments that are told."""
    network = network_of("qcn-small")
    explanation = network.explain(images())
    below, classes = explanation.layers[-2:]
    shares = classes.assignments
    torch.testing.assert_close(shares.sum(4), torch.ones_like(shares.sum(4)))
    with torch.no_grad():
        votes = network.classify.votes_of(*below.capsules, backend="reference").formed()[..., 0, 0]  # (N, B, J, D)
    given = below.capsules.activations.permute(0, 2, 3, 1)[..., None] * shares[..., 0, 0]
    weights = given.flatten(1, 3)[..., None]
    means = (weights * votes).sum(1) / weights.sum(1)
    torch.testing.assert_close(means, classes.capsules.poses[..., 0, 0], rtol=1e-4, atol=1e-5)


def test_every_iteration_is_that_of_a_routing_with_so_many() -> None:
    three = network_of("qcn-small", iterations=3)
    steps = three.explain(images()).layers[1].iterations
    assert len(steps) == 3
    assert len({float(step.assignments.std()) for step in steps}) == 3
    layer = three.layers[0]
    assert isinstance(layer, ConvolutionalCapsules)
    assert isinstance(layer.routing, EMRouting)
    with torch.no_grad():
        primary = three.primary(images())
        for count, step in enumerate(steps, 1):
            layer.routing.settings = EM(iterations=count)
            poses, activations = layer(*primary)
            torch.testing.assert_close(step.capsules.poses, poses, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(step.capsules.activations, activations, rtol=1e-4, atol=1e-5)


def test_parts_are_the_children_that_give_most() -> None:
    explanation = network_of("qcn-small").explain(images())
    below, layer = explanation.layers[:2]
    assert layer.reach is not None
    row, column, capsule = 1, 2, 3
    parts = explanation.parts(1, 1, capsule, row, column, most=7)
    assert [part.share for part in parts] == sorted((part.share for part in parts), reverse=True)
    everything = explanation.parts(1, 1, capsule, row, column, most=10**6)
    assert sum(part.share for part in everything) == pytest.approx(1, abs=1e-5)
    assert everything[:7] == parts
    for part in parts:
        assert part.activation == float(below.capsules.activations[1, part.capsule, part.row, part.column])
        down, across = part.row - row * layer.reach.stride, part.column - column * layer.reach.stride
        assert part.assignment == float(layer.assignments[1, down, across, part.capsule, capsule, row, column])


def test_tree_reaches_the_primary_capsules() -> None:
    explanation = network_of("qcn-deep").explain(images(1))
    branches, levels = explanation.tree(0, most=2), len(explanation.layers) - 1
    for level in reversed(range(levels)):
        assert {part.level for part in branches} == {level}
        branches = tuple(child for part in branches for child in part.parts)
    assert branches == ()


def test_children_outside_the_grid_give_nothing() -> None:
    torch.manual_seed(0)
    layer = ConvolutionalCapsules(2, 3, 3, padding=1)
    reach = layer.reach(4, 4)
    assert reach.padding == (1, 1)
    with torch.no_grad():
        steps = layer.explain(torch.randn(1, 2, 3, 4, 4), torch.rand(1, 2, 4, 4))
    assert steps[-1].assignments.shape == (1, 3, 3, 2, 3, 4, 4)


def test_places_on_the_image() -> None:
    """A bright pixel moves a primary capsule that stands near it."""
    network = network_of("qcn-small")
    layer = network.explain(images(1)).layers[0]
    changed = images(1)
    changed[..., 16, 20] += 3
    apart = network.explain(changed).layers[0].capsules.poses - layer.capsules.poses
    row, column = divmod(int(apart.square().sum((0, 1, 2)).argmax()), layer.grid[1])
    down, across = layer.place(row, column)
    assert abs(down - 16) <= 3
    assert abs(across - 20) <= 3


def test_places_behind_a_padded_stem() -> None:
    """Windows of 5×5 hold a pixel three times down and across, and stand around it."""
    network = quatcaps.build("em-ibm-published", channels=1, classes=3, seed=0, stem=(4, 5, 2), primary=2).eval()
    assert isinstance(network, CapsuleNetwork)
    images = torch.rand(1, 1, 24, 20)
    before = network.explain(images).layers[0]
    images[..., 13, 9] += 3
    apart = (network.explain(images).layers[0].capsules.poses - before.capsules.poses).abs().sum((0, 1, 2))
    places = [before.place(row, column) for row, column in apart.nonzero().tolist()]
    assert sorted(places) == [(down, across) for down in (11, 13, 15) for across in (7, 9, 11)]


class Uniform(nn.Module):
    """A routing whose iterations nobody can count."""

    iterations, competition = 1, "position"

    def module(self, parents: int) -> nn.Module:
        return self

    def forward(self, votes: SummedVotes) -> Capsules:
        moments = votes.uniform()
        return Capsules(moments.mean, torch.sigmoid(moments.mass - 1))


def test_a_routing_of_ones_own_has_its_last_iteration() -> None:
    layer = ConvolutionalCapsules(2, 3, 3, routing=Uniform())
    children = torch.randn(1, 2, 3, 4, 4), torch.rand(1, 2, 4, 4)
    with torch.no_grad():
        steps, wanted = layer.explain(*children), layer(*children)
    assert len(steps) == 1
    torch.testing.assert_close(steps[0].capsules.poses, wanted.poses)
    torch.testing.assert_close(steps[0].assignments, torch.full((1, 3, 3, 2, 3, 2, 2), 1 / 3))


def test_training_goes_on_as_it_was() -> None:
    network = network_of("vb").train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.explain(images())
    assert network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_too_many_images_are_refused() -> None:
    network = network_of("qcn")
    with pytest.raises(QuatcapsError, match=r"100000 images: to explain them takes .* give at most \d+ at a time"):
        network.explain(torch.zeros(1, 2, 32, 32).expand(100_000, 2, 32, 32))


def test_wrong_channels() -> None:
    with pytest.raises(QuatcapsError, match="channels"):
        network_of("qcn-small").explain(torch.rand(1, 3, 32, 32))

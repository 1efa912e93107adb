"""Poses that are quaternions, and votes that are products with rotors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from quatcaps import quaternion
from quatcaps.models import build
from quatcaps.poses.quaternion import RotorMaps
from quatcaps.poses.rotor import ROTOR, RightRotorMaps
from quatcaps.routing import Votes, Window

CHILDREN, PARENTS, SIDE = 3, 4, 5


def hamilton(q: Tensor, p: Tensor) -> Tensor:
    """The product by hand: i² = j² = k² = ijk = −1."""
    a, b, c, d = q.unbind(-1)
    e, f, g, h = p.unbind(-1)
    return torch.stack(
        (
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ),
        -1,
    )


def votes_of(maps: RightRotorMaps, poses: Tensor) -> Tensor:
    """(places, children, parents, 4) of one image whose window is the whole grid, `poses` (children, 4, side, side)."""
    votes = Votes(poses[None], torch.ones(1, CHILDREN, SIDE, SIDE, dtype=poses.dtype), maps(), Window(SIDE, SIDE))
    return votes.formed()[0, ..., 0, 0].unflatten(0, (SIDE * SIDE, CHILDREN))


@pytest.fixture
def maps() -> RightRotorMaps:
    torch.manual_seed(0)
    return RightRotorMaps(SIDE * SIDE, CHILDREN, PARENTS).double()


@pytest.fixture
def poses() -> Tensor:
    return torch.randn(CHILDREN, 4, SIDE, SIDE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_votes_are_products_with_the_learned_rotor(maps: RightRotorMaps, poses: Tensor) -> None:
    rotor = quaternion.rotor(maps.angle, maps.axis)
    children = poses.flatten(2).permute(2, 0, 1)[:, :, None]
    torch.testing.assert_close(votes_of(maps, poses), hamilton(children, rotor))
    torch.testing.assert_close(rotor.norm(dim=-1), torch.ones_like(maps.angle))


def test_turning_all_children_from_the_left_turns_all_votes(maps: RightRotorMaps, poses: Tensor) -> None:
    turn = quaternion.normalise(torch.tensor([0.3, -1.2, 0.5, 2.0], dtype=torch.float64))
    turned = hamilton(turn, poses.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(votes_of(maps, turned), hamilton(turn, votes_of(maps, poses)))


def test_maps_begin_as_those_of_quaternion_poses() -> None:
    torch.manual_seed(3)
    mine = RightRotorMaps(9, 2, 3)
    torch.manual_seed(3)
    other = RotorMaps(9, 2, 3)
    assert torch.equal(mine.angle, other.angle)
    assert torch.equal(mine.axis, other.axis)


def test_a_network_of_rotor_poses() -> None:
    network = build("qcn-small", channels=1, classes=3, pose="rotor")
    output = network(torch.randn(2, 1, 28, 28))
    assert output.poses.shape == (2, 3, ROTOR.dims) == (2, 3, 4)
    output.activations.sum().backward()
    assert all((layer.maps.angle.grad != 0).any() for layer in (*network.layers, network.classify))

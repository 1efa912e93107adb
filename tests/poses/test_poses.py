from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from scipy.stats import kstest
from torch import Tensor, nn

from quatcaps.errors import QuatcapsError
from quatcaps.layers import ClassCapsules, ConvolutionalCapsules, PrimaryCapsules
from quatcaps.models import build
from quatcaps.poses import POSES, PoseType, pose_type, register_pose
from quatcaps.poses.matrix import MatrixMaps
from quatcaps.poses.quaternion import RotorMaps
from quatcaps.routing import EM


class PlanarMaps(nn.Module):
    """Rotations of the plane by a learned angle."""

    def __init__(self, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.angle = nn.Parameter(torch.randn(offsets, children, parents))

    def forward(self) -> Tensor:
        cosine, sine = self.angle.cos(), self.angle.sin()
        return torch.stack((cosine, -sine, sine, cosine), -1).unflatten(-1, (2, 2))


class FreeMaps(nn.Module):
    """Free 3×3 matrices."""

    def __init__(self, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(offsets, children, parents, 3, 3))

    def forward(self) -> Tensor:
        return self.weight


PLANAR = PoseType("planar", rows=1, columns=2, maps=PlanarMaps)
OBLONG = PoseType("oblong", rows=2, columns=3, maps=FreeMaps)


@pytest.mark.parametrize(
    ("pose", "dims", "numbers"),
    [
        ("quaternion", 3, 4),
        ("fixed-axis", 3, 1),
        ("free", 3, 9),
        ("matrix", 16, 16),
        ("matrix-xavier", 16, 16),
        ("matrix-drawn", 16, 16),
        ("matrix-normal", 16, 16),
        ("rotor", 4, 4),
        (PLANAR, 2, 1),
    ],
)
def test_numbers_per_pose_and_per_map(pose: str | PoseType, dims: int, numbers: int) -> None:
    kind = pose_type(pose)
    maps = kind.maps(9, 5, 7)
    assert kind.dims == dims
    assert sum(parameter.numel() for parameter in maps.parameters()) == 9 * 5 * 7 * numbers
    cells = (4,) if pose == "rotor" else (kind.columns, kind.columns)
    assert maps().shape == (9, 5, 7, *cells)


def test_angles_and_axes_start_uniform() -> None:
    torch.manual_seed(0)
    maps = RotorMaps(9, 16, 32)
    for values, limit in ((maps.angle, math.pi), *((component, 1.0) for component in maps.axis.unbind(-1))):
        assert values.abs().max() <= limit
        assert kstest(values.detach().flatten().numpy(), "uniform", args=(-limit, 2 * limit)).pvalue > 1e-3


def test_matrix_maps_start_near_the_identity() -> None:
    torch.manual_seed(0)
    noise = (MatrixMaps(9, 16, 32)() - torch.eye(4)).detach()
    assert noise.mean().abs() < 1e-3
    assert noise.std().item() == pytest.approx(0.1, rel=0.02)
    assert noise.mean((0, 1, 2)).abs().max() < 0.01


def test_xavier_maps_start_small_and_uniform() -> None:
    torch.manual_seed(0)
    weight = pose_type("matrix-xavier").maps(9, 16, 32)().detach()
    limit = (6 / (9 * 16 * (16 + 32))) ** 0.5
    assert kstest(weight.flatten().numpy(), "uniform", args=(-limit, 2 * limit)).pvalue > 1e-3


def test_drawn_maps_start_uniform_in_windows_and_normal_where_they_are_shared() -> None:
    torch.manual_seed(0)
    windows, shared, normal = (
        pose_type(name).maps(offsets, 16, 32)().detach().flatten().numpy()
        for name, offsets in (("matrix-drawn", 9), ("matrix-drawn", 1), ("matrix-normal", 9))
    )
    assert kstest(windows, "uniform").pvalue > 1e-3
    assert kstest(shared, "norm").pvalue > 1e-3
    assert kstest(normal, "truncnorm", args=(-2, 2)).pvalue > 1e-3


def test_a_rotor_turns_by_twice_its_angle() -> None:
    torch.manual_seed(0)
    maps = RotorMaps(4, 3, 5).double()
    unit = maps.axis / maps.axis.norm(dim=-1, keepdim=True)
    expected = Rotation.from_rotvec((2 * maps.angle[..., None] * unit).detach().reshape(-1, 3).numpy())
    np.testing.assert_allclose(maps().detach().reshape(-1, 3, 3), expected.as_matrix(), atol=1e-14)


@pytest.mark.parametrize("length", [0.0, 1e-40, 1e-20, 1.0, 1e20, 1e38])
def test_rotor_maps_are_rotations_whatever_the_axis(length: float) -> None:
    torch.manual_seed(0)
    maps = RotorMaps(4, 3, 5)
    with torch.no_grad():
        maps.axis.mul_(length)
    matrices = maps()
    torch.testing.assert_close(matrices @ matrices.mT, torch.eye(3).expand_as(matrices), rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.linalg.det(matrices), torch.ones(4, 3, 5), rtol=0, atol=1e-6)
    matrices.square().sum().backward()
    assert maps.angle.grad.isfinite().all()
    assert maps.axis.grad.isfinite().all()


def test_votes_learn_both_angle_and_axis() -> None:
    torch.manual_seed(0)
    maps = RotorMaps(2, 2, 2)
    (maps() @ torch.tensor([1.0, 2.0, 3.0]))[..., 0].sum().backward()
    assert (maps.angle.grad != 0).all()
    assert (maps.axis.grad != 0).any(-1).all()


@pytest.mark.parametrize(
    "pose", ["matrix", "matrix-xavier", "rotor", PLANAR, OBLONG], ids=["matrix", "xavier", "rotor", "planar", "oblong"]
)
def test_other_poses_go_through_every_layer(pose: str | PoseType) -> None:
    dims = pose_type(pose).dims
    layers = (
        PrimaryCapsules(1, 4, pose=pose),
        ConvolutionalCapsules(4, 3, 3, pose=pose),
        ClassCapsules(3, 2, pose=pose),
    )
    capsules = layers[0](torch.randn(2, 1, 9, 11))
    assert capsules.poses.shape == (2, 4, dims, 5, 6)
    capsules = layers[1](*capsules)
    assert capsules.poses.shape == (2, 3, dims, 3, 4)
    capsules = layers[2](*capsules)
    assert capsules.poses.shape == (2, 2, dims)
    (capsules.poses.sum() + capsules.activations.square().sum()).backward()
    for layer in layers[1:]:
        assert all((parameter.grad != 0).any() for parameter in layer.maps.parameters())


def test_the_vote_of_a_pose_is_its_rows_times_the_map() -> None:
    layer = ConvolutionalCapsules(1, 2, 1, pose=OBLONG, routing=EM(1)).double()
    rows = torch.randn(2, 3, dtype=torch.float64)
    votes = layer(rows.reshape(1, 1, 6, 1, 1), torch.ones(1, 1, 1, 1, dtype=torch.float64)).poses
    for parent in range(2):
        weight = layer.maps.weight[0, 0, parent].detach().numpy()
        expected = [[(line * row).sum() for line in weight] for row in rows.numpy()]
        np.testing.assert_allclose(votes[0, parent, :, 0, 0].detach().reshape(2, 3), expected)


@pytest.mark.usefixtures("own_names")
def test_a_new_pose_is_one_entry() -> None:
    register_pose(PLANAR)
    network = build("qcn-small", channels=1, classes=3, pose="planar")
    assert network(torch.randn(2, 1, 28, 28)).poses.shape == (2, 3, 2)


def test_pose_types_by_name() -> None:
    assert pose_type(PLANAR) is PLANAR
    assert pose_type("matrix") is POSES["matrix"]
    with pytest.raises(QuatcapsError, match="unknown pose 'quaternions': did you mean 'quaternion'"):
        pose_type("quaternions")


def test_a_fixed_axis_turns_about_grey_and_learns_angles_alone() -> None:
    maps = pose_type("fixed-axis").maps(2, 3, 4)
    assert [name for name, _ in maps.named_parameters()] == ["angle"]
    assert maps.state_dict().keys() == {"angle"}
    grey = torch.ones(3) / math.sqrt(3)
    matrices = maps()
    torch.testing.assert_close(matrices @ grey, grey.expand(2, 3, 4, 3))
    turned = Rotation.from_matrix(matrices.detach().flatten(0, 2).numpy()).magnitude()
    wanted = np.abs((2 * maps.angle.detach().flatten().numpy() + np.pi) % (2 * np.pi) - np.pi)
    assert np.allclose(turned, wanted, atol=1e-4)


def test_free_maps_begin_as_rotations() -> None:
    torch.manual_seed(0)
    matrices = pose_type("free").maps(5, 6, 7)()
    torch.testing.assert_close(matrices @ matrices.mT, torch.eye(3).expand_as(matrices), atol=1e-5, rtol=0)
    assert matrices.requires_grad

"""The diagnostics on poses whose answer is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import quatcaps
from quatcaps import quaternion
from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import views_of
from quatcaps.errors import QuatcapsError
from quatcaps.inspection import (
    Frames,
    Rotors,
    algebraic_residual,
    composition,
    pairs_of,
    probe_across,
    probe_within,
    transfer,
)
from quatcaps.inspection.features import MOST, principal, reduced
from quatcaps.inspection.probe import products, ridge
from quatcaps.models.capsule_network import CapsuleNetwork

CLASSES, TOYS, ELEVATIONS, AZIMUTHS, LIGHTINGS = 2, 4, 3, 18, 4


def toys(aligned: bool = True) -> ImageSet:
    """Every toy from every viewpoint."""
    ranges = (CLASSES, TOYS, ELEVATIONS, AZIMUTHS, LIGHTINGS)
    grid = torch.cartesian_prod(*(torch.arange(count) for count in ranges))
    names = ("instance", "elevation", "azimuth", "lighting")
    info = {name: grid[:, k + 1].clone() for k, name in enumerate(names)}
    info["azimuth"] *= 2
    return ImageSet(
        name="made up",
        stored=torch.zeros(len(grid), 1, 8, 8, dtype=torch.uint8),
        labels=grid[:, 0].clone(),
        classes=("one", "two"),
        info=info,
        aligned=aligned,
    )


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def turned(images: ImageSet) -> Tensor:
    """Poses that turn with the viewpoint, with something of each toy's own on the right, of any length and sign."""
    views = views_of(images)
    own = quaternion.normalise(noise(CLASSES * TOYS, 4))
    poses = quaternion.product(views.orientations.double(), own[views.toys])
    return poses * noise(len(images), 1, seed=1).exp() * noise(len(images), 1, seed=2).sign()


def seen(images: ImageSet) -> Tensor:
    """Directions that turn with the viewpoint."""
    views = views_of(images)
    own = noise(CLASSES * TOYS, 3)
    return quaternion.rotate(views.orientations.double(), own[views.toys])


def test_pairs_are_one_toy_at_one_elevation_and_lighting() -> None:
    images = toys()
    pairs = pairs_of(images, 40)
    assert len(pairs.before) == len(images)
    for name in ("instance", "elevation", "lighting"):
        assert torch.equal(images.info[name][pairs.before], images.info[name][pairs.after])
    assert torch.equal(images.labels[pairs.before], images.labels[pairs.after])
    turn = 10 * (images.info["azimuth"][pairs.after] - images.info["azimuth"][pairs.before]) % 360
    assert set(turn.tolist()) == {40}
    some = images.select(torch.rand(len(images), generator=torch.Generator().manual_seed(0)) < 0.5)
    rest = pairs_of(some, 40)
    assert 0 < len(rest.before) < len(some)
    turn = 10 * (some.info["azimuth"][rest.after] - some.info["azimuth"][rest.before]) % 360
    assert set(turn.tolist()) == {40}


@pytest.mark.parametrize("aligned", [True, False])
def test_poses_that_turn_are_carried_over(aligned: bool) -> None:
    images = toys(aligned)
    for poses, action in ((turned(images), Rotors()), (seen(images), Frames(3, 1, "direction"))):
        found = transfer(images, poses, action, 40)
        assert found.error < 1e-4
        assert found.shuffled > 30
        assert found.ratio < 1e-5
    assert transfer(images, turned(images), Rotors(), 40).moved == pytest.approx(40, abs=1e-4)


def test_random_poses_are_not_carried_over() -> None:
    images = toys()
    found = transfer(images, noise(len(images), 4), Rotors(), 40)
    assert found.ratio == pytest.approx(1, abs=0.05)
    assert found.error == pytest.approx(math.degrees(math.pi / 2 + 2 / math.pi), abs=5)  # the mean angle of chance


def test_poses_that_do_not_move_gain_nothing_by_it() -> None:
    """Each toy has a pose of its own from all sides, but for noise: no better than shuffled pairs."""
    images = toys()
    own = noise(CLASSES * TOYS, 4)[views_of(images).toys]
    found = transfer(images, own + 0.01 * noise(len(images), 4, seed=1), Rotors(), 40)
    assert found.moved < 5
    assert found.error < 5
    assert found.ratio == pytest.approx(1, abs=0.1)
    constant = transfer(images, torch.ones(len(images), 4), Rotors(), 40)
    assert max(constant.error, constant.shuffled) < 1e-4


def test_small_turns_add_up() -> None:
    images = toys()
    for poses, action in ((turned(images), Rotors()), (seen(images), Frames(3, 1, "direction"))):
        found = composition(images, poses, action)
        assert found.nine_steps < 1e-3
        assert found.circle < 1e-3
        assert found.shuffled > 20
    assert composition(images, turned(images), Rotors()).step == pytest.approx(20, abs=1e-4)


def test_small_turns_of_noise_do_not() -> None:
    images = toys()
    found = composition(images, noise(len(images), 4), Rotors())
    assert found.nine_steps > 30
    assert found.circle > 30


@pytest.mark.parametrize("rows", [3, 4])
def test_fitted_rotation_is_the_one_that_was_applied(rows: int) -> None:
    action = Frames(rows, 2, "matrix")
    rotation = torch.linalg.qr(noise(rows, rows)).Q
    rotation[:, 0] *= torch.linalg.det(rotation)
    poses = noise(20, 2 * rows, seed=3)
    torch.testing.assert_close(action.fit(poses, action.apply(rotation, poses)), rotation)


def test_fitted_rotor_is_the_one_that_was_applied() -> None:
    rotor = quaternion.normalise(noise(4))
    poses = noise(20, 4, seed=3)
    found = Rotors().fit(poses, -2 * Rotors().apply(rotor, poses))
    assert float(quaternion.geodesic_distance(found, rotor)) < 1e-6


def test_a_mirror_is_no_rotation() -> None:
    action = Frames(3, 1, "direction")
    poses = noise(20, 3)
    found = action.fit(poses, poses * poses.new_tensor([1, 1, -1]))
    assert float(torch.linalg.det(found)) == pytest.approx(1)


def test_chance_of_rotors_is_the_median_of_random_rotations() -> None:
    q, p = noise(200_000, 4, seed=1), noise(200_000, 4, seed=2)
    assert Rotors().degrees(q, p).median().item() == pytest.approx(Rotors.chance, abs=0.5)


@pytest.mark.parametrize("how", [probe_within, probe_across])
def test_probe_reads_what_is_there(how: type) -> None:
    images = toys()
    found = how(images, views_of(images).orientations)
    assert found.azimuth_r2 > 0.99
    assert found.azimuth_degrees < 3
    assert found.elevation_r2 > 0.99
    assert found.elevation_degrees < 0.5
    assert found.chance_r2 < 0.1
    assert found.chance_degrees == pytest.approx(90, abs=15)


@pytest.mark.parametrize("how", [probe_within, probe_across])
def test_probe_finds_nothing_in_noise(how: type) -> None:
    images = toys()
    found = how(images, noise(len(images), 40))
    assert found.azimuth_r2 < 0.1
    assert found.azimuth_degrees == pytest.approx(90, abs=12)


def test_probe_of_constants_is_finite() -> None:
    images = toys()
    found = probe_within(images, torch.ones(len(images), 4))
    assert found.azimuth_r2 <= 0
    assert math.isfinite(found.azimuth_degrees)


def test_probe_across_needs_a_common_zero() -> None:
    images = toys(aligned=False)
    with pytest.raises(QuatcapsError, match="azimuth 0 differs from toy to toy"):
        probe_across(images, noise(len(images), 4))


def test_ridge_is_least_squares_where_there_are_data_enough() -> None:
    inputs, weights = noise(200, 5), noise(5, 2, seed=1)
    found = ridge(inputs[:100], inputs[100:], inputs[:100] @ weights + 3)
    torch.testing.assert_close(found, inputs[100:] @ weights + 3, rtol=1e-4, atol=1e-4)


def test_products() -> None:
    x, y = torch.tensor([[2.0, 3.0]]).unbind(1)
    assert products(torch.stack((x, y), 1), 3).tolist() == [[2, 3, 4, 6, 9, 8, 12, 18, 27]]


def test_reduced_features_are_the_same_for_every_batch() -> None:
    values = noise(10, 3 * MOST).float()
    whole = reduced(values)
    assert whole.shape == (10, MOST)
    torch.testing.assert_close(reduced(values[3:5]), whole[3:5])
    few = values[:, :MOST]
    assert reduced(few) is few, "few numbers stay as they are"
    ratio = whole.norm(dim=1) / values.norm(dim=1)
    assert 0.8 < float(ratio.mean()) < 1.2


def test_principal_components() -> None:
    values = noise(50, 1) @ noise(1, 6, seed=1) + 1e-6 * noise(50, 6, seed=2)
    found = principal(values, 2)
    assert float(found[:, 0].std()) > 1e4 * float(found[:, 1].std())


@pytest.mark.parametrize(("name", "equivariant"), [("qcn-rotor-deep", True), ("qcn-deep", False), ("em", False)])
def test_algebraic_residual(name: str, equivariant: bool) -> None:
    torch.manual_seed(0)
    network = quatcaps.build(name, channels=2, classes=5).eval()
    assert isinstance(network, CapsuleNetwork)
    found = algebraic_residual(network, torch.rand(2, 2, 32, 32), turns=2)
    if equivariant:
        assert found.poses < 1e-5
        assert found.activations < 1e-5
    else:
        assert found.poses > 0.01


def test_too_few_images() -> None:
    images = toys().select(torch.arange(0, 40))
    with pytest.raises(QuatcapsError, match="too few pairs"):
        transfer(images, noise(len(images), 4), Rotors(), 40)

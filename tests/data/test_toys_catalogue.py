from __future__ import annotations

import itertools

import pytest
import torch

from quatcaps.data.toys import CLASSES, SPLITS, camera, renderer
from quatcaps.data.toys.catalogue import INSTANCES, Toy, toy


@pytest.fixture(scope="module")
def fifty() -> dict[tuple[int, int], Toy]:
    members = itertools.product(range(len(CLASSES)), range(INSTANCES))
    return {(category, instance): toy(category, instance, seed=0) for category, instance in members}


def surface(made: Toy) -> torch.Tensor:
    """Points (n, 3) on the toy's solids."""
    return torch.cat([solid.outline for solid in made.solids])


def test_the_splits_share_no_toy_and_leave_none_out() -> None:
    assert set(SPLITS["train"]).isdisjoint(SPLITS["test"])
    assert sorted(SPLITS["train"] + SPLITS["test"]) == list(range(INSTANCES))
    assert SPLITS == {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}


def test_every_toy_stands_on_the_ground_in_the_middle(fifty: dict[tuple[int, int], Toy]) -> None:
    for made in fifty.values():
        low, high = surface(made).amin(0), surface(made).amax(0)
        assert low[2].abs() < 1e-9
        assert ((low + high)[:2].abs() < 1e-9).all()
        assert made.look_at == pytest.approx(float(high[2]) / 2)
        assert len(made.solids) <= renderer._TAGS


def test_every_toy_fills_the_frame_and_no_more(fifty: dict[tuple[int, int], Toy]) -> None:
    """Its largest extent over the dataset's viewpoints is the unit, to which the cameras' frame is set."""
    for made in fifty.values():
        largest = 0.0
        for azimuth in range(0, 360, 20):
            cameras = camera.stereo(float(azimuth), [30.0, 50.0, 70.0], made.look_at)
            for eye in range(6):
                ray = surface(made) - cameras.position[eye]
                depth = ray @ cameras.forward[eye]
                for axis in (cameras.right, cameras.up):
                    largest = max(largest, float(((ray @ axis[eye]) / depth).abs().max()) * camera.DISTANCE)
        assert largest == pytest.approx(1.0, abs=1e-3)


def test_no_part_hangs_in_the_air(fifty: dict[tuple[int, int], Toy]) -> None:
    """From the first solid one comes to every other one, each overlapping the next."""
    for member, made in fifty.items():
        clouds = []
        for solid in made.solids:
            middle = solid.outline.mean(0)
            clouds.append(torch.cat([middle + (solid.outline - middle) * share for share in (0.0, 0.4, 0.7, 0.9, 1.0)]))
        everything = torch.cat(clouds).T
        owner = torch.cat([torch.full((len(cloud),), k) for k, cloud in enumerate(clouds)])
        touching = torch.zeros(len(clouds), len(clouds), dtype=torch.bool)
        for k, solid in enumerate(made.solids):
            touching[k, owner[solid.excess(solid.features(everything)) <= 1e-6]] = True
        touching |= touching.T.clone()
        reached = touching[0]
        for _ in clouds:
            reached = touching[reached].any(0)
        assert reached.all(), f"{member}: solids {(~reached).nonzero().flatten().tolist()} hang in the air"


def test_toys_differ_from_each_other(fifty: dict[tuple[int, int], Toy]) -> None:
    for category in range(len(CLASSES)):
        shapes = [fifty[category, instance] for instance in range(INSTANCES)]
        for one, other in itertools.combinations(shapes, 2):
            a, b = (torch.cat([solid.rows for solid in made.solids]) for made in (one, other))
            assert a.shape != b.shape or (a - b).abs().max() > 0.1


def test_the_seed_changes_proportions_but_not_the_kind() -> None:
    one, same, other = toy(0, 8, seed=0), toy(0, 8, seed=0), toy(0, 8, seed=1)
    assert torch.equal(surface(one), surface(same))
    assert len(one.solids) == len(other.solids)
    change = (surface(one) - surface(other)).norm(dim=1).max()
    assert 0.005 < change < 0.4


def test_the_crop_and_the_radius_enclose_the_toy(fifty: dict[tuple[int, int], Toy]) -> None:
    generator = torch.Generator().manual_seed(0)
    for made in list(fifty.values())[::7]:
        middle = torch.tensor([0.0, 0.0, made.look_at], dtype=torch.float64)
        cloud = torch.randn(20000, 3, generator=generator, dtype=torch.float64)
        cloud = middle + cloud / cloud.norm(dim=1, keepdim=True) * made.radius
        for solid in made.solids:
            assert (solid.excess(solid.features(cloud.T)) > 0).all()
        assert 0 < made.crop(144) <= 144
        assert made.crop(144) % 2 == 0

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from quatcaps import QuatcapsError
from quatcaps.data import toys
from quatcaps.data.toys import camera, dataset, renderer, shadows
from quatcaps.data.toys.catalogue import toy
from quatcaps.data.toys.renderer import Scene
from quatcaps.data.toys.shapes import MISS


def pairs(*wanted: tuple[float, float, int], size: int = 48, seed: int = 0) -> Tensor:
    """Stereo pairs (N, 2, size, size) as floats, of a truck at (azimuth, elevation, lighting) each."""
    azimuth, elevation, lighting = (torch.tensor(column) for column in zip(*wanted, strict=True))
    return toys.render(3, 0, azimuth.double(), elevation.double(), lighting, size=size, seed=seed).float()


@pytest.fixture(scope="module")
def truck() -> Scene:
    return renderer.scene(toy(3, 0, seed=0))


@pytest.fixture(scope="module")
def horse() -> Scene:
    return renderer.scene(toy(0, 8, seed=0))


def covered(prepared: Scene, azimuth: float, elevation: float) -> Tensor:
    """How many of its samples (2, 48, 48) of each pixel the toy covers."""
    pixels, _, _ = renderer._surface(prepared, camera.stereo(azimuth, [elevation], prepared.toy.look_at), 48)
    return torch.bincount(pixels, minlength=2 * 48 * 48).view(2, 48, 48)


def test_the_same_view_gives_the_same_bytes_alone_and_in_company() -> None:
    generator = torch.Generator().manual_seed(3)
    count = 7
    azimuth = torch.rand(count, generator=generator, dtype=torch.float64) * 360
    azimuth[:5] = azimuth[0]
    elevation = 30 + 40 * torch.rand(count, generator=generator, dtype=torch.float64)
    elevation[2:4] = elevation[1]
    lighting = torch.randint(6, (count,), generator=generator)
    together = toys.render(1, 0, azimuth, elevation, lighting)
    for k in range(count):
        alone = toys.render(1, 0, azimuth[k : k + 1], elevation[k : k + 1], lighting[k : k + 1])
        assert torch.equal(alone[0], together[k])


def test_a_loaded_view_is_a_rendered_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "SPLITS", {"test": (1,)})
    chosen = toys.load("test", size=20, azimuths=[4, 0], elevations=[8, 1, 3], lightings=[5, 2])
    assert len(chosen) == 5 * 2 * 3 * 2
    assert len({image.numpy().tobytes() for image in chosen.images}) == len(chosen)
    for k in (0, 17, 59):
        info = {name: int(column[k]) for name, column in chosen.info.items()}
        angles = torch.tensor([10.0 * info["azimuth"]]), torch.tensor([30.0 + 5.0 * info["elevation"]])
        alone = toys.render(int(chosen.labels[k]), info["instance"], *angles, torch.tensor([info["lighting"]]), size=20)
        assert torch.equal(alone[0], chosen.images[k])


def test_a_full_turn_changes_nothing() -> None:
    images = pairs((20.0, 40.0, 0), (380.0, 40.0, 0), (-340.0, 40.0, 0))
    again = pairs((380.0, 40.0, 0))
    assert torch.equal(images[0], images[1])
    assert torch.equal(images[0], images[2])
    assert torch.equal(images[0], again[0])
    assert camera.toward(20.0, 40.0) == camera.toward(380.0, 40.0)


def test_images_change_smoothly_with_the_viewpoint() -> None:
    here, *others = pairs((33.0, 41.0, 0), (33.01, 41.0, 0), (33.0, 41.01, 0), (34.0, 41.0, 0), (33.0, 42.0, 0))
    changes = [float((other - here).abs().mean()) for other in others]
    for close, away in ((changes[0], changes[2]), (changes[1], changes[3])):
        assert close < 0.15
        assert close < 0.2 * away
        assert 0.1 < away < 6.0


def test_every_quarter_turn_looks_different() -> None:
    images = pairs(*((azimuth, 40.0, 0) for azimuth in (0.0, 90.0, 180.0, 270.0)))
    for k in range(4):
        for other in images[:k]:
            assert (images[k] - other).abs().mean() > 2.0


def test_the_two_cameras_see_the_toy_from_a_little_to_either_side(horse: Scene) -> None:
    pair = pairs((50.0, 30.0, 0))[0]
    assert 1.0 < (pair[0] - pair[1]).abs().mean() < 12.0
    # The right camera of a pair turned to the left by the angle between the two stands where the left one stood.
    angle = 2 * math.degrees(math.atan(camera.BASELINE / 2 / camera.DISTANCE))
    here, moved = (covered(horse, azimuth, 0.0) for azimuth in (50.0, 50.0 - angle))
    change = (here[0] - here[1]).abs().sum()
    assert change > 0.1 * here[0].sum()
    assert (here[0] - moved[1]).abs().sum() < 0.3 * change


@pytest.mark.parametrize("azimuth", [0.0, 140.0, 230.0])
def test_shadows_fall_away_from_the_lamp(truck: Scene, azimuth: float) -> None:
    """Left and right lamps: the darkened ground lies on the other side of the image."""
    ground = covered(truck, azimuth, 40.0)[0] == 0
    columns = torch.arange(48.0).expand(48, 48)
    middles = []
    for lighting in (0, 1):
        image = renderer.views(truck, azimuth, [40.0], [lighting], 48)[0, 0, 0].float()
        dark = ground & (image < 0.85 * image[0, 0])
        assert dark.sum() > 60
        middles.append(float(columns[dark].mean()))
    assert camera.LAMPS[0].bearing < 0 < camera.LAMPS[1].bearing
    assert middles[0] > middles[1] + 10


def test_lightings_differ() -> None:
    images = pairs(*((70.0, 40.0, lighting) for lighting in range(6)))
    for k in range(6):
        for other in images[:k]:
            assert (images[k] - other).abs().mean() > 4.0


def test_the_ground_is_lighter_than_the_toy_and_the_toy_is_shaded(horse: Scene) -> None:
    image = renderer.views(horse, 60.0, [35.0], [0], 48)[0, 0]
    counts = covered(horse, 60.0, 35.0)
    whole = image[counts == renderer.SAMPLES**2].float()
    assert float(image[0, 0, 0]) > float(whole.max())
    assert whole.std() > 15
    edge = image[(counts > 0) & (counts < renderer.SAMPLES**2)]
    assert len(edge.unique()) > 40  # blended


def test_the_toy_lies_in_the_middle_of_the_frame() -> None:
    for category, instance in ((0, 2), (1, 4), (2, 3), (3, 6), (4, 5)):
        prepared = renderer.scene(toy(category, instance, seed=0))
        widest = 0
        for azimuth in (0.0, 60.0, 120.0, 260.0):
            cameras = camera.stereo(azimuth, [30.0, 50.0, 70.0], prepared.toy.look_at)
            pixels, _, _ = renderer._surface(prepared, cameras, 48)
            row, column = pixels.div(48, rounding_mode="floor") % 48, pixels % 48
            for axis in (row, column):
                assert 6 <= int(axis.min()) <= int(axis.max()) <= 41
                widest = max(widest, int(axis.max() - axis.min()) + 1)
        assert widest >= 28


def test_skipping_what_cannot_be_hit_changes_nothing(horse: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    lights = camera.directions(15.0, [0, 1, 2, 3, 4, 5])
    cameras = camera.stereo(15.0, [0.0, 33.0, 90.0], horse.toy.look_at)
    quick = (*renderer._surface(horse, cameras, 48), shadows.height_maps(horse.toy.solids, lights, horse.reach))
    monkeypatch.setattr("quatcaps.data.toys.catalogue.Toy.crop", lambda self, side: side)
    everything = [(slice(None), slice(None))] * len(horse.toy.solids)
    monkeypatch.setattr(renderer, "_windows", lambda *_: everything)
    monkeypatch.setattr(shadows, "_window", lambda *_: [slice(None), slice(None)])
    plain = (*renderer._surface(horse, cameras, 48), shadows.height_maps(horse.toy.solids, lights, horse.reach))
    for one, other in zip(quick, plain, strict=True):
        assert torch.equal(one, other)


def shadow_ray(prepared: Scene, points: Tensor, light: Tensor) -> Tensor:
    """Whether anything stands between each point (3, n) and the lamp, float64: the plain test, one ray a point."""
    blocked = torch.zeros(points.shape[1], dtype=torch.bool)
    for solid in prepared.toy.solids:
        base = solid.features(points)
        rate = (solid.rows[:, :3] @ -light)[:, None].expand_as(base)
        entry = solid.entry(list(base), list(rate))  # from the lamp towards the point, which is at 0
        blocked |= entry < -1e-3
    return blocked


@pytest.mark.parametrize("lighting", [0, 2, 4])
def test_shadows_agree_with_shadow_rays(horse: Scene, truck: Scene, lighting: int) -> None:
    for prepared in (horse, truck):
        lights = camera.directions(75.0, [lighting])
        maps = shadows.height_maps(prepared.toy.solids, lights, prepared.reach)
        grid = shadows.steps(shadows.CELLS, prepared.reach)
        y, x = torch.meshgrid(grid, grid, indexing="ij")
        ground = torch.stack((x.reshape(-1), y.reshape(-1), torch.zeros(shadows.CELLS**2, dtype=torch.float64)))
        expected = shadow_ray(prepared, ground, lights[0])
        assert expected.any()
        assert ((maps.view(-1) > 0) == expected).float().mean() > 0.999
        dark = shadows.on_ground(maps).view(-1) > 0.5
        assert (dark == expected).float().mean() > 0.98

        cameras = camera.stereo(75.0, [40.0], prepared.toy.look_at)
        _, points, normals = renderer._surface(prepared, cameras, 48)
        toward = shadows.facing(lights, normals)[0] > 0.15
        lit = shadows.visible(maps, prepared.reach, lights, points, normals)[0][toward]
        hidden = shadow_ray(prepared, (points + 0.02 * normals).double()[:, toward], lights[0])
        assert ((lit < 0.5) == hidden).float().mean() > 0.93
        assert hidden.any()


def test_rays_meet_the_surface_where_it_is(horse: Scene) -> None:
    """The points that the cameras see lie on the toy, and nothing lies before them."""
    cameras = camera.stereo(200.0, [45.0], horse.toy.look_at)
    pixels, points, normals = renderer._surface(horse, cameras, 48)
    assert torch.allclose(normals.norm(dim=0), torch.ones(len(pixels)), atol=1e-5)
    eye = pixels.div(48 * 48, rounding_mode="floor")
    ray = points.double() - cameras.position[eye].T
    assert ((normals * ray).sum(0) < 1e-3).all()
    nearest = torch.full((len(pixels),), MISS, dtype=torch.float64)
    for solid in horse.toy.solids:
        base = list(solid.features(cameras.position[eye].T))
        rate = list(solid.rows[:, :3] @ ray)
        nearest = torch.minimum(nearest, solid.entry(base, rate))
    # But for a few rays so near an edge that rounding decides whether they meet it.
    assert ((nearest - 1.0).abs() < 1e-4).float().mean() > 0.995


def test_extreme_viewpoints_are_pictures_too() -> None:
    for image in pairs((10.0, 0.0, 0), (10.0, 90.0, 0), size=32):
        assert image.std() > 5
        corners = image[:, [0, 0, 31, 31], [0, 31, 0, 31]]
        assert corners.min() > 120


def test_larger_images_show_the_same_and_another_seed_another_toy() -> None:
    small, large, other = pairs((25.0, 40.0, 0)), pairs((25.0, 40.0, 0), size=96), pairs((25.0, 40.0, 0), seed=7)
    assert (torch.nn.functional.avg_pool2d(large, 2) - small).abs().mean() < 2.0
    assert (other - small).abs().mean() > 0.3


def test_no_views_give_no_images() -> None:
    none = torch.empty(0)
    assert toys.render(0, 0, none, none, none.long()).shape == (0, 2, 48, 48)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"category": 5}, "category is 5: give a number from 0 to 4"),
        ({"instance": -1}, "instance is -1: give a number from 0 to 9"),
        ({"size": 4}, "size is 4: give a number of pixels from 8 to 192"),
        ({"azimuth": torch.tensor([[0.0]])}, r"azimuth has shape \(1, 1\)"),
        ({"elevation": torch.tensor([30.0, 40.0])}, r"elevation has shape \(2,\): give one value per view"),
        ({"azimuth": torch.tensor([torch.inf])}, "azimuth of view 0 is inf: give degrees"),
        ({"elevation": torch.tensor([torch.nan])}, "elevation of view 0 is nan: give degrees from 0 to 90"),
        ({"elevation": torch.tensor([-5.0])}, "elevation of view 0 is -5.0: give degrees from 0 to 90"),
        ({"lighting": torch.tensor([6])}, "lighting of view 0 is 6: give a number from 0 to 5"),
        ({"lighting": torch.tensor([1.0])}, "lighting is torch.float32: give int64"),
    ],
)
def test_bad_requests_are_named(changes: dict[str, object], message: str) -> None:
    request: dict[str, object] = {
        "category": 0,
        "instance": 0,
        "azimuth": torch.tensor([0.0]),
        "elevation": torch.tensor([30.0]),
        "lighting": torch.tensor([0]),
    }
    with pytest.raises(QuatcapsError, match=message):
        toys.render(**(request | changes))  # type: ignore[arg-type]

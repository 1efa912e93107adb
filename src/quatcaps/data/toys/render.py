"""Toys into pixels: one ray per sample, shadows from height maps, averaged to bytes.

For one toy at one azimuth:

1. rays from both cameras at all elevations meet every solid; the nearest wins (`_nearest`);
2. from each lamp a map over the ground plane tells how high above the ground light is stopped (`_height_maps`). A point is
   in shadow if its own height is less than that of the map where its line to the lamp meets the ground;
3. a few lamps spread over the sky, mapped once per toy, give the ambient light that reaches each point (`Scene.sky`);
4. Lambert's law for each lamp, the mean over the samples of a pixel, and a square root for the display.

All arithmetic on samples is element by element with exactly rounded operations, so that an image does not depend on which
others are rendered with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from quatcaps.data.toys import camera
from quatcaps.data.toys.catalogue import Toy
from quatcaps.data.toys.shapes import MISS

SAMPLES = 3  # per pixel, along each side
MAP = 160  # cells of a height map, along each side
TOY_ALBEDO = 0.34
GROUND_ALBEDO = 0.72
SKY = tuple((angle, 28.0, 1.0) for angle in (20.0, 92.0, 164.0, 236.0, 308.0)) + tuple(
    (angle, 65.0, 0.9) for angle in (50.0, 170.0, 290.0)
)  # azimuth and height in degrees, weight
LARGEST = 96
TAG = 64  # solids that a toy may have; their number rides in the low bits of the distance


@dataclass(frozen=True)
class Scene:
    """A toy and what can be computed of it before a viewpoint is known."""

    toy: Toy
    rows: Tensor  # (features of all solids, 4) float64
    centers: Tensor  # (solids, 3) float64, of bounding spheres
    radii: Tensor  # (solids,) float64
    reach: float  # half the side of the height maps
    sky: Tensor  # (sky lamps, 3) float64
    sky_maps: Tensor  # (sky lamps, MAP, MAP) float32
    ground_sky: Tensor  # (1, MAP, MAP) float32, the share of the sky that is hidden from the ground


def scene(toy: Toy) -> Scene:
    """Prepares a toy for rendering."""
    rows = torch.cat([solid.rows for solid in toy.solids])
    lowest = min(lamp.height for lamp in camera.LAMPS)
    cosine, _, sine = camera.toward(0.0, lowest)
    outline = torch.cat([solid.outline for solid in toy.solids])
    reach = 1.05 * float((outline[:, :2].norm(dim=1) + outline[:, 2] * (cosine / sine)).max())
    sky = torch.tensor([camera.toward(azimuth, height) for azimuth, height, _ in SKY], dtype=torch.float64)
    maps = _height_maps(toy, rows, reach, sky)
    dome = [camera.toward(15.0 * k, height) for height in (30.0, 50.0, 72.0) for k in range(24)]
    hidden, total = torch.zeros(1, MAP, MAP), sum(direction[2] for direction in dome)
    for k in range(0, len(dome), 8):
        lamps = torch.tensor(dome[k : k + 8], dtype=torch.float64)
        for lamp, layer in zip(lamps.tolist(), _covered(_height_maps(toy, rows, reach, lamps)), strict=True):
            hidden = hidden + layer * (lamp[2] / total)
    hidden = F.avg_pool2d(hidden[None], 5, stride=1, padding=2)[0]
    centers = torch.stack([solid.outline.mean(0) for solid in toy.solids])
    radii = torch.stack(
        [(solid.outline - center).norm(dim=1).max() for solid, center in zip(toy.solids, centers, strict=True)]
    )
    return Scene(toy, rows, centers, radii, reach, sky, maps, hidden)


def views(
    prepared: Scene, azimuth: float, elevations: Sequence[float], lightings: Sequence[int], size: int
) -> Tensor:
    """Every elevation under every lighting at one azimuth: (elevations, lightings, 2, size, size) uint8."""
    toy = prepared.toy
    cameras = camera.stereo(azimuth, elevations, toy.look_at)
    lights = camera.directions(azimuth, lightings)
    lamps = [camera.LAMPS[k] for k in lightings]
    maps = _height_maps(toy, prepared.rows, prepared.reach, lights)

    place, points, normals = _surface(prepared, cameras, size)
    ambient = _ambient(prepared, points, normals)
    lit = _lit(maps, prepared.reach, lights, points, normals)
    ground, covered = _ground(prepared, cameras, lights, lamps, maps, size), torch.zeros(len(cameras.position) * size**2)
    covered.index_add_(0, place, torch.full_like(ambient, 1.0 / SAMPLES**2))
    image = torch.empty_like(ground)
    for k, lamp in enumerate(lamps):
        radiance = (ambient * lamp.ambient + lit[k] * lamp.key) * (TOY_ALBEDO / SAMPLES**2)
        layer = ground[:, k].reshape(-1) * (1.0 - covered)
        image[:, k] = layer.index_add_(0, place, radiance).view(-1, size, size)
    grey = (image.clamp(0.0, 1.0).sqrt() * 255.0 + 0.5).to(torch.uint8)
    return grey.view(len(elevations), 2, len(lamps), size, size).transpose(1, 2).contiguous()


def _dot(rows: Tensor, vectors: Tensor) -> Tensor:
    """(k, 3 or 4) features of (n, 3) vectors without their constants: (n, k)."""
    return (
        rows[:, 0] * vectors[:, 0:1] + rows[:, 1] * vectors[:, 1:2] + rows[:, 2] * vectors[:, 2:3]
    )


def _steps(count: int, half: float) -> Tensor:
    """The middles of `count` cells between -half and half, float64."""
    return (torch.arange(count, dtype=torch.float64) * 2 + (1 - count)) * (half / count)


def _height_maps(toy: Toy, rows: Tensor, reach: float, lights: Tensor) -> Tensor:
    """How high above the ground light from each direction is stopped: (lights, MAP, MAP) float32, 0 where it is not.

    Cell (i, j) is the ground point y = steps[i], x = steps[j]; its line runs from the lamp down to that point.
    """
    steps = _steps(MAP, reach)
    across = (rows[:, 0:1] * steps).float()
    along = (rows[:, 1:2] * steps + rows[:, 3:4]).float()
    rates = -_dot(rows, lights).float()[:, :, None, None]
    first = torch.full((len(lights), MAP, MAP), MISS)
    offset = 0
    for solid in toy.solids:
        chosen = range(offset, offset + len(solid.rows))
        offset += len(solid.rows)
        base = [along[k][:, None] + across[k] for k in chosen]
        torch.minimum(first, solid.entry(base, [rates[:, k] for k in chosen]), out=first)
    return (first * -lights[:, 2].float()[:, None, None]).clamp(min=0.0)


def _covered(maps: Tensor) -> Tensor:
    """The share of light (lights, MAP, MAP) that the ground does not get: 1 in shadow, softened over three cells."""
    return F.avg_pool2d((maps * 40.0).clamp(max=1.0)[:, None], 3, stride=1, padding=1)[:, 0]


def _rays(cameras: camera.Cameras, rows: Tensor, side: int, crop: int) -> tuple[Tensor, Tensor]:
    """The rates of features along the rays of the central crop × crop samples.

    They are a sum of a part per sample row (views, features, crop, 1) and one per column (views, features, 1, crop).
    """
    half = camera.HALF_FRAME / camera.DISTANCE
    steps = _steps(side, half)[(side - crop) // 2 : (side + crop) // 2]
    down = _dot(rows, cameras.forward)[:, :, None] - _dot(rows, cameras.up)[:, :, None] * steps
    across = _dot(rows, cameras.right)[:, :, None] * steps
    return down.float()[..., None], across.float()[:, :, None, :]


def _windows(prepared: Scene, cameras: camera.Cameras, side: int, crop: int) -> list[tuple[slice, slice]]:
    """For each solid the rows and columns of the crop outside which none of the cameras sees its bounding sphere."""
    away = prepared.centers[None] - cameras.position[:, None]
    depth = (away * cameras.forward[:, None]).sum(-1)
    limits = []
    for axis, sign in ((cameras.up, -1.0), (cameras.right, 1.0)):
        offset = (away * axis[:, None]).sum(-1) * sign
        half = prepared.radii * (depth + offset.abs()) / (depth * (depth - prepared.radii))
        scale = side * camera.DISTANCE / (2 * camera.HALF_FRAME)
        low = ((offset / depth - half).amin(0) * scale + crop / 2).floor().long() - 1
        high = ((offset / depth + half).amax(0) * scale + crop / 2).ceil().long() + 1
        limits.append([slice(max(a, 0), max(b, 0)) for a, b in zip(low.tolist(), high.tolist(), strict=True)])
    return list(zip(*limits, strict=True))


def _surface(prepared: Scene, cameras: camera.Cameras, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The toy's visible samples: pixel in (views, size, size) flattened (n,), points and normals (n, 3) float32."""
    toy, side = prepared.toy, size * SAMPLES
    crop = toy.crop(side)
    windows = _windows(prepared, cameras, side, crop)
    down, across = _rays(cameras, prepared.rows, side, crop)
    start = (_dot(prepared.rows, cameras.position) + prepared.rows[:, 3]).float()[:, :, None, None]
    far = int(torch.tensor(MISS).view(torch.int32))
    nearest = torch.full((len(cameras.position), crop, crop), far, dtype=torch.int32)
    offset = 0
    for number, solid in enumerate(toy.solids):
        chosen = range(offset, offset + len(solid.rows))
        offset += len(solid.rows)
        rows, columns = windows[number]
        rates = [down[:, k, rows] + across[:, k, :, columns] for k in chosen]
        entry = solid.entry([start[:, k] for k in chosen], rates)
        tagged = entry.view(torch.int32).bitwise_and_(-TAG).bitwise_or_(number)
        window = nearest[:, rows, columns]
        torch.minimum(window, tagged, out=window)

    nearest = nearest.view(-1)
    inside = (nearest < far).nonzero()[:, 0]
    nearest = nearest[inside]
    line = inside.div(crop, rounding_mode="floor")
    view = inside.div(crop * crop, rounding_mode="floor")
    column = inside - line * crop
    distance = (nearest & -TAG).view(torch.float32)
    down, across = _rays(cameras, torch.eye(3, dtype=torch.float64), side, crop)
    position = cameras.position.float()
    points = torch.empty(len(inside), 3)
    for axis in range(3):
        ray = down[:, axis].reshape(-1)[line] + across[:, axis].reshape(-1)[view * crop + column]
        points[:, axis] = position[:, axis][view] + distance * ray
    owner = nearest & (TAG - 1)
    normals = torch.empty_like(points)
    for number, solid in enumerate(toy.solids):
        mine = (owner == number).nonzero()[:, 0]
        if len(mine):
            normals.index_copy_(0, mine, solid.normals(points[mine]))
    margin = (side - crop) // 2
    row = (line - view * crop + margin).div(SAMPLES, rounding_mode="floor")
    column = (column + margin).div(SAMPLES, rounding_mode="floor")
    return (view * size + row) * size + column, points, normals


def _visible(maps: Tensor, reach: float, lights: Tensor, points: Tensor, normals: Tensor) -> Tensor:
    """The share of each light that reaches each point, (lights, n): four cells of its map, weighted by nearness."""
    cell = 2 * reach / MAP
    x, y, z = ((points[:, axis] + normals[:, axis] * (1.2 * cell)) for axis in range(3))
    slope = (lights[:, :2] / lights[:, 2:]).float()
    scale, middle = 1.0 / cell, MAP / 2 - 0.5
    column = ((x - z * slope[:, :1]) * scale + middle).clamp(0.0, MAP - 1.001)
    row = ((y - z * slope[:, 1:]) * scale + middle).clamp(0.0, MAP - 1.001)
    left, top = column.floor(), row.floor()
    right_share, bottom_share = column - left, row - top
    index = (top * MAP + left).to(torch.int32)
    index += torch.arange(len(maps), dtype=torch.int32)[:, None] * (MAP * MAP)
    index = index.view(-1)
    flat = maps.reshape(-1)
    height = (z + 0.01).expand(len(maps), -1)

    def free(step: int) -> Tensor:
        above = height - flat.index_select(0, index + step).view_as(column)
        return (above * 60.0 + 1.0).clamp(0.0, 1.0)

    first, second = free(0), free(MAP)
    upper = first + (free(1) - first) * right_share
    lower = second + (free(MAP + 1) - second) * right_share
    return upper + (lower - upper) * bottom_share


def _facing(lights: Tensor, normals: Tensor) -> Tensor:
    """Lambert's cosine, (lights, n)."""
    direction = lights.float()
    return (
        direction[:, 0:1] * normals[:, 0] + direction[:, 1:2] * normals[:, 1] + direction[:, 2:3] * normals[:, 2]
    ).clamp(min=0.0)


def _lit(maps: Tensor, reach: float, lights: Tensor, points: Tensor, normals: Tensor) -> Tensor:
    """Direct light at each point, (lights, n), for lamps of strength 1."""
    return _facing(lights, normals) * _visible(maps, reach, lights, points, normals)


def _ambient(prepared: Scene, points: Tensor, normals: Tensor) -> Tensor:
    """Light from the sky and back from the ground at each point (n,); 1 on open level ground."""
    received = _facing(prepared.sky, normals)
    received = received * _visible(prepared.sky_maps, prepared.reach, prepared.sky, points, normals)
    total = sum(weight * float(direction[2]) for (_, _, weight), direction in zip(SKY, prepared.sky, strict=True))
    light = (0.5 - 0.5 * normals[:, 2]) * 0.35
    for k, (_, _, weight) in enumerate(SKY):
        light = light + received[k] * (weight / total)
    return light


def _ground(
    prepared: Scene, cameras: camera.Cameras, lights: Tensor, lamps: Sequence[camera.Lamp], maps: Tensor, size: int
) -> Tensor:
    """What the ground alone would look like, its shadows included: (views, lights, size, size) float32.

    Beyond the horizon there is a backdrop as bright as the open ground.
    """
    down, across = _rays(cameras, torch.eye(3, dtype=torch.float64), size, size)
    position = cameras.position.float()[:, :, None, None]
    fall = (down[:, 2] + across[:, 2]).clamp(max=-1e-3)
    distance = position[:, 2] / -fall
    grid = torch.stack(
        [
            ((position[:, axis] + distance * (down[:, axis] + across[:, axis])) / prepared.reach).clamp(-3.0, 3.0)
            for axis in range(2)
        ],
        dim=-1,
    )
    layers = torch.cat((_covered(maps), prepared.ground_sky))
    hidden = F.grid_sample(
        layers.expand(len(grid), -1, -1, -1), grid, mode="bilinear", padding_mode="zeros", align_corners=False
    )
    image = hidden[:, :-1]
    heights = lights[:, 2].tolist()
    key = torch.tensor([lamp.key * height for lamp, height in zip(lamps, heights, strict=True)])
    ambient = torch.tensor([lamp.ambient for lamp in lamps])
    sky = 1.0 - hidden[:, -1:]
    return (sky * ambient[:, None, None] + (1.0 - image) * key[:, None, None]) * GROUND_ALBEDO

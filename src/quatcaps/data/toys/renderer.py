"""Toys into pixels: rays for what the cameras see, height maps for what the lamps see, averaged to bytes.

For one toy at one azimuth:

1. rays from both cameras at all elevations meet every solid, several to a pixel; the nearest solid wins (`_surface`);
2. a height map per lamp tells which of the points so found, and which of the ground, are in its shadow (`shadows`);
3. eight lamps spread over the sky, mapped once per toy, give the ambient light at each point (`_ambient`);
4. Lambert's law for each lamp, the mean over the samples of a pixel, and a square root for the display (`views`).

All arithmetic on samples is element by element with exactly rounded operations, so that an image does not depend on
which others are rendered with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from quatcaps.data.toys import camera
from quatcaps.data.toys.catalogue import Toy
from quatcaps.data.toys.shadows import CELLS, facing, features, height_maps, on_ground, steps, visible
from quatcaps.data.toys.shapes import MISS

SAMPLES = 3
"""Rays per pixel, along each side."""

TOY_ALBEDO = 0.34
GROUND_ALBEDO = 0.72
_BOUNCE = 0.35  # light from the ground, against that from the sky
_SKY = (
    *(camera.toward(72.0 * k + 20.0, 28.0) for k in range(5)),
    *(camera.toward(120.0 * k + 50.0, 65.0) for k in range(3)),
)
_DOME = tuple(camera.toward(15.0 * k, height) for height in (30.0, 50.0, 72.0) for k in range(24))
_TAGS = 64  # more than any toy has solids: a solid's number rides in the low bits of its distance


@dataclass(frozen=True)
class Scene:
    """A toy and what can be computed of it before a viewpoint is known."""

    toy: Toy
    rows: Tensor  # (features of all solids, 4) float64
    centers: Tensor  # (solids, 3) float64, of bounding spheres
    radii: Tensor  # (solids,) float64
    reach: float  # half the side of the height maps
    sky: Tensor  # (sky lamps, 3) float64
    sky_maps: Tensor  # (sky lamps, CELLS / 2, CELLS / 2) float32
    ground_hidden: Tensor  # (1, CELLS, CELLS) float32: the share of the sky that the ground does not see


def scene(toy: Toy) -> Scene:
    """Prepares a toy for `views`."""
    points = torch.cat([solid.outline for solid in toy.solids])
    cosine, _, sine = camera.toward(0.0, min(lamp.height for lamp in camera.LAMPS))
    reach = 1.05 * float((points[:, :2].norm(dim=1) + points[:, 2] * (cosine / sine)).max())
    sky = torch.tensor(_SKY, dtype=torch.float64)
    dome = torch.tensor(_DOME, dtype=torch.float64)
    coarse = torch.cat([on_ground(height_maps(toy.solids, some, reach, CELLS // 4)) for some in dome.split(24)])
    hidden, total = torch.zeros_like(coarse[:1]), sum(direction[2] for direction in _DOME)
    for direction, layer in zip(_DOME, coarse, strict=True):
        hidden = hidden + layer * (direction[2] / total)
    return Scene(
        toy=toy,
        rows=torch.cat([solid.rows for solid in toy.solids]),
        centers=torch.stack([solid.sphere[0] for solid in toy.solids]),
        radii=torch.tensor([solid.sphere[1] for solid in toy.solids], dtype=torch.float64),
        reach=reach,
        sky=sky,
        sky_maps=torch.cat([height_maps(toy.solids, some, reach, CELLS // 2) for some in sky.split(4)]),
        ground_hidden=F.interpolate(hidden[None], scale_factor=4, mode="bilinear", align_corners=False)[0],
    )


def views(prepared: Scene, azimuth: float, elevations: Sequence[float], lightings: Sequence[int], size: int) -> Tensor:
    """Every elevation under every lighting at one azimuth: (elevations, lightings, 2, size, size) uint8.

    Angles in degrees. Memory grows with the number of elevations.
    """
    cameras = camera.stereo(azimuth, elevations, prepared.toy.look_at)
    lights = camera.directions(azimuth, lightings)
    maps = height_maps(prepared.toy.solids, lights, prepared.reach)
    pixels, points, normals = _surface(prepared, cameras, size)
    ambient = _ambient(prepared, points, normals)
    direct = facing(lights, normals) * visible(maps, prepared.reach, lights, points, normals)
    ground = _ground(prepared, cameras, lights, maps, lightings, size)
    image = torch.empty_like(ground)
    bare = torch.ones(len(cameras.position) * size * size, dtype=torch.float32)
    bare.index_add_(0, pixels, torch.full_like(ambient, -1.0 / SAMPLES**2))
    for k, lighting in enumerate(lightings):
        lamp = camera.LAMPS[lighting]
        radiance = (ambient * lamp.ambient + direct[k] * lamp.key) * (TOY_ALBEDO / SAMPLES**2)
        layer = (ground[:, k].reshape(-1) * bare).index_add_(0, pixels, radiance)
        image[:, k] = layer.view(-1, size, size)
    grey = (image.clamp(0.0, 1.0).sqrt() * 255.0 + 0.5).to(torch.uint8)
    return grey.view(len(elevations), 2, len(lightings), size, size).transpose(1, 2).contiguous()


def _rays(cameras: camera.Cameras, rows: Tensor, side: int, crop: int) -> tuple[Tensor, Tensor]:
    """The rates of features along the rays of the central crop × crop of side × side samples, float32.

    They are a sum of a part per sample row (views, features, crop, 1) and one per column (views, features, 1, crop).
    """
    places = steps(side, camera.HALF_FRAME / camera.DISTANCE)[(side - crop) // 2 : (side + crop) // 2]
    down = features(rows, cameras.forward)[:, :, None] - features(rows, cameras.up)[:, :, None] * places
    across = features(rows, cameras.right)[:, :, None] * places
    return down.float()[..., None], across.float()[:, :, None, :]


def _windows(prepared: Scene, cameras: camera.Cameras, side: int, crop: int) -> list[tuple[slice, slice]]:
    """For each solid the rows and columns of the crop outside which none of the cameras sees its bounding sphere."""
    away = prepared.centers - cameras.position[:, None]
    depth = (away * cameras.forward[:, None]).sum(-1)
    scale = side * camera.DISTANCE / (2 * camera.HALF_FRAME)
    limits = []
    for axis in (-cameras.up, cameras.right):
        offset = (away * axis[:, None]).sum(-1)
        half = prepared.radii * (depth + offset.abs()) / (depth * (depth - prepared.radii))
        low = ((offset / depth - half).amin(0) * scale + crop / 2).floor() - 1
        high = ((offset / depth + half).amax(0) * scale + crop / 2).ceil() + 1
        limits.append([slice(max(int(a), 0), max(int(b), 0)) for a, b in zip(low, high, strict=True)])
    return list(zip(*limits, strict=True))


def _surface(prepared: Scene, cameras: camera.Cameras, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The toy's visible samples: pixel in (views, size, size) flattened (n,), points and normals (3, n) float32."""
    toy, side = prepared.toy, size * SAMPLES
    crop = toy.crop(side)
    windows = _windows(prepared, cameras, side, crop)
    down, across = _rays(cameras, prepared.rows, side, crop)
    start = (features(prepared.rows, cameras.position) + prepared.rows[:, 3]).float()[:, :, None, None]
    far = int(torch.tensor(MISS, dtype=torch.float32).view(torch.int32))
    nearest = torch.full((len(cameras.position), crop, crop), far, dtype=torch.int32)
    offset = 0
    for number, solid in enumerate(toy.solids):
        chosen = range(offset, offset + len(solid.rows))
        offset += len(solid.rows)
        rows, columns = windows[number]
        rates = [down[:, k, rows] + across[:, k, :, columns] for k in chosen]
        entry = solid.entry([start[:, k] for k in chosen], rates)
        # Positive floats sort like integers, so one minimum finds both the nearest distance and whose it is.
        tagged = entry.view(torch.int32).bitwise_and_(-_TAGS).bitwise_or_(number)
        window = nearest[:, rows, columns]
        torch.minimum(window, tagged, out=window)

    inside = (nearest.view(-1) < far).nonzero()[:, 0]
    found = nearest.view(-1)[inside]
    line = inside.div(crop, rounding_mode="floor")
    view = line.div(crop, rounding_mode="floor")
    column = inside - line * crop
    distance = (found & -_TAGS).view(torch.float32)
    down, across = _rays(cameras, torch.eye(3, dtype=torch.float64), side, crop)
    points = torch.empty(3, len(inside), dtype=torch.float32)
    for axis in range(3):
        ray = down[:, axis].reshape(-1)[line] + across[:, axis].reshape(-1)[view * crop + column]
        points[axis] = cameras.position[:, axis].float()[view] + distance * ray
    owner = found & (_TAGS - 1)
    normals = torch.empty_like(points)
    for number, solid in enumerate(toy.solids):
        mine = (owner == number).nonzero()[:, 0]
        normals.index_copy_(1, mine, solid.normals(points[:, mine]))
    margin = (side - crop) // 2
    row = (line - view * crop + margin).div(SAMPLES, rounding_mode="floor")
    column = (column + margin).div(SAMPLES, rounding_mode="floor")
    return (view * size + row) * size + column, points, normals


def _ambient(prepared: Scene, points: Tensor, normals: Tensor) -> Tensor:
    """Light from the sky, and back from the ground, at each point (n,); 1 is what open level ground gets."""
    received = facing(prepared.sky, normals)
    received = received * visible(prepared.sky_maps, prepared.reach, prepared.sky, points, normals)
    total = sum(direction[2] for direction in _SKY)
    light = (1.0 - normals[2]) * (_BOUNCE / 2)
    for share in received:
        light = light + share * (1.0 / total)
    return light


def _ground(
    prepared: Scene, cameras: camera.Cameras, lights: Tensor, maps: Tensor, lightings: Sequence[int], size: int
) -> Tensor:
    """What the ground alone looks like at the middle of each pixel: (views, lights, size, size) float32.

    Beyond the horizon there is a backdrop as bright as open ground.
    """
    down, across = _rays(cameras, torch.eye(3, dtype=torch.float64), size, size)
    position = cameras.position.float()[:, :, None, None]
    distance = position[:, 2] / -(down[:, 2] + across[:, 2]).clamp(max=-1e-3)
    places = [
        ((position[:, axis] + distance * (down[:, axis] + across[:, axis])) / prepared.reach).clamp(-3.0, 3.0)
        for axis in range(2)
    ]
    layers = torch.cat((on_ground(maps), prepared.ground_hidden)).expand(len(position), -1, -1, -1)
    hidden = F.grid_sample(layers, torch.stack(places, dim=-1), padding_mode="zeros", align_corners=False)
    lamps = [camera.LAMPS[lighting] for lighting in lightings]
    key = [lamp.key * height for lamp, height in zip(lamps, lights[:, 2].tolist(), strict=True)]
    direct = (1.0 - hidden[:, :-1]) * torch.tensor(key, dtype=torch.float32)[:, None, None]
    ambient = torch.tensor([lamp.ambient for lamp in lamps], dtype=torch.float32)[:, None, None]
    return (direct + (1.0 - hidden[:, -1:]) * ambient) * GROUND_ALBEDO

"""Any toy from any viewpoints, many at once, on CPUs and CUDA: the same pictures as `toys.renderer` makes.

For one toy and a list of viewpoints:

1. rays from both cameras of every viewpoint meet the solids in whose tiles they lie; the nearest wins (`_surface`);
2. height maps of the lamps, one for each azimuth and lighting, and of the sky, one for each toy, tell what light
   arrives at the points so found, and on the ground (`light`);
3. Lambert's law, the mean over the samples of a pixel, and a square root for the display (`_pictures`).

`toys` renders products of elevations and lightings at one azimuth; here every viewpoint is its own. The two agree up to
the resolution of their height maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from quatcaps.data.toys import camera
from quatcaps.data.toys.catalogue import Toy
from quatcaps.data.toys.many.light import (
    CELLS,
    DOME_CELLS,
    SKY,
    Sky,
    arriving,
    blended,
    blurred_edge,
    height_maps,
    shaded_ground,
    sky,
)
from quatcaps.data.toys.many.tiles import EDGE, TAGS, Body, body, nearest, reached
from quatcaps.data.toys.renderer import GROUND_ALBEDO, TOY_ALBEDO
from quatcaps.data.toys.shadows import features
from quatcaps.data.toys.shapes import MISS

Viewpoint = tuple[float, float, int]
"""Azimuth and elevation in degrees, and the number of the lighting."""

SAMPLES = 2
"""Rays per pixel, along each side; `toys` takes three."""

_BOUNCE = 0.35  # light from the ground, against that from the sky
_AT_ONCE = {"cpu": 64}  # viewpoints: little memory, and few enough calls that threads need not wait for each other


@dataclass(frozen=True)
class _Views:
    """Two cameras for each of n viewpoints, and their lamps; on the body's device."""

    position: Tensor  # (2n, 3) float64, as are the next three
    forward: Tensor
    right: Tensor
    up: Tensor
    lights: Tensor  # (lamps, 3) float64: each azimuth's lighting once
    lamp: Tensor  # (n,) int32: which of the lights is on
    strength: Tensor  # (n, 2) float32: what the lamp gives directly and to the sky


class Stage(NamedTuple):
    """A toy ready to be drawn from anywhere: what of it does not depend on the viewpoint."""

    body: Body
    sky: Sky


def stage(toy: Toy, device: torch.device | str = "cpu") -> Stage:
    made = body(toy, torch.device(device))
    return Stage(made, sky(made))


def draw(toy: Toy, viewpoints: Sequence[Viewpoint], size: int, device: torch.device | str = "cpu") -> Tensor:
    """Stereo pairs (N, 2, size, size) uint8, on the CPU; no viewpoint's bytes depend on the others."""
    if not viewpoints:
        return torch.empty(0, 2, size, size, dtype=torch.uint8)
    return draw_on(stage(toy, device), viewpoints, size)


def draw_on(stage: Stage, viewpoints: Sequence[Viewpoint], size: int) -> Tensor:
    """The same of a toy that is drawn again and again."""
    made, around = stage
    images = torch.empty(len(viewpoints), 2, size, size, dtype=torch.uint8)
    # Viewpoints that share a lamp come together, so that it is mapped once.
    order = sorted(range(len(viewpoints)), key=lambda k: (viewpoints[k][0] % 360.0, viewpoints[k][2]))
    at_once = _AT_ONCE.get(made.device.type, max(1, 512 * 48 * 48 // (size * size)))
    for start in range(0, len(order), at_once):
        chosen = order[start : start + at_once]
        views = _arranged([viewpoints[k] for k in chosen], made)
        images[torch.tensor(chosen)] = _pictures(made, around, views, size).cpu()
    return images


@lru_cache(maxsize=4096)
def _cameras(azimuth: float, elevation: float) -> Tensor:
    """(4, 2, 3) float64: position, forward, right and up of the left and the right camera."""
    pair = camera.stereo(azimuth, [elevation], look_at=0.0)
    return torch.stack((pair.position, pair.forward, pair.right, pair.up))


def _arranged(viewpoints: Sequence[Viewpoint], made: Body) -> _Views:
    vectors = torch.cat([_cameras(azimuth % 360.0, elevation) for azimuth, elevation, _ in viewpoints], dim=1)
    vectors[0, :, 2] += made.look_at
    lamps = {(azimuth % 360.0, lighting): 0 for azimuth, _, lighting in viewpoints}
    for number, lamp in enumerate(lamps):
        lamps[lamp] = number
    lights = torch.cat([camera.directions(azimuth, [lighting]) for azimuth, lighting in lamps])
    which = torch.tensor([lamps[azimuth % 360.0, lighting] for azimuth, _, lighting in viewpoints], dtype=torch.int32)
    strength = torch.tensor([[camera.LAMPS[k].key, camera.LAMPS[k].ambient] for _, _, k in viewpoints])
    position, forward, right, up = vectors.to(made.device)
    return _Views(
        position, forward, right, up, lights.to(made.device), which.to(made.device), strength.float().to(made.device)
    )


def _pictures(made: Body, around: Sky, views: _Views, size: int) -> Tensor:
    """(n, 2, size, size) uint8 on the body's device."""
    maps = height_maps(made, views.lights, around.reach)
    samples, view, points, normals = _surface(made, views, size)
    lamp = views.lamp.repeat_interleave(2).index_select(0, view)
    light = views.lights.float()
    slope = (views.lights[:, :2] / views.lights[:, 2:]).float()
    toward = [light[:, axis].index_select(0, lamp) for axis in range(3)]
    steps = (slope[:, 0].index_select(0, lamp), slope[:, 1].index_select(0, lamp))
    facing = (toward[0] * normals[0] + toward[1] * normals[1] + toward[2] * normals[2]).clamp_(min=0.0)
    direct = facing * arriving(maps, around.reach, lamp, steps, points, normals)
    strength = views.strength.repeat_interleave(2, dim=0)
    ambient = _ambient(around, points, normals)
    key, open_sky = (strength[:, k].index_select(0, view) for k in range(2))
    radiance = (ambient * open_sky + direct * key) * TOY_ALBEDO

    count = _tiles(size)
    seen = torch.zeros(len(strength) * count**2 * EDGE**2, device=made.device)
    bare = torch.ones_like(seen)
    seen.index_copy_(0, samples, radiance)
    bare.index_fill_(0, samples, 0.0)
    toy, gaps = (_averaged(part, len(strength), size) for part in (seen, bare))
    image = toy + _ground(around, views, shaded_ground(maps), size) * gaps
    return (image.clamp(0.0, 1.0).sqrt() * 255.0 + 0.5).to(torch.uint8).view(-1, 2, size, size)


def _tiles(size: int) -> int:
    """Along a side of an image of size × size pixels."""
    return -(-size * SAMPLES // EDGE)


def _averaged(samples: Tensor, views: int, size: int) -> Tensor:
    """The mean over each pixel's samples: (views · tiles², EDGE²) flattened → (views, size, size)."""
    count, pixels = _tiles(size), EDGE // SAMPLES
    grid = samples.view(views, count, count, pixels, SAMPLES, pixels, SAMPLES)
    total = grid[:, :, :, :, 0, :, 0]
    for k in range(1, SAMPLES**2):
        total = total + grid[:, :, :, :, k // SAMPLES, :, k % SAMPLES]
    image = total.transpose(2, 3).reshape(views, count * pixels, count * pixels)
    return image[:, :size, :size] * (1.0 / SAMPLES**2)


def _rays(views: _Views, rows: Tensor, side: int, padded: int) -> tuple[Tensor, Tensor]:
    """What rows and columns of samples add to the rates of features along rays: (features, views, padded) float32."""
    half = camera.HALF_FRAME / camera.DISTANCE
    places = (torch.arange(padded, dtype=torch.float64, device=rows.device) * 2 + (1 - side)) * (half / side)
    forward, up, right = (features(rows, axis).T[..., None] for axis in (views.forward, views.up, views.right))
    return (forward - up * places).float(), (right * places).float()


def _surface(made: Body, views: _Views, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The toy's visible samples: their place in all tiles and their view (n,), points and normals (3, n) float32."""
    side, count, cameras = size * SAMPLES, _tiles(size), len(views.position)
    away = made.outlines[:, None] - views.position.float()[:, None]
    forward, up, right = (axis.float()[:, None] for axis in (views.forward, views.up, views.right))
    depth = _dot(away, forward)
    scale = side * camera.DISTANCE / (2 * camera.HALF_FRAME)
    places = torch.stack((_dot(away, -up), _dot(away, right)), dim=-1) / depth[..., None] * scale + side / 2
    tiles = reached(places.amin(2).floor() - 1, places.amax(2).ceil() + 1, count)

    down, across = (part.reshape(len(made.rows), -1, EDGE) for part in _rays(views, made.rows, side, count * EDGE))
    start = (features(made.rows, views.position) + made.rows[:, 3]).float().T
    found = nearest(made, tiles, cameras, count, start, down, across).view(-1)
    far = int(torch.tensor(MISS, dtype=torch.float32).view(torch.int32))
    samples = (found < far).nonzero()[:, 0]
    tagged = found.index_select(0, samples)
    owner, order = (tagged & (TAGS - 1)).to(torch.uint8).sort(stable=True)
    samples, tagged = samples.index_select(0, order), tagged.index_select(0, order)
    distance = (tagged & -TAGS).view(torch.float32)

    tile = samples.div(EDGE * EDGE, rounding_mode="floor")
    inner = samples - tile * (EDGE * EDGE)
    row = inner.div(EDGE, rounding_mode="floor")
    line = tile.div(count, rounding_mode="floor")
    view = line.div(count, rounding_mode="floor")
    column = (view * count + (tile - line * count)) * EDGE + (inner - row * EDGE)
    axes = torch.eye(3, dtype=torch.float64, device=made.device)
    down, across = _rays(views, axes, side, count * EDGE)
    points = torch.empty(3, len(samples), device=made.device)
    for axis in range(3):
        ray = down[axis].reshape(-1).index_select(0, line * EDGE + row)
        ray = ray + across[axis].reshape(-1).index_select(0, column)
        points[axis] = views.position[:, axis].float().index_select(0, view) + distance * ray
    counts = torch.bincount(owner, minlength=len(made.solids)).tolist()
    normals = [solid.normals(part) for solid, part in zip(made.solids, points.split(counts, dim=1), strict=True)]
    return samples, view, points, torch.cat(normals, dim=1)


def _dot(vectors: Tensor, axis: Tensor) -> Tensor:
    return vectors[..., 0] * axis[..., 0] + vectors[..., 1] * axis[..., 1] + vectors[..., 2] * axis[..., 2]


def _ambient(around: Sky, points: Tensor, normals: Tensor) -> Tensor:
    """Light from the sky, and back from the ground, at each point (n,); 1 is what open level ground gets."""
    total = sum(direction[2] for direction in SKY)
    light = (1.0 - normals[2]) * (_BOUNCE / 2)
    for number, (x, y, z) in enumerate(SKY):
        facing = (normals[0] * x + normals[1] * y + normals[2] * z).clamp_(min=0.0)
        slope = (torch.tensor(x / z), torch.tensor(y / z))
        light = light + facing * arriving(around.maps, around.reach, number, slope, points, normals) * (1.0 / total)
    return light


def _ground(around: Sky, views: _Views, shaded: Tensor, size: int) -> Tensor:
    """What the ground alone looks like at the middle of each pixel: (2n, size, size) float32."""
    axes = torch.eye(3, dtype=torch.float64, device=shaded.device)
    down, across = _rays(views, axes, size, size)
    rays = [down[axis][:, :, None] + across[axis][:, None, :] for axis in range(3)]
    position = views.position.float()[:, :, None, None]
    distance = position[:, 2] / -rays[2].clamp(max=-1e-3)
    x, y = ((position[:, axis] + distance * rays[axis]) * (1.0 / around.reach) for axis in range(2))
    lamp = views.lamp.repeat_interleave(2)[:, None, None]
    hidden = []
    for maps, cells, number in ((shaded, CELLS, lamp), (around.hidden, DOME_CELLS, 0)):
        row, column = ((place + 1.0) * (cells / 2) - 0.5 for place in (y, x))
        hidden.append(blended(maps, number, row, column) * blurred_edge(row, column, cells))
    strength = views.strength.repeat_interleave(2, dim=0)[..., None, None]
    height = views.lights[:, 2].float().index_select(0, views.lamp).repeat_interleave(2)[:, None, None]
    return ((1.0 - hidden[0]) * (strength[:, 0] * height) + (1.0 - hidden[1]) * strength[:, 1]) * GROUND_ALBEDO

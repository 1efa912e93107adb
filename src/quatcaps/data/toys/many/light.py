"""What lamps reach, for many lamps at once: height maps as in `toys.shadows`, cut into tiles, and looking them up.

Everything is element by element with exactly rounded operations and no sums over dimensions, so that an image depends
neither on which others are rendered with it nor on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quatcaps.data.toys import camera
from quatcaps.data.toys.many.tiles import EDGE, Body, first_met, reached
from quatcaps.data.toys.shadows import features, on_ground, steps

CELLS = 120
"""Along each side of a lamp's height map."""
SKY_CELLS, DOME_CELLS = 60, 36

SKY = (
    *(camera.toward(72.0 * k + 20.0, 28.0) for k in range(5)),
    *(camera.toward(120.0 * k + 50.0, 65.0) for k in range(3)),
)
_DOME = tuple(camera.toward(30.0 * k + height, height) for height in (30.0, 50.0, 72.0) for k in range(12))
_LOWEST = min(lamp.height for lamp in camera.LAMPS)


@dataclass(frozen=True)
class Sky:
    """What the sky gives to a toy and to the ground around it, whatever the viewpoint."""

    reach: float  # half the side of the height maps
    maps: Tensor  # (sky lamps, SKY_CELLS²) float32
    hidden: Tensor  # (1, DOME_CELLS²) float32: the share of the sky that the ground does not see


def sky(body: Body) -> Sky:
    """Height maps of a toy for the lamps that make up the sky."""
    cosine, _, sine = camera.toward(0.0, _LOWEST)
    points = body.outlines.double()
    reach = 1.02 * float((points[..., :2].norm(dim=-1) + points[..., 2] * (cosine / sine)).max())
    dome = torch.tensor(_DOME, dtype=torch.float64, device=body.device)
    coarse = on_ground(height_maps(body, dome, reach, DOME_CELLS).view(-1, DOME_CELLS, DOME_CELLS))
    hidden, total = torch.zeros_like(coarse[0]), sum(direction[2] for direction in _DOME)
    for direction, layer in zip(_DOME, coarse, strict=True):
        hidden = hidden + layer * (direction[2] / total)
    lamps = torch.tensor(SKY, dtype=torch.float64, device=body.device)
    return Sky(reach, height_maps(body, lamps, reach, SKY_CELLS), hidden.reshape(1, -1))


def height_maps(body: Body, lights: Tensor, reach: float, cells: int = CELLS) -> Tensor:
    """Maps (lights, cells²) float32 for unit vectors to the lamps, lights (n, 3) float64; as `shadows.height_maps`."""
    count, lamps = cells // EDGE, len(lights)
    slope = (lights[:, :2] / lights[:, 2:]).float()
    places = body.outlines[:, None, :, :2] - body.outlines[:, None, :, 2:] * slope[:, None]
    places = places.flip(-1) * (cells / (2 * reach)) + cells / 2
    tiles = reached(places.amin(2).floor() - 1, places.amax(2).ceil() + 1, count)
    grid = steps(cells, reach).to(body.device)
    rows = body.rows
    across = (rows[:, 0:1] * grid).float().view(len(rows), 1, count, EDGE)
    down = (rows[:, 1:2] * grid + rows[:, 3:4]).float().view(len(rows), 1, count, EDGE)
    across, down = (part.expand(-1, lamps, -1, -1).reshape(len(rows), -1, EDGE) for part in (across, down))
    rates = -features(rows, lights).float().T
    first = first_met(body, tiles, lamps, count, rates, down, across)
    first = first.view(lamps, count, count, EDGE, EDGE).transpose(2, 3).reshape(lamps, -1)
    return (first * -lights[:, 2:].float()).clamp(min=0.0)


def looked_up(maps: Tensor, lamp: Tensor | int, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where places between cells lie in `maps`: the flat index of the upper left of four cells, and what the right and
    the lower ones weigh. row, column: in cells, of any shape; lamp: which map, of a shape that broadcasts."""
    cells = round(maps.shape[-1] ** 0.5)
    row, column = row.clamp(0.0, cells - 1.001), column.clamp(0.0, cells - 1.001)
    top, left = row.floor(), column.floor()
    index = (top * cells + left).to(torch.int32) + lamp * (cells * cells)
    return index, column - left, row - top


def blended(maps: Tensor, lamp: Tensor | int, row: Tensor, column: Tensor) -> Tensor:
    """The maps' values at places between cells, of the shape of row and column."""
    cells = round(maps.shape[-1] ** 0.5)
    index, right, lower = looked_up(maps, lamp, row, column)
    flat, index = maps.reshape(-1), index.reshape(-1)
    corners = [flat.index_select(0, index + step).view_as(row) for step in (0, 1, cells, cells + 1)]
    upper = corners[0] + (corners[1] - corners[0]) * right
    under = corners[2] + (corners[3] - corners[2]) * right
    return upper + (under - upper) * lower


def arriving(
    maps: Tensor, reach: float, lamp: Tensor | int, slope: tuple[Tensor, Tensor], points: Tensor, normals: Tensor
) -> Tensor:
    """The share of light that reaches each point (n,) float32: 0 in shadow, 1 out of it; as `shadows.visible`.

    points, normals: (3, n) float32. lamp: which map belongs to each point, int32 (n,), or to all; slope: by how much
    light moves in x and y for each unit of height, (n,) or ().
    """
    cells = round(maps.shape[-1] ** 0.5)
    cell = 2 * reach / cells
    x, y, z = points + normals * (1.2 * cell)
    middle = cells / 2 - 0.5
    column, row = (x - z * slope[0]) * (1.0 / cell) + middle, (y - z * slope[1]) * (1.0 / cell) + middle
    index, right, lower = looked_up(maps, lamp, row, column)
    flat, height = maps.reshape(-1), z * 60.0 + 1.6

    def free(step: int) -> Tensor:
        return (height - flat.index_select(0, index + step) * 60.0).clamp_(0.0, 1.0)

    upper, under = free(0), free(cells)
    upper = upper + (free(1) - upper) * right
    under = under + (free(cells + 1) - under) * right
    return upper + (under - upper) * lower


def shaded_ground(maps: Tensor) -> Tensor:
    """The share of its lamp's light that the ground does not get, same shape (lamps, cells²)."""
    cells = round(maps.shape[-1] ** 0.5)
    return on_ground(maps.view(-1, cells, cells)).reshape(len(maps), -1)


def blurred_edge(row: Tensor, column: Tensor, cells: int) -> Tensor:
    """1 where a place lies in the map, falling to 0 within a cell outside it."""
    inside = torch.ones_like(row)
    for place in (row, column):
        inside = inside * (place + 1.0).clamp(0.0, 1.0) * (cells - place).clamp(0.0, 1.0)
    return inside

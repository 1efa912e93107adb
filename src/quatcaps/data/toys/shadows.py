"""What light reaches: height maps over the ground plane, and what they tell of points and of the ground.

A height map belongs to one direction of light. Each of its cells is a point of the ground; the cell's value is the
height above the ground at which light on its way to that point is stopped, 0 where it arrives. A point of the toy is in
shadow if it lies lower than the map's value where its own line from the lamp meets the ground.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from quatcaps.data.toys.shapes import MISS, Solid

CELLS = 160
"""Along each side of a height map."""


def features(rows: Tensor, vectors: Tensor) -> Tensor:
    """rows (k, 3 or 4) · vectors (n, 3) without the constants: (n, k), in an order that does not depend on n."""
    return rows[:, 0] * vectors[:, 0:1] + rows[:, 1] * vectors[:, 1:2] + rows[:, 2] * vectors[:, 2:3]


def steps(count: int, half: float) -> Tensor:
    """The middles of `count` cells between -half and half, float64."""
    return (torch.arange(count, dtype=torch.float64) * 2 + (1 - count)) * (half / count)


def height_maps(solids: Sequence[Solid], lights: Tensor, reach: float, cells: int = CELLS) -> Tensor:
    """Maps (lights, cells, cells) float32 for unit vectors to the lamps, lights (n, 3) float64.

    Cell (i, j) is the ground point y = steps[i], x = steps[j], with steps between -reach and reach.
    """
    grid = steps(cells, reach)
    first = torch.full((len(lights), cells, cells), MISS, dtype=torch.float32)
    for solid in solids:
        across, along = _window(solid, lights, reach, cells)
        rows = solid.rows
        x = (rows[:, 0:1] * grid[across]).float()
        y = (rows[:, 1:2] * grid[along] + rows[:, 3:4]).float()[..., None]
        rates = -features(rows, lights).float()[:, :, None, None]
        count = range(len(rows))
        entry = solid.entry([y[k] + x[k] for k in count], [rates[:, k] for k in count])
        part = first[:, along, across]
        torch.minimum(part, entry, out=part)
    return (first * -lights[:, 2].float()[:, None, None]).clamp(min=0.0)


def _window(solid: Solid, lights: Tensor, reach: float, cells: int) -> list[slice]:
    """The columns and the rows of a map outside which the solid's bounding sphere casts no shadow."""
    center, radius = solid.sphere
    slope = lights[:, :2] / lights[:, 2:]
    middle = center[:2] - center[2] * slope
    half = radius * (1.0 + slope.abs())
    low = ((middle - half).amin(0) / reach + 1.0) * (cells / 2) - 1.0
    high = ((middle + half).amax(0) / reach + 1.0) * (cells / 2) + 1.0
    return [
        slice(max(math.floor(a), 0), max(math.ceil(b), 0)) for a, b in zip(low.tolist(), high.tolist(), strict=True)
    ]


def on_ground(maps: Tensor) -> Tensor:
    """The share of light that each cell of the ground does not get, same shape: 1 in shadow, softened at its edge."""
    shade = F.pad((maps * 40.0).clamp(max=1.0), (1, 1, 1, 1))
    rows = shade[:, :-2] + shade[:, 1:-1] + shade[:, 2:]
    return (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]) * (1.0 / 9.0)


def visible(maps: Tensor, reach: float, lights: Tensor, points: Tensor, normals: Tensor) -> Tensor:
    """The share of each light that reaches each point, (lights, n) float32: 0 in shadow, 1 out of it.

    points, normals: (3, n) float32 on the toy. The four cells around the point's place in the map are weighted by
    nearness. The point is first lifted off the surface by about a cell, so that the surface does not shade itself.
    """
    cells = maps.shape[-1]
    cell = 2 * reach / cells
    x, y, z = points + normals * (1.2 * cell)
    slope = (lights[:, :2] / lights[:, 2:]).float()
    middle = cells / 2 - 0.5
    column = ((x - z * slope[:, :1]) * (1.0 / cell) + middle).clamp(0.0, cells - 1.001)
    row = ((y - z * slope[:, 1:]) * (1.0 / cell) + middle).clamp(0.0, cells - 1.001)
    left, top = column.floor(), row.floor()
    right_share, lower_share = column - left, row - top
    index = (top * cells + left).to(torch.int32)
    index += torch.arange(len(maps), dtype=torch.int32)[:, None] * (cells * cells)
    index = index.view(-1)
    flat = maps.reshape(-1)
    height = (z * 60.0 + 1.6).expand(len(maps), -1)

    def free(step: int) -> Tensor:
        stopped = flat.index_select(0, index + step).view_as(column)
        return (height - stopped * 60.0).clamp(0.0, 1.0)

    upper, lower = free(0), free(cells)
    upper = upper + (free(1) - upper) * right_share
    lower = lower + (free(cells + 1) - lower) * right_share
    return upper + (lower - upper) * lower_share


def facing(lights: Tensor, normals: Tensor) -> Tensor:
    """Lambert's cosine between each light (k, 3) and each normal (3, n), not below 0: (k, n) float32."""
    x, y, z = lights.float().T[..., None]
    return (x * normals[0] + y * normals[1] + z * normals[2]).clamp(min=0.0)

"""Which squares of an image each solid can be seen in, and what lines through them meet first.

An image, or a height map, is cut into tiles of EDGE × EDGE samples. A solid is computed in the tiles that its outline
reaches and nowhere else, for all views of a toy at once: few operations on long tensors, which suits CPUs and CUDA.

Suffixes: V views (cameras or lamps), S solids, F features of all solids, K features of one, N tiles along a side, T
some tiles, E = EDGE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quatcaps.data.toys.catalogue import Toy
from quatcaps.data.toys.shapes import MISS, Ellipsoid, Solid

EDGE = 6
"""Samples along a tile's side: a multiple of the samples along a pixel's."""

TAGS = 64
"""More than any toy has solids: a solid's number rides in the low bits of its distance."""

_AT_ONCE = {"cpu": 2048}  # tiles: what fits in a core's cache
_ROUNDER = {True: 1.09, False: 1.04}  # how far a ball, or a cone, reaches beyond the hull of its outline's points


@dataclass(frozen=True)
class Body:
    """A toy's solids on a device."""

    solids: tuple[Solid, ...]
    rows: Tensor  # (F, 4) float64
    outlines: Tensor  # (S, points, 3) float32, whose hulls contain the solids
    radius: float  # how far the toy reaches from the axis it turns about
    look_at: float

    @property
    def device(self) -> torch.device:
        return self.rows.device


def body(toy: Toy, device: torch.device) -> Body:
    """Moves a toy's numbers to a device, all solids in two tensors."""
    most = max(len(solid.outline) for solid in toy.solids)
    outlines = []
    for solid in toy.solids:
        center = solid.sphere[0]
        wider = center + (solid.outline - center) * _ROUNDER[isinstance(solid, Ellipsoid)]
        outlines.append(wider[torch.arange(most) % len(wider)])
    rows = torch.cat([solid.rows for solid in toy.solids]).to(device)
    points = torch.stack(outlines)
    parts = rows.split([len(solid.rows) for solid in toy.solids])
    solids = tuple(replace(solid, rows=part) for solid, part in zip(toy.solids, parts, strict=True))
    radius = float(points[..., :2].norm(dim=-1).max())
    return Body(solids, rows, points.float().to(device), radius, toy.look_at)


def reached(low: Tensor, high: Tensor, count: int) -> list[Tensor]:
    """For each solid the tiles it may be seen in: numbers (v · N + row) · N + column, ascending, int64 (T,).

    low, high: (S, V, 2) the first and the last sample, row and column, that the solid reaches; N = count.
    """
    first = torch.arange(count, device=low.device) * EDGE
    rows, columns = ((low[..., axis, None] < first + EDGE) & (high[..., axis, None] >= first) for axis in (0, 1))
    mask = (rows[..., :, None] & columns[..., None, :]).flatten(1)
    found = mask.nonzero()[:, 1]
    return list(found.split(mask.sum(1).tolist()))


def _entries(
    body: Body, tiles: Sequence[Tensor], count: int, single: Tensor, down: Tensor, across: Tensor, *, origin: bool
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(solid, tiles (T,), where its lines enter (E · E, T)), some tiles at a time.

    single (F, V): what all lines of a view share; down (F, V · N, E) and across (F, V · N, E): what is added up for a
    row and a column. origin: whether lines share their origin (cameras), or else their direction (lamps).
    """
    offset = 0
    for number, solid in enumerate(body.solids):
        chosen = slice(offset, offset + len(solid.rows))
        offset += len(solid.rows)
        for some in tiles[number].split(_AT_ONCE.get(body.device.type, 1 << 18)):
            line = some.div(count, rounding_mode="floor")
            view = line.div(count, rounding_mode="floor")
            column = view * count + (some - line * count)
            # Tiles come last while solids are met: CPUs add rows and columns slowly along a short last dimension.
            shared = single[chosen].index_select(1, view)[:, None, None]
            rows = down[chosen].index_select(1, line).transpose(1, 2).contiguous()[:, :, None]
            columns = across[chosen].index_select(1, column).transpose(1, 2).contiguous()[:, None]
            each = list(rows + columns)
            base, rate = (list(shared), each) if origin else (each, list(shared))
            yield number, some, solid.entry(base, rate).view(EDGE * EDGE, -1)


def nearest(
    body: Body, tiles: Sequence[Tensor], views: int, count: int, single: Tensor, down: Tensor, across: Tensor
) -> Tensor:
    """What cameras see: (V · N · N, E · E) int32, the nearest distance with the solid's number in its low bits."""
    far = int(torch.tensor(MISS, dtype=torch.float32).view(torch.int32))
    found = torch.full((views * count * count, EDGE * EDGE), far, dtype=torch.int32, device=body.device)
    for number, some, entry in _entries(body, tiles, count, single, down, across, origin=True):
        # Positive floats sort like integers, so one minimum finds both the nearest distance and whose it is.
        tagged = entry.view(torch.int32).bitwise_and_(-TAGS).bitwise_or_(number)
        found.index_copy_(0, some, torch.minimum(tagged.T.contiguous(), found.index_select(0, some)))
    return found


def first_met(
    body: Body, tiles: Sequence[Tensor], views: int, count: int, single: Tensor, down: Tensor, across: Tensor
) -> Tensor:
    """What lamps meet: (V · N · N, E · E) float32, the smallest distance; MISS or more where there is nothing."""
    found = torch.full((views * count * count, EDGE * EDGE), MISS, dtype=torch.float32, device=body.device)
    for _, some, entry in _entries(body, tiles, count, single, down, across, origin=False):
        found.index_copy_(0, some, torch.minimum(entry.T.contiguous(), found.index_select(0, some)))
    return found

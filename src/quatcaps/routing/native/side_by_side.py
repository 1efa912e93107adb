"""The windows of all images side by side, as positions of one image.

The library takes the positions of one image for the lanes of its vectors. Where an image has few of them, most lanes
would stand idle: one position of 32. Positions do not know of each other, so the children that each sees may lie beside
those of all others: a window of one place over a grid of 1 × (images · positions), with as many child types as a window
holds children. That copies children once for every window that holds them.

Letters of shapes: N images, I child types, J parent types, D pose dimensions, H × W parent positions.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from quatcaps.routing.shapes import Shapes
from quatcaps.routing.window import Window

FEW = 16
"""Positions of an image below which they do not fill vectors."""


def pays(shapes: Shapes) -> bool:
    """Whether windows should lie side by side. Where all positions compete for a child they know of each other, and
    coordinates are those of places in a window."""
    down, across = shapes.grid
    return shapes.images > 1 and down * across < FEW and not (shapes.everywhere or shapes.window.coordinates)


def shapes_beside(shapes: Shapes) -> Shapes:
    """Of the one image."""
    return replace(
        shapes,
        images=1,
        children=shapes.inside,
        height=1,
        width=shapes.positions,
        window=Window(1, 1),
        competition="position",
    )


def children_beside(values: Tensor, shapes: Shapes) -> Tensor:
    """(N, I, …, height, width) → (1, places · I, …, 1, N H W)."""
    window = shapes.window
    seen = values.unfold(-2, window.height, window.stride).unfold(-2, window.width, window.stride)
    inner = tuple(range(1, values.ndim - 2))
    ordered = seen.permute(-2, -1, *inner, 0, values.ndim - 2, values.ndim - 1)  # places, I, …, N, H, W
    return ordered.reshape(1, shapes.inside, *values.shape[2:-2], 1, shapes.positions).contiguous()


def maps_beside(maps: Tensor, shapes: Shapes) -> Tensor:
    """(offsets, I, J, C, C) → (1, places · I, J, C, C)."""
    return maps.expand(shapes.window.places, *maps.shape[1:]).reshape(1, shapes.inside, *maps.shape[2:])


def parents_beside(values: Tensor) -> Tensor:
    """(N, J, …, H, W) → (1, J, …, 1, N H W)."""
    inner = tuple(range(1, values.ndim - 2))
    ordered = values.permute(*inner, 0, values.ndim - 2, values.ndim - 1)
    return ordered.reshape(1, *values.shape[1:-2], 1, -1)


def parents_apart(values: Tensor, shapes: Shapes) -> Tensor:
    """(1, J, …, 1, N H W) → (N, J, …, H, W), where it is in memory."""
    whole = values[0].reshape(*values.shape[1:-2], shapes.images, *shapes.grid)
    return whole.movedim(-3, 0)

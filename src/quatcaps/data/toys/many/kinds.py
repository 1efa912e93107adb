"""Kinds of toys by number: as many as one likes, each a pure function of its category, its number and a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from quatcaps.data.toys import camera
from quatcaps.data.toys.catalogue import CLASSES, Toy
from quatcaps.data.toys.many import airplanes, animals, cars, humans, trucks
from quatcaps.data.toys.many.draws import Draw
from quatcaps.data.toys.shapes import Solid
from quatcaps.errors import QuatcapsError

MOST = 20_000
"""Kinds a category that a split can have."""

FIRST = {"train": 0, "test": 1_000_000}
"""The number of a split's first kind. The ranges share no number, so no kind is in both."""

_BUILDERS: tuple[Callable[[Draw], list[Solid]], ...] = (
    animals.made, humans.made, airplanes.made, trucks.made, cars.made,
)  # fmt: skip


def kind(category: int, number: int, seed: int = 0) -> Toy:
    """Kind `number` of a category (0 … 4 as in CLASSES) under a seed: a body plan, proportions and parts, all drawn.

    It depends on nothing else: not on which other kinds are built, nor in what order. Training kinds are 0, 1, 2 …,
    test kinds 1,000,000, 1,000,001 …; in the classes of `toys` each is as different from the others as those are.

    All kinds face the same way: the front of the toy (face, nose, bonnet, cab) looks along +x, its left is +y. At
    azimuth 0° it faces the cameras, at 90° they see its left side, whatever the category; so an azimuth is the same
    orientation for every kind.
    """
    if not 0 <= category < len(CLASSES):
        raise QuatcapsError(f"category is {category}: give a number from 0 to {len(CLASSES) - 1}")
    if not any(first <= number < first + MOST for first in FIRST.values()):
        ranges = " or ".join(f"{first} … {first + MOST - 1} ({split})" for split, first in FIRST.items())
        raise QuatcapsError(f"kind number is {number}: give {ranges}")
    return fitted(_BUILDERS[category](Draw(seed, CLASSES[category], number)))


def numbers(split: str, count: int) -> range:
    """The numbers of the first `count` kinds of a split."""
    return range(FIRST[split], FIRST[split] + count)


def fitted(solids: Sequence[Solid]) -> Toy:
    """Centres the solids, stands them on the ground and scales them to fill the frame, as `catalogue.fitted` does.

    A point p appears a = |p · axis| to the side, at depth d + p · forward. Scaled by s it lies on the frame's edge
    where DISTANCE · s a = d + s p · forward, which needs no iteration.
    """
    outline = torch.cat([solid.outline for solid in solids])
    low, high = outline.amin(0), outline.amax(0)
    shift = torch.stack((-(low[0] + high[0]) / 2, -(low[1] + high[1]) / 2, -low[2]))
    centred = outline + shift
    centred[:, 2] -= (high[2] - low[2]) / 2
    forward, right, up, away = _frames()
    aside = torch.maximum(_along(centred, right).abs(), _along(centred, up).abs())
    scale = away / float((aside * camera.DISTANCE - _along(centred, forward)).max())
    radius = 1.06 * scale * float(centred.norm(dim=1).max())
    return Toy(tuple(solid.moved(shift, scale) for solid in solids), scale * float(high[2] - low[2]) / 2, radius)


def _along(points: Tensor, axes: Tensor) -> Tensor:
    """(n, 3) · (cameras, 3) → (n, cameras), term by term, so that no platform adds them up in another order."""
    x, y, z = points[:, :, None].unbind(1)
    return x * axes[:, 0] + y * axes[:, 1] + z * axes[:, 2]


@cache
def _frames() -> tuple[Tensor, Tensor, Tensor, float]:
    """Forward, right and up (108, 3) of cameras all around at three elevations, and how far away they are."""
    every = [camera.stereo(20.0 * k, (30.0, 50.0, 70.0), look_at=0.0) for k in range(18)]
    forward, right, up = (torch.cat([getattr(each, axis) for each in every]) for axis in ("forward", "right", "up"))
    return forward, right, up, float(every[0].position[0].norm())

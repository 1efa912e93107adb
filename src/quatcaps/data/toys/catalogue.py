"""The fifty toys: five categories of ten instances, in smallNORB's order and split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any, TypeVar

import torch
from torch import Tensor

from quatcaps.data.toys import airplanes, animals, camera, cars, humans, trucks
from quatcaps.data.toys.shapes import Solid

CLASSES = ("animal", "human", "airplane", "truck", "car")
INSTANCES = 10
SPLITS = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}
"""Which instances are for training and which for testing, as in smallNORB."""

_JITTER = 0.06
_FITTED = [(elevation, azimuth) for elevation in (30.0, 50.0, 70.0) for azimuth in range(0, 360, 20)]

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Toy:
    """Solids that stand on the ground z = 0, around the axis x = y = 0, sized to fill the frame."""

    solids: tuple[Solid, ...]
    look_at: float  # height at which the cameras look
    radius: float  # no point is farther from there

    def crop(self, side: int) -> int:
        """The side of the central square, of an image of `side` samples, outside which no ray meets the toy."""
        tangent = self.radius / math.sqrt(camera.DISTANCE**2 - self.radius**2)
        share = tangent * camera.DISTANCE / camera.HALF_FRAME
        return side - 2 * max(0, math.floor(side * (1.0 - share) / 2))


def toy(category: int, instance: int, seed: int) -> Toy:
    """Builds one toy; the seed varies its proportions."""
    random = Random(f"toys/{seed}/{category}/{instance}")
    solids: list[Solid]
    if category == 0:
        solids = animals.build(_varied(animals.KINDS[instance], random))
    elif category == 1:
        solids = humans.build(_varied(humans.KINDS[instance], random))
    elif category == 2:
        solids = airplanes.build(_varied(airplanes.KINDS[instance], random))
    elif category == 3:
        solids = trucks.build(_varied(trucks.KINDS[instance], random))
    else:
        solids = cars.build(_varied(cars.KINDS[instance], random))
    return fitted(solids)


def _varied(kind: Kind, random: Random) -> Kind:
    """The same kind with every length and angle changed by up to 6%."""
    changes: dict[str, Any] = {}
    for entry in fields(kind):  # type: ignore[arg-type]
        value = getattr(kind, entry.name)
        if isinstance(value, float):
            changes[entry.name] = value * random.uniform(1 - _JITTER, 1 + _JITTER)
        elif isinstance(value, tuple):
            changes[entry.name] = tuple(v * random.uniform(1 - _JITTER, 1 + _JITTER) for v in value)
    return replace(kind, **changes)  # type: ignore[type-var]


def fitted(solids: Sequence[Solid]) -> Toy:
    """Centres the solids, stands them on the ground and scales them so that they just fill the unit square.

    The unit is what camera.HALF_FRAME is measured in: the largest extent over the dataset's viewpoints becomes 1.
    """
    outline = torch.cat([solid.outline for solid in solids])
    low, high = outline.amin(0), outline.amax(0)
    shift = torch.stack((-(low[0] + high[0]) / 2, -(low[1] + high[1]) / 2, -low[2]))
    outline = outline + shift
    scale = 1.0
    for _ in range(4):
        scale = scale / _extent(outline * scale)
    middle = float(high[2] - low[2]) / 2 * scale
    away = outline * scale - torch.tensor([0.0, 0.0, middle], dtype=torch.float64)
    return Toy(tuple(solid.moved(shift, scale) for solid in solids), middle, 1.06 * float(away.norm(dim=1).max()))


def _extent(points: Tensor) -> float:
    """The farthest that any of the points (n, 3) appears from the image's centre, along either axis."""
    look_at = float(points[:, 2].max()) / 2
    largest = 0.0
    for elevation, azimuth in _FITTED:
        cameras = camera.stereo(float(azimuth), [elevation], look_at)
        for position, forward, right, up in zip(
            cameras.position, cameras.forward, cameras.right, cameras.up, strict=True
        ):
            ray = points - position
            depth = ray @ forward
            seen = torch.maximum((ray @ right).abs(), (ray @ up).abs()) / depth
            largest = max(largest, float(seen.max()) * camera.DISTANCE)
    return largest

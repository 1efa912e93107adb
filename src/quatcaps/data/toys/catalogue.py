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
_FITTED = (30.0, 50.0, 70.0)  # elevations, at 18 azimuths

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
    centred = outline + shift
    centred[:, 2] -= (high[2] - low[2]) / 2
    cameras = [camera.stereo(20.0 * k, _FITTED, look_at=0.0) for k in range(18)]
    scale = 1.0
    for _ in range(4):  # perspective makes the extent grow a little faster than the scale
        scale = scale / max(_extent(centred * scale, group) for group in cameras)
    radius = 1.06 * scale * float(centred.norm(dim=1).max())
    return Toy(tuple(solid.moved(shift, scale) for solid in solids), scale * float(high[2] - low[2]) / 2, radius)


def _extent(points: Tensor, cameras: camera.Cameras) -> float:
    """The farthest that any of the points (n, 3) appears from the image's centre, along either axis."""
    rays = points[:, None] - cameras.position
    depth = (rays * cameras.forward).sum(-1)
    across, up = (rays * cameras.right).sum(-1), (rays * cameras.up).sum(-1)
    return camera.DISTANCE * float((torch.maximum(across.abs(), up.abs()) / depth).max())

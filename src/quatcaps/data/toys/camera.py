"""Where the two cameras and the lamps stand.

The toy turns on its turntable in front of cameras and lamps that stay where they are, as in smallNORB: azimuth turns
the toy under the light, elevation raises both cameras. Everything is expressed in the toy's axes (x forward, y left,
z up), so a camera at azimuth 0° looks the toy in the face and one at 90° sees its left side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DISTANCE = 6.0
"""From the cameras to the point they look at, in units of half a toy's largest extent on the image."""

BASELINE = 0.7
"""Between the two cameras, in the same unit."""

HALF_FRAME = 24.0 / 17.5
"""Half the width of the frame where the toy stands: toys reach 17.5 of 24 pixels from the centre."""


@dataclass(frozen=True)
class Lamp:
    """A distant lamp. `bearing` degrees to the right of the cameras, `height` degrees above the ground."""

    bearing: float
    height: float
    key: float
    ambient: float


LAMPS = (
    Lamp(bearing=-65.0, height=48.0, key=0.95, ambient=0.28),
    Lamp(bearing=70.0, height=42.0, key=0.85, ambient=0.20),
    Lamp(bearing=140.0, height=46.0, key=1.00, ambient=0.34),
    Lamp(bearing=-150.0, height=52.0, key=0.60, ambient=0.30),
    Lamp(bearing=20.0, height=76.0, key=0.80, ambient=0.42),
    Lamp(bearing=-20.0, height=40.0, key=0.55, ambient=0.16),
)
"""The six lightings."""


@dataclass(frozen=True)
class Cameras:
    """Pinhole cameras, float64 (views, 3) each; pixel (x, y) looks along forward + x · right + y · up."""

    position: Tensor
    forward: Tensor
    right: Tensor
    up: Tensor


def stereo(azimuth: float, elevations: Sequence[float], look_at: float) -> Cameras:
    """Left and right cameras, in turn, for each elevation (degrees), looking at height `look_at` above the ground.

    Plain scalar arithmetic, so that a view's numbers do not depend on its companions.
    """
    table: list[list[tuple[float, float, float]]] = [[], [], [], []]
    ca, sa = _cosine_sine(azimuth)
    for elevation in elevations:
        ce, se = _cosine_sine(elevation)
        for side in (-BASELINE / 2, BASELINE / 2):
            x = DISTANCE * ce * ca - side * sa
            y = DISTANCE * ce * sa + side * ca
            z = DISTANCE * se
            length = math.sqrt(DISTANCE**2 + side**2)
            fx, fy, fz = -x / length, -y / length, -z / length
            ux, uy, uz = -se * ca, -se * sa, ce
            right = (fy * uz - fz * uy, fz * ux - fx * uz, fx * uy - fy * ux)
            for column, vector in zip(table, ((x, y, z + look_at), (fx, fy, fz), right, (ux, uy, uz)), strict=True):
                column.append(vector)
    position, forward, right_hand, up = (torch.tensor(column, dtype=torch.float64) for column in table)
    return Cameras(position, forward, right_hand, up)


def directions(azimuth: float, lightings: Sequence[int]) -> Tensor:
    """Unit vectors (lights, 3) float64 from the toy to its lamps, when the cameras stand at `azimuth` degrees."""
    return torch.tensor([toward(azimuth + LAMPS[k].bearing, LAMPS[k].height) for k in lightings], dtype=torch.float64)


def toward(azimuth: float, height: float) -> tuple[float, float, float]:
    """The unit vector to something seen at `azimuth` and `height` degrees from the toy."""
    ca, sa = _cosine_sine(azimuth)
    ch, sh = _cosine_sine(height)
    return (ch * ca, ch * sa, sh)


def _cosine_sine(degrees: float) -> tuple[float, float]:
    """Of an angle reduced to one turn first, so that 360° more gives the same bytes."""
    angle = math.radians(degrees % 360.0)
    return (math.cos(angle), math.sin(angle))

"""The toys that the explorer shows: test kinds of `toys-many`, from any viewpoint."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from quatcaps.data.toys import many
from quatcaps.data.toys.camera import LAMPS
from quatcaps.data.toys.catalogue import CLASSES
from quatcaps.data.toys.many.renderer import Stage, draw_on, stage
from quatcaps.data.viewpoints import orientation
from quatcaps.errors import QuatcapsError

PIXELS = 96
"""Of the picture that people see; a network is given one of its own size."""
FRAME = 48
"""Side of the picture in the page's units, whatever its pixels: places on it are told in these."""
LOWEST, HIGHEST = 0.0, 90.0
"""Degrees of elevation that can be drawn."""
TRAINED = (30.0, 70.0)
"""Those that networks are trained on."""


@dataclass(frozen=True)
class View:
    """A toy from somewhere: category and kind count from 0, angles are in degrees."""

    category: int = 0
    kind: int = 0
    azimuth: float = 30.0
    elevation: float = 40.0
    lighting: int = 0

    def __post_init__(self) -> None:
        for name, value, count in (
            ("category", self.category, len(CLASSES)),
            ("kind", self.kind, many.TEST_KINDS),
            ("lighting", self.lighting, len(LAMPS)),
        ):
            if not 0 <= value < count:
                raise QuatcapsError(f"{name} is {value}: give a number from 0 to {count - 1}")
        if not math.isfinite(self.azimuth):
            raise QuatcapsError(f"azimuth is {self.azimuth}: give degrees, any finite number")
        if not LOWEST <= self.elevation <= HIGHEST:
            raise QuatcapsError(f"elevation is {self.elevation}: give degrees from {LOWEST:g} to {HIGHEST:g}")

    @property
    def rotor(self) -> list[float]:
        """The orientation in which the toy is seen."""
        angles = torch.tensor([self.azimuth, self.elevation], dtype=torch.float64)
        return [float(number) for number in orientation(*angles)]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "orientation": self.rotor}


@lru_cache(maxsize=32)
def on_stage(category: int, kind: int) -> Stage:
    """A toy, ready to be drawn."""
    return stage(many.kind(category, many.FIRST["test"] + kind))


def drawn(views: list[View], sizes: Iterable[int]) -> dict[int, Tensor]:
    """By size, stereo pairs (N, 2, size, size) uint8 of one toy. A thread for each size: one picture keeps no more than
    a core busy."""
    if len({(view.category, view.kind) for view in views}) != 1:
        raise QuatcapsError("views of several toys: they are drawn one toy at a time")
    viewpoints = [(view.azimuth, view.elevation, view.lighting) for view in views]
    toy, wanted = on_stage(views[0].category, views[0].kind), list(dict.fromkeys(sizes))
    with ThreadPoolExecutor(len(wanted)) as pool:
        return dict(zip(wanted, pool.map(lambda size: draw_on(toy, viewpoints, size), wanted), strict=True))


def data_address(pixels: Tensor) -> str:
    """(H, W) uint8 → data:image/png;base64,…"""
    buffer = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def catalogue() -> dict[str, Any]:
    """What there is to choose."""
    return {
        "categories": list(CLASSES),
        "kinds": many.TEST_KINDS,
        "lightings": len(LAMPS),
        "size": FRAME,
        "elevation": {"lowest": LOWEST, "highest": HIGHEST, "trained": list(TRAINED)},
    }

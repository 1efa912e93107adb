"""The sizes of one layer's routing, and how they travel to an operator."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from torch import Tensor

from quatcaps.quaternion import right_embedding
from quatcaps.routing.window import COORDINATE_RULES, Window

COMPETITIONS = ("position", "all", "all-later")
"""Who shares a child: the parent types at one position, or all parents at all positions that see it; or at first, while
the assignments are uniform, the parent types at each position by themselves, and all parents from then on."""


@dataclass(frozen=True)
class Shapes:
    """Of children, maps and parents; a pose has `dims` numbers in rows of `columns`. `log_floor`: see `Votes`."""

    images: int
    children: int
    dims: int
    height: int
    width: int
    parents: int
    columns: int
    window: Window
    competition: str = "position"
    log_floor: float = -math.inf

    @staticmethod
    def of(
        poses: Tensor, maps: Tensor, window: Window, competition: str = "position", log_floor: float = -math.inf
    ) -> Shapes:
        """From poses (N, I, D, height, width) and maps (offsets, I, J, C, C), or quaternions (offsets, I, J, 4)."""
        images, children, dims, height, width = poses.shape
        sizes = (images, children, dims, height, width, maps.shape[2], maps.shape[-1])
        return Shapes(*sizes, window, competition, log_floor)

    @property
    def rows(self) -> int:
        """Of a pose."""
        return self.dims // self.columns

    @property
    def grid(self) -> tuple[int, int]:
        """Parent positions over an image; raises where the window does not fit."""
        return self.window.positions(self.height, self.width)

    @property
    def positions(self) -> int:
        """Parent positions of all images."""
        return self.images * self.grid[0] * self.grid[1]

    @property
    def inside(self) -> int:
        """Children in a window."""
        return self.window.places * self.children

    @property
    def votes(self) -> int:
        return self.positions * self.inside * self.parents

    @property
    def everywhere(self) -> bool:
        """Whether all positions that see a child compete for it, and there may be more than one."""
        return self.competition != "position" and self.grid != (1, 1)

    @property
    def spread(self) -> bool:
        """Whether they do so already under uniform assignments."""
        return self.competition == "all" and self.grid != (1, 1)


def matrices(maps: Tensor) -> Tensor:
    """Maps as matrices (offsets, I, J, C, C); quaternions (offsets, I, J, 4) as what they do from the right."""
    return right_embedding(maps) if maps.ndim == 4 else maps


def pack(window: Window, competition: str, log_floor: float = -math.inf) -> list[int]:
    """As numbers, which is what an operator can take; the floor by its bits."""
    rule = COORDINATE_RULES.index(window.coordinate_rule)
    flags = (int(window.shared), int(window.coordinates), rule, COMPETITIONS.index(competition))
    return [window.height, window.width, window.stride, *flags, *struct.unpack("<q", struct.pack("<d", log_floor))]


def unpack(numbers: list[int]) -> tuple[Window, str, float]:
    height, width, stride, shared, coordinates, rule, competition, floor = numbers
    window = Window(height, width, stride, bool(shared), bool(coordinates), COORDINATE_RULES[rule])
    (log_floor,) = struct.unpack("<d", struct.pack("<q", floor))
    return window, COMPETITIONS[competition], log_floor

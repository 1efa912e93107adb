"""How the work of a block is cut into programs: by its sizes alone, so that sums have one order everywhere."""

from __future__ import annotations

import math
from typing import NamedTuple

NO_SHORTCUT, CONVOLVED, PLAIN = 0, 1, 2
PROGRAMS = 256
"""About as many as fill a GPU."""
MOST_IN_TILE, LEAST_IN_TILE = 128, 16
ALONG = 64
"""Positions that the sum for the weights takes at once."""
LEAST_ALONE = 12
"""Channels from which on a place in a window is a part of its own."""
WASTE = 4 / 3
"""A larger tile may multiply so many more zeros than a smaller one."""


TILE, TILE_WEIGHTS, TILE_SPLITS = 1024, 64, 16
"""Numbers that programs of elementwise kernels take; weights, and splits of them, where these are added."""
TILE_PARTS, TILE_CHANNELS = 256, 8
"""Of moments of tiles that are put together."""


class Sizes(NamedTuple):
    """Of one convolution; whether what it reads is normalised, or rectified alone; and of the shortcut that ends where
    it ends (forward) or begins where it begins (backward): BESIDE are the channels at its other end."""

    HEIGHT: int
    WIDTH: int
    IN: int
    OUT_HEIGHT: int
    OUT_WIDTH: int
    OUT: int
    KERNEL: int
    STRIDE: int
    NORMALISED: bool = True
    BIASED: bool = False
    SHORTCUT: int = NO_SHORTCUT
    BESIDE: int = 1
    BESIDE_HEIGHT: int = 1
    BESIDE_WIDTH: int = 1
    BESIDE_STRIDE: int = 1

    @property
    def whole_rows(self) -> bool:
        """Whether a window is read by rows, not by places."""
        return self.IN < LEAST_ALONE

    @property
    def length(self) -> int:
        """Numbers that lie side by side: of a row of a window, or of one place in it."""
        return self.KERNEL * self.IN if self.whole_rows else self.IN

    def steps(self, chunk: int) -> int:
        """Parts of a window."""
        places = self.KERNEL if self.whole_rows else self.KERNEL**2
        return places * math.ceil(self.length / chunk)

    @property
    def weights(self) -> int:
        return self.KERNEL**2 * self.IN * self.OUT


def power_of_two(number: int) -> int:
    """The smallest one that is not below, and not below 16, which a product of tiles needs."""
    return max(16, 1 << (number - 1).bit_length())


def tile_of(positions: int) -> int:
    """Positions of one program."""
    return min(MOST_IN_TILE, max(LEAST_IN_TILE, power_of_two(math.ceil(positions / PROGRAMS))))


def stages_of(tile: int) -> int:
    """Loads ahead: few threads wait long, many hide it from each other."""
    return 1 if tile >= 64 else 3


def chunk_of(length: int) -> int:
    """Numbers that are multiplied at once, of a row of so many: the largest part that wastes little."""
    parts = (64, 32, 16)
    least = min(padded(length, part) for part in parts)
    return next(part for part in parts if padded(length, part) <= WASTE * least)


def padded(length: int, part: int) -> int:
    return math.ceil(length / part) * part


class Split(NamedTuple):
    """How the sum for weights is cut: by rows of the weights, and by positions."""

    chunk: int
    chunks: int
    splits: int
    per_program: int


def split_of(sizes: Sizes, positions: int) -> Split:
    chunk = chunk_of(sizes.length)
    chunks = sizes.steps(chunk)
    splits = max(1, min(2 * PROGRAMS // chunks, positions // (2 * ALONG)))
    per_program = padded(math.ceil(positions / splits), ALONG)
    return Split(chunk, chunks, math.ceil(positions / per_program), per_program)

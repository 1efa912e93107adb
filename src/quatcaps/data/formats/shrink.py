"""Smaller images by block means, in whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from quatcaps.data.formats.streams import Bytes
from quatcaps.errors import QuatcapsError

Progress = Callable[[int, int], None]
"""Called with the images done and the images there are."""


def check_size(size: int, side: int) -> None:
    """Raises unless images of `side` × `side` pixels can be shrunk to `size` × `size`.

    >>> check_size(40, 96)
    Traceback (most recent call last):
    quatcaps.errors.QuatcapsError: size is 40: images of 96×96 shrink to 96, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1 only
    """
    if size < 1 or side % size:
        divisors = ", ".join(str(side // factor) for factor in range(1, side + 1) if side % factor == 0)
        raise QuatcapsError(f"size is {size}: images of {side}×{side} shrink to {divisors} only")


def shrink(images: Bytes, size: int) -> Bytes:
    """Means over blocks, halves rounded up: images (N, channels, side, side) → (N, channels, size, size), uint8.

    >>> shrink(np.array([[[[1, 2], [2, 1]]]], dtype=np.uint8), 1).item()
    2
    """
    side = images.shape[-1]
    check_size(size, side)
    factor = side // size
    if factor == 1:
        return images
    # Strided sums: many times faster than numpy's sum over short axes.
    rows = images[:, :, 0::factor].astype(np.uint32)
    for offset in range(1, factor):
        rows += images[:, :, offset::factor]
    total = rows[..., 0::factor].copy()
    for offset in range(1, factor):
        total += rows[..., offset::factor]
    total += factor**2 // 2
    total //= factor**2
    return total.astype(np.uint8)


def gather(blocks: Iterable[Bytes], count: int, channels: int, size: int, progress: Progress | None = None) -> Bytes:
    """Images from blocks (some, channels, side, side), each shrunk as it comes: (count, channels, size, size)."""
    images = np.empty((count, channels, size, size), dtype=np.uint8)
    done = 0
    for block in blocks:
        images[done : done + len(block)] = shrink(block, size)
        done += len(block)
        if progress is not None:
            progress(done, count)
    return images

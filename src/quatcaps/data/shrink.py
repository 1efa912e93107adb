"""Smaller images by means over areas, in whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from quatcaps.data.formats.reader import Bytes
from quatcaps.errors import QuatcapsError

Progress = Callable[[int, int], None]
"""Called with the images done and the images there are."""


def check_size(size: int, side: int) -> None:
    """Raises unless images of `side` × `side` pixels can be shrunk to `size` × `size`.

    >>> check_size(120, 96)
    Traceback (most recent call last):
    quatcaps.errors.QuatcapsError: size is 120: images of 96×96 only shrink, to sizes from 1 to 96
    """
    if not 1 <= size <= side:
        raise QuatcapsError(f"size is {size}: images of {side}×{side} only shrink, to sizes from 1 to {side}")


def shrink(images: Bytes, size: int) -> Bytes:
    """Means over areas, halves rounded up: images (N, channels, side, side) → (N, channels, size, size), uint8.

    >>> shrink(np.array([[[[1, 2], [2, 1]]]], dtype=np.uint8), 1).item()
    2
    """
    side = images.shape[-1]
    check_size(size, side)
    if size == side:
        return images
    total = block_sums(images, side // size) if side % size == 0 else area_sums(images, size)
    area = (side // size) ** 2 if side % size == 0 else side**2
    return ((total + area // 2) // area).astype(np.uint8)


def block_sums(images: Bytes, factor: int) -> NDArray[np.uint32]:
    """Sums over blocks of factor × factor pixels: strided, many times faster than numpy's sum over short axes."""
    rows = images[:, :, 0::factor].astype(np.uint32)
    for offset in range(1, factor):
        rows += images[:, :, offset::factor]
    total = rows[..., 0::factor].copy()
    for offset in range(1, factor):
        total += rows[..., offset::factor]
    return total


def area_sums(images: Bytes, size: int) -> NDArray[np.int64]:
    """Sums over areas of side/size × side/size pixels, in units of the size²-th part of a pixel.

    In units of the side · size-th part of the image, pixel i begins at i · size and area o at o · side.
    """
    side = images.shape[-1]
    pixel, area = np.arange(side) * size, np.arange(size)[:, None] * side
    overlap = np.minimum(pixel + size, area + side) - np.maximum(pixel, area)
    weights = np.maximum(overlap, 0).astype(np.float64)  # whole numbers, as are all sums below 2^53
    return (weights @ images.astype(np.float64) @ weights.T).astype(np.int64)


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

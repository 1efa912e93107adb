"""Checks of the images that a network is given."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from quatcaps.errors import QuatcapsError


def check_images(images: Tensor, channels: int, least: int, description: str) -> None:
    """Raises unless `images` are floats of shape (N, channels, at least `least`, at least `least`)."""
    if images.ndim != 4 or images.shape[1] != channels:
        raise QuatcapsError(
            f"images have shape {tuple(images.shape)}: this network takes (N, {channels} channels, height, width)"
        )
    if not images.is_floating_point():
        raise QuatcapsError(f"images are {images.dtype}: give floating-point values, standardised as in training")
    height, width = images.shape[2:]
    if min(height, width) < least:
        raise QuatcapsError(f"input {height}×{width} is too small for {description}: at least {least}×{least}")


def least_size(stride: int, windows: Sequence[tuple[int, int]]) -> int:
    """The smallest image side that leaves one position after windows of (kernel, stride) each, behind a trunk
    that maps a side of n to ⌈n/stride⌉."""
    side = 1
    for kernel, step in reversed(windows):
        side = (side - 1) * step + kernel
    return (side - 1) * stride + 1

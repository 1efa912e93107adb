"""Checks of the images that a network is given, and of its two ends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from quatcaps.errors import QuatcapsError


def check_ends(channels: int, classes: int) -> None:
    """Raises unless a network of so many channels and classes can classify something."""
    for what, count, least in (("channels", channels, 1), ("classes", classes, 2)):
        if count < least:
            raise QuatcapsError(f"a network with {count} {what}: at least {least} are needed")


def check_size(images: Tensor, least: int, description: str) -> None:
    """Raises unless `images` are at least `least` pixels high and wide."""
    height, width = images.shape[2:]
    if min(height, width) < least:
        raise QuatcapsError(f"input {height}×{width} is too small for {description}: at least {least}×{least}")


def check_images(images: Tensor, channels: int, weights: Tensor) -> None:
    """Raises unless `images` are (N, channels, height, width) of the dtype that `weights` have."""
    if images.ndim != 4 or images.shape[1] != channels:
        raise QuatcapsError(
            f"images have shape {tuple(images.shape)}: this network takes (N, {channels} channels, height, width)"
        )
    if not images.is_floating_point():
        raise QuatcapsError(f"images are {images.dtype}: give floating-point values, standardised as in training")
    if images.dtype != weights.dtype and not autocasts(images.device):
        raise QuatcapsError(
            f"images are {images.dtype} and the weights {weights.dtype}: convert one of them, or use autocast"
        )


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on; some devices, such as `meta`, have none."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def least_size(stride: int, windows: Sequence[tuple[int, int]]) -> int:
    """The smallest image side that leaves one position after windows of (kernel, stride) each, behind a trunk
    that maps a side of n to ⌈n/stride⌉."""
    side = 1
    for kernel, step in reversed(windows):
        side = (side - 1) * step + kernel
    return (side - 1) * stride + 1

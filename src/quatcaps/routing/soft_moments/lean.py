"""Moments without votes in memory, in plain PyTorch."""

from __future__ import annotations

from torch import Tensor

from quatcaps.routing.soft_moments import reference
from quatcaps.routing.window import Window


def refuses(poses: Tensor, maps: Tensor, competition: str) -> str | None:
    """Why this backend cannot, or None."""
    if competition != "position":
        return f"shares a child among the parents at one position, not by competition {competition!r}"
    return None


def bind(poses: Tensor, activations: Tensor, maps: Tensor, window: Window, *, competition: str):
    return reference.bind(poses, activations, maps, window, competition=competition)

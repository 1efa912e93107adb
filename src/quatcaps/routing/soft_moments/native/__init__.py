"""Moments by a small C library, compiled on first use: votes are formed in a CPU's registers, and never leave its
caches."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from quatcaps.routing.soft_moments.layout import pack
from quatcaps.routing.soft_moments.moments import Moments, Parents
from quatcaps.routing.soft_moments.native import build, operators
from quatcaps.routing.window import Window

MOST_DIMS, MOST_COLUMNS = 16, 4


def refuses(poses: Tensor, maps: Tensor, competition: str) -> str | None:
    """Why this backend cannot, or None; the first question whether it can compiles the library."""
    if competition != "position":
        return f"shares a child among the parents at one position, not by competition {competition!r}"
    if poses.device.type != "cpu":
        return f"runs on a CPU, not on {poses.device.type}"
    if poses.dtype not in (torch.float32, torch.float64):
        return f"computes in float32 or float64, not {str(poses.dtype).removeprefix('torch.')}"
    dims, columns = poses.shape[2], maps.shape[-1]
    if dims > MOST_DIMS or columns > MOST_COLUMNS:
        return f"holds poses of at most {MOST_DIMS} numbers in {MOST_COLUMNS} columns, not {dims} in {columns}"
    return build.problem(poses.dtype, dims // columns, columns)


def bind(
    poses: Float[Tensor, "N I D height width"],
    activations: Float[Tensor, "N I height width"],
    maps: Float[Tensor, "offsets I J C C"],
    window: Window,
    *,
    competition: str,
) -> NativeVotes:
    """The votes of a layer, to be formed by the library."""
    return NativeVotes(poses.contiguous(), activations.contiguous(), maps.contiguous(), window)


class NativeVotes:
    """Children and maps, and the moments of their votes under given parents."""

    def __init__(self, poses: Tensor, activations: Tensor, maps: Tensor, window: Window) -> None:
        window.positions(*poses.shape[-2:])  # raises where the window does not fit
        self.children, self.window = (poses, activations, maps), pack(window)
        self.inside = window.places * poses.shape[1]

    def __call__(self, parents: Parents | None) -> Moments:
        if parents is None:
            return Moments(*operators.uniform_moments(*self.children, self.window))
        inputs = (*self.children, *(values.contiguous() for values in parents))
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        mass, first, second, _ = operators.moments(*inputs, keep, self.window)
        return Moments(parents.centre, mass, first, second)

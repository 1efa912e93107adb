"""Moments by the fused Triton kernels: the votes are formed in registers, and never leave them."""

from __future__ import annotations

import torch
from torch import Tensor

from quatcaps.accelerator import unavailable
from quatcaps.routing.soft_moments.fused import operators
from quatcaps.routing.soft_moments.fused.plan import Shapes
from quatcaps.routing.soft_moments.layout import children_first, children_last, pack
from quatcaps.routing.soft_moments.moments import Moments, Parents
from quatcaps.routing.window import Window

MOST_PARENTS, MOST_DIMS, MOST_COLUMNS = 1024, 16, 4


def refuses(poses: Tensor, maps: Tensor, competition: str) -> str | None:
    """Why this backend cannot, or None."""
    if competition != "position":
        return f"shares a child among the parents at one position, not by competition {competition!r}"
    if poses.dtype != torch.float32:
        return f"computes in float32, not {str(poses.dtype).removeprefix('torch.')}"
    dims, parents, columns = poses.shape[2], maps.shape[2], maps.shape[-1]
    if parents > MOST_PARENTS:
        return f"holds at most {MOST_PARENTS} parent types, not {parents}"
    if dims > MOST_DIMS or columns > MOST_COLUMNS:
        return f"holds poses of at most {MOST_DIMS} numbers in {MOST_COLUMNS} columns, not {dims} in {columns}"
    images, height, width = poses.shape[0], *poses.shape[3:]
    if images * height * width * (4 * dims + 2) * parents >= 2**31:
        return f"counts what it knows of parents with 31 bits, too few for a batch of {images}"
    return unavailable(poses.device)


def bind(poses: Tensor, activations: Tensor, maps: Tensor, window: Window, *, competition: str) -> FusedVotes:
    """The votes of a layer, to be recomputed by the kernels."""
    if Shapes.of(poses, maps, window).wide:
        poses, activations = (children_first(children_last(values)) for values in (poses, activations))
    else:
        poses, activations = poses.contiguous(), activations.contiguous()
    return FusedVotes(poses, activations, maps, window)


class FusedVotes:
    """Votes that are never held.

    The first iteration, with uniform assignments, and the second share one backward pass over the children: the second
    hands what it knows to the first, as the gradient of the first one's `slots`, outputs that hold nothing.
    """

    fused = True

    def __init__(self, poses: Tensor, activations: Tensor, maps: Tensor, window: Window) -> None:
        self.children, self.window = (poses, activations, maps), pack(window)
        self.inside = window.places * poses.shape[1]
        self.slots: tuple[Tensor | None, ...] = (None, None, None)

    def __call__(self, parents: Parents | None) -> Moments:
        if parents is None:
            centre, mass, first, second, *self.slots = operators.uniform_moments(*self.children, self.window)
            return Moments(centre, mass, first, second)
        keep, slots = torch.is_grad_enabled(), self.slots
        self.slots = (None, None, None)  # a gradient handed over twice would be added up
        mass, first, second, _ = operators.moments(*self.children, *parents, *slots, keep, self.window)
        return Moments(parents.centre, mass, first, second)

"""Moments by the fused Triton kernels: the votes are formed in registers, and never leave them."""

from __future__ import annotations

import torch
from torch import Tensor

from quatcaps.accelerator import unavailable
from quatcaps.routing.moments import Moments, Parents
from quatcaps.routing.shapes import Shapes, matrices, pack
from quatcaps.routing.triton import operators
from quatcaps.routing.triton.children import within
from quatcaps.routing.triton.layout import as_children, as_maps, laid_children, laid_maps
from quatcaps.routing.triton.plan import MOST_NARROW

__all__ = ["FusedVotes", "bind", "refuses", "within"]

MOST_PARENTS, MOST_DIMS, MOST_COLUMNS = 1024, 16, 4
MOST_SHARED = 4
"""Weighted sums that share one pass over the children."""


def refuses(shapes: Shapes, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why this backend cannot, or None."""
    if dtype != torch.float32:
        return f"computes in float32, not {str(dtype).removeprefix('torch.')}"
    dims, parents, columns = shapes.dims, shapes.parents, shapes.columns
    if parents > MOST_PARENTS:
        return f"holds at most {MOST_PARENTS} parent types, not {parents}"
    if dims > MOST_DIMS or columns > MOST_COLUMNS:
        return f"holds poses of at most {MOST_DIMS} numbers in {MOST_COLUMNS} columns, not {dims} in {columns}"
    if shapes.positions * (4 * dims + 2) * parents >= 2**31:
        return f"counts what it knows of parents with 31 bits, too few for a batch of {shapes.images}"
    return unavailable(device)


def bind(poses: Tensor, activations: Tensor, maps: Tensor, shapes: Shapes, iterations: int = 1) -> FusedVotes:
    """The votes of a layer, to be recomputed by the kernels, laid out in memory as they read them."""
    wide = shapes.dims > MOST_NARROW
    maps = matrices(maps) if wide else maps
    poses, activations = (as_children(laid_children(values, wide), wide) for values in (poses, activations))
    return FusedVotes(poses, activations, as_maps(laid_maps(maps, wide), wide), shapes, iterations)


class FusedVotes:
    """Votes that are never held.

    All sums share one backward pass over the children: a gate, recorded in the gradient mode of whoever makes the
    votes, gives each its slots; see `operators`. Sums beyond the number that was announced have passes of their own.
    """

    backend = "triton"

    def __init__(self, poses: Tensor, activations: Tensor, maps: Tensor, shapes: Shapes, iterations: int = 1) -> None:
        children = (poses, activations, maps)
        self.children = tuple(values.detach() for values in children)
        self.layer, self.inside = pack(shapes.window, shapes.competition, shapes.log_floor), shapes.inside
        self.recorded = torch.is_grad_enabled() and any(values.requires_grad for values in children)
        self.with_gradient = children if self.recorded else self.children
        self.free: list[list[Tensor]] = []
        self.uniform_slots: list[Tensor] = []
        if self.recorded:
            weighted = min(MOST_SHARED, max(0, iterations - 1))
            slots = operators.gate(*children, weighted, self.layer)
            self.uniform_slots = slots[:4]
            self.free = [slots[k : k + 3] for k in range(4, len(slots), 3)]

    def uniform(self) -> Moments:
        slots, children = [], self.with_gradient
        if self.uniform_slots and torch.is_grad_enabled():
            slots, self.uniform_slots, children = self.uniform_slots, [], self.children
        return Moments(*operators.uniform_moments(*children, slots, self.layer))

    def under(self, parents: Parents) -> Moments:
        keep, slots, children = torch.is_grad_enabled(), [], self.with_gradient
        if self.free and keep:
            slots, children = self.free.pop(0), self.children
        mass, first, second, _ = operators.moments(*children, *parents, slots, keep, self.layer)
        return Moments(parents.centre, mass, first, second)

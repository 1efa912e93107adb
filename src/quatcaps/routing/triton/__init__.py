"""Moments by the fused Triton kernels: the votes are formed in registers, and never leave them."""

from __future__ import annotations

import torch
from torch import Tensor

from quatcaps.accelerator import unavailable
from quatcaps.routing.moments import Moments, Parents
from quatcaps.routing.shapes import Shapes, pack
from quatcaps.routing.triton import operators
from quatcaps.routing.triton.layout import children_first, children_last

MOST_PARENTS, MOST_DIMS, MOST_COLUMNS = 1024, 16, 4


def refuses(shapes: Shapes, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why this backend cannot, or None."""
    if shapes.everywhere:
        return f"shares a child among the parents at one position, not by competition {shapes.competition!r}"
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
    """The votes of a layer, to be recomputed by the kernels."""
    if shapes.dims > 4:
        poses, activations = (children_first(children_last(values)) for values in (poses, activations))
    else:
        poses, activations = poses.contiguous(), activations.contiguous()
    return FusedVotes(poses, activations, maps, shapes)


class FusedVotes:
    backend = "triton"

    def __init__(self, poses: Tensor, activations: Tensor, maps: Tensor, shapes: Shapes) -> None:
        recorded = torch.is_grad_enabled()
        self.children = tuple(values if recorded else values.detach() for values in (poses, activations, maps))
        self.layer, self.inside = pack(shapes.window, shapes.competition), shapes.inside

    def uniform(self) -> Moments:
        centre, mass, first, second, *_ = operators.uniform_moments(*self.children, self.layer)
        return Moments(centre, mass, first, second)

    def under(self, parents: Parents) -> Moments:
        keep = torch.is_grad_enabled()
        mass, first, second, _ = operators.moments(*self.children, *parents, None, None, None, keep, self.layer)
        return Moments(parents.centre, mass, first, second)

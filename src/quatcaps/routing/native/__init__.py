"""Moments by a small C library, compiled on first use: votes are formed in a CPU's registers, and never leave its
caches."""

from __future__ import annotations

import torch
from torch import Tensor

from quatcaps.routing.moments import Moments, Parents
from quatcaps.routing.native import build, operators
from quatcaps.routing.shapes import Shapes, pack

MOST_DIMS, MOST_COLUMNS = 16, 4


def refuses(shapes: Shapes, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why this backend cannot, or None; the first question whether it can compiles the library."""
    if shapes.everywhere:
        return f"shares a child among the parents at one position, not by competition {shapes.competition!r}"
    if shapes.window.coordinates:
        return "has no coordinates"
    if device.type != "cpu":
        return f"runs on a CPU, not on {device.type}"
    if dtype not in (torch.float32, torch.float64):
        return f"computes in float32 or float64, not {str(dtype).removeprefix('torch.')}"
    dims, columns = shapes.dims, shapes.columns
    if dims > MOST_DIMS or columns > MOST_COLUMNS:
        return f"holds poses of at most {MOST_DIMS} numbers in {MOST_COLUMNS} columns, not {dims} in {columns}"
    return build.problem(dtype, shapes.rows, columns)


def bind(poses: Tensor, activations: Tensor, maps: Tensor, shapes: Shapes, iterations: int = 1) -> NativeVotes:
    """The votes of a layer, to be formed by the library."""
    return NativeVotes(poses.contiguous(), activations.contiguous(), maps.contiguous(), shapes)


class NativeVotes:
    """Children and maps, and the moments of their votes under given parents.

    The operators are given the children themselves, and autograd adds up what each call sends back: forward and
    backward of a call pass over the votes once each, whatever other calls there are.
    """

    backend = "native"

    def __init__(self, poses: Tensor, activations: Tensor, maps: Tensor, shapes: Shapes) -> None:
        shapes.window.positions(shapes.height, shapes.width)  # raises where the window does not fit
        recorded = torch.is_grad_enabled()
        self.children = tuple(values if recorded else values.detach() for values in (poses, activations, maps))
        self.layer, self.inside = pack(shapes.window, shapes.competition), shapes.inside

    def uniform(self) -> Moments:
        return Moments(*operators.uniform_moments(*self.children, self.layer))

    def under(self, parents: Parents) -> Moments:
        inputs = (*self.children, *(values.contiguous() for values in parents))
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        mass, first, second, _ = operators.moments(*inputs, keep, self.layer)
        return Moments(parents.centre, mass, first, second)

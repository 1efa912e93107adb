"""Moments by a small C library, compiled on first use: votes are formed in a CPU's registers, and never leave its
caches."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from quatcaps.routing.moments import Moments, Parents
from quatcaps.routing.native import libraries, operators, side_by_side
from quatcaps.routing.shapes import Shapes, pack

MOST_DIMS, MOST_COLUMNS = 16, 4


def refuses(shapes: Shapes, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why this backend cannot, or None; the first question whether it can compiles the library."""
    if device.type != "cpu":
        return f"runs on a CPU, not on {device.type}"
    if dtype not in (torch.float32, torch.float64):
        return f"computes in float32 or float64, not {str(dtype).removeprefix('torch.')}"
    if shapes.log_floor > -math.inf:
        return "shares every child out whole, and has no floor"
    dims, columns = shapes.dims, shapes.columns
    if dims > MOST_DIMS or columns > MOST_COLUMNS:
        return f"holds poses of at most {MOST_DIMS} numbers in {MOST_COLUMNS} columns, not {dims} in {columns}"
    return libraries.problem(dtype, shapes.rows, columns)


def bind(
    poses: Tensor, activations: Tensor, maps: Tensor, shapes: Shapes, iterations: int = 1
) -> NativeVotes | VotesSideBySide:
    """The votes of a layer, to be formed by the library."""
    if side_by_side.pays(shapes):
        return VotesSideBySide(poses, activations, maps, shapes)
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
        self.shapes, self.inside = shapes, shapes.inside
        self.layer = pack(shapes.window, "all" if shapes.everywhere else "position")

    def uniform(self) -> Moments:
        poses, activations, maps = self.children
        if self.shapes.spread:  # r = 1/(J n) with n windows, as r = 1/J of a child with activation a/n
            activations = activations / windows_of_each(self.shapes, activations)
        return Moments(*operators.uniform_moments(poses, activations, maps, self.layer))

    def under(self, parents: Parents) -> Moments:
        logit = parents.logit
        if self.shapes.everywhere:  # an offset that all logits of an image share changes nothing, and costs digits
            logit = logit - logit.detach().amax((1, 2, 3), keepdim=True)
        seen = (parents.centre, parents.precision, logit)
        inputs = (*self.children, *(values.contiguous() for values in seen))
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        mass, first, second, _ = operators.moments(*inputs, keep, self.layer)
        return Moments(parents.centre, mass, first, second)


class VotesSideBySide:
    """The same, of images with few positions."""

    backend = "native"

    def __init__(self, poses: Tensor, activations: Tensor, maps: Tensor, shapes: Shapes) -> None:
        self.shapes, self.inside = shapes, shapes.inside
        self.votes = NativeVotes(
            side_by_side.children_beside(poses, shapes),
            side_by_side.children_beside(activations, shapes),
            side_by_side.maps_beside(maps, shapes).contiguous(),
            side_by_side.shapes_beside(shapes),
        )

    def uniform(self) -> Moments:
        return Moments(*(side_by_side.parents_apart(values, self.shapes) for values in self.votes.uniform()))

    def under(self, parents: Parents) -> Moments:
        seen = (side_by_side.parents_beside(values) for values in (parents.centre, parents.precision, parents.logit))
        found = self.votes.under(Parents(*seen))
        sums = (found.mass, found.first, found.second)
        return Moments(parents.centre, *(side_by_side.parents_apart(values, self.shapes) for values in sums))


def windows_of_each(shapes: Shapes, like: Tensor) -> Float[Tensor, "height width"]:
    """How many windows hold each child; 1 for a child that none holds."""
    window, (down, across) = shapes.window, shapes.grid
    ones = like.new_ones(1, window.places, down * across)
    size, extent = (shapes.height, shapes.width), (window.height, window.width)
    return F.fold(ones, size, extent, stride=window.stride)[0, 0].clamp(min=1)

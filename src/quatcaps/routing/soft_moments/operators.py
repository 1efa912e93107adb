"""`soft_moments` as operators that PyTorch knows: they can be traced, compiled, captured and differentiated.

A backend that recomputes votes gives two functions, forward and backward; here they become the operators
`quatcaps::NAME` and `quatcaps::NAME_backward`, with fake kernels (shapes without numbers) and the formula that ties
one to the other.

    forward(poses, activations, maps, centre, precision, logit, window) → mass, first, second
    backward(grad_mass, grad_first, grad_second, poses, activations, maps, centre, precision, logit, mass, first,
             window) → grad_poses, grad_activations, grad_maps, grad_centre, grad_precision, grad_logit

Shapes are those of `Moments` and `Parents`; `window` is height, width, stride, shared. Without precision and logit
assignments are uniform, and the backward's last three results are empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quatcaps.routing.soft_moments.moments import Moments, Parents
from quatcaps.routing.window import Window

Forward = Callable[
    [Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Window], tuple[Tensor, Tensor, Tensor]
]
Backward = Callable[..., tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]]
Operator = Callable[..., tuple[Tensor, Tensor, Tensor]]


def positions_first(values: Tensor) -> Tensor:
    """(N, J, D, H, W) → (N, H, W, D, J), or (N, J, H, W) → (N, H, W, J), contiguous.

    Parents lie in memory this way: the parents of a position are neighbours. What the operators return is laid out so
    behind the usual shape, elementwise operations keep it, and so this is most often no copy.
    """
    return values.movedim((-2, -1), (1, 2)).transpose(3, -1).contiguous()


def parents_first(values: Tensor) -> Tensor:
    """The inverse of `positions_first`, as a view."""
    return values.transpose(3, -1).movedim((1, 2), (-2, -1))


def register(name: str, forward: Forward, backward: Backward) -> Operator:
    """Makes the two functions operators, and returns the first."""

    @torch.library.custom_op(f"quatcaps::{name}", mutates_args=())
    def moments(
        poses: Tensor,
        activations: Tensor,
        maps: Tensor,
        centre: Tensor,
        precision: Tensor | None,
        logit: Tensor | None,
        window: list[int],
    ) -> tuple[Tensor, Tensor, Tensor]:
        return forward(poses, activations, maps, centre, precision, logit, unpack(window))

    @moments.register_fake
    def _(
        poses: Tensor,
        activations: Tensor,
        maps: Tensor,
        centre: Tensor,
        precision: Tensor | None,
        logit: Tensor | None,
        window: list[int],
    ) -> tuple[Tensor, Tensor, Tensor]:
        mass, first, second = (empty_parents(centre, dims) for dims in (False, True, True))
        return mass, first, second

    @torch.library.custom_op(f"quatcaps::{name}_backward", mutates_args=())
    def moments_backward(
        grad_mass: Tensor,
        grad_first: Tensor,
        grad_second: Tensor,
        poses: Tensor,
        activations: Tensor,
        maps: Tensor,
        centre: Tensor,
        precision: Tensor | None,
        logit: Tensor | None,
        mass: Tensor,
        first: Tensor,
        window: list[int],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        return backward(
            grad_mass,
            grad_first,
            grad_second,
            poses,
            activations,
            maps,
            centre,
            precision,
            logit,
            mass,
            first,
            unpack(window),
        )

    @moments_backward.register_fake
    def _(
        grad_mass: Tensor,
        grad_first: Tensor,
        grad_second: Tensor,
        poses: Tensor,
        activations: Tensor,
        maps: Tensor,
        centre: Tensor,
        precision: Tensor | None,
        logit: Tensor | None,
        mass: Tensor,
        first: Tensor,
        window: list[int],
    ) -> tuple[Tensor, ...]:
        children = (poses.new_empty(poses.shape), poses.new_empty(activations.shape), poses.new_empty(maps.shape))
        if precision is None:
            return *children, *(centre.new_empty(0) for _ in range(3))
        return *children, empty_parents(centre, True), empty_parents(centre, True), empty_parents(centre, False)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.window = inputs
        ctx.save_for_backward(*tensors, output[0], output[1])

    def differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        results = moments_backward(*grads, *ctx.saved_tensors, ctx.window)
        if ctx.saved_tensors[4] is None:
            results = (*results[:3], None, None, None)
        return *results, None

    moments.register_autograd(differentiate, setup_context=setup_context)
    return moments


def empty_parents(centre: Tensor, dims: bool) -> Tensor:
    """An empty tensor in the layout of the operators' results, one number per parent or per dimension of it."""
    images, parents, pose, height, width = centre.shape
    if dims:
        return parents_first(centre.new_empty(images, height, width, pose, parents))
    return parents_first(centre.new_empty(images, height, width, parents))


def pack(window: Window) -> list[int]:
    """A window as numbers, which is what an operator can take."""
    return [window.height, window.width, window.stride, int(window.shared)]


def unpack(numbers: list[int]) -> Window:
    height, width, stride, shared = numbers
    return Window(height, width, stride, bool(shared))


class RecomputedVotes:
    """Votes that are never held: each call recomputes them, and so does its backward pass."""

    def __init__(
        self,
        operator: Operator,
        uniform: Callable[[Tensor, Tensor, Tensor, Window], Moments],
        poses: Tensor,
        activations: Tensor,
        maps: Tensor,
        window: Window,
    ) -> None:
        self.operator, self.uniform = operator, uniform
        self.poses, self.activations, self.maps, self.window = poses, activations, maps, window

    def __call__(self, parents: Parents | None) -> Moments:
        children = (self.poses, self.activations, self.maps)
        if parents is None:
            return self.uniform(*children, self.window)
        return Moments(parents.centre, *self.operator(*children, *parents, pack(self.window)))

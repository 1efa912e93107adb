"""`soft_moments` as operators that PyTorch knows: they can be traced, compiled, captured and differentiated.

A backend that recomputes votes gives functions, forward and backward; here they become the operators `quatcaps::NAME`
and `quatcaps::NAME_backward`, with fake kernels (shapes without numbers) and the formula that ties one to the other.

    forward(poses, activations, maps, centre, precision, logit, window) → mass, first, second
    backward(grad_mass, grad_first, grad_second, poses, activations, maps, centre, precision, logit, mass, first,
             window) → grad_poses, grad_activations, grad_maps, grad_centre, grad_precision, grad_logit

and, for uniform assignments, which find their own centre, through which no gradient flows,

    forward(poses, activations, maps, window) → centre, mass, first, second
    backward(grad_mass, grad_first, grad_second, poses, activations, maps, centre, window)
             → grad_poses, grad_activations, grad_maps

Shapes are those of `Moments` and `Parents`; `window` travels as height, width, stride, shared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quatcaps.routing.soft_moments.moments import Moments, Parents
from quatcaps.routing.window import Window

Operator = Callable[..., tuple[Tensor, ...]]

CHILDREN = "Tensor poses, Tensor activations, Tensor maps"
PARENTS = "Tensor centre, Tensor precision, Tensor logit"
GRADS = "Tensor grad_mass, Tensor grad_first, Tensor grad_second"
THREE, FOUR, SIX = ("(" + ", ".join(["Tensor"] * count) + ")" for count in (3, 4, 6))


def register(name: str, forward: Operator, backward: Operator) -> Operator:
    """Makes moments under given parents, and their backward, operators; returns the first."""
    moments = define(name, forward, f"({CHILDREN}, {PARENTS}, int[] window) -> {THREE}")
    moments_backward = define(
        f"{name}_backward",
        backward,
        f"({GRADS}, {CHILDREN}, {PARENTS}, Tensor mass, Tensor first, int[] window) -> {SIX}",
    )

    @moments.register_fake
    def _(poses: Tensor, activations: Tensor, maps: Tensor, centre: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        return empty_parents(centre, 1), empty_parents(centre), empty_parents(centre)

    @moments_backward.register_fake
    def _(g0: Tensor, g1: Tensor, g2: Tensor, poses: Tensor, activations: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        maps, centre = rest[:2]
        parents = empty_parents(centre), empty_parents(centre), empty_parents(centre, 1)
        return *empty_children(poses, activations, maps), *parents

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.window = inputs
        ctx.save_for_backward(*tensors, output[0], output[1])

    def differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *moments_backward(*grads, *ctx.saved_tensors, ctx.window), None

    moments.register_autograd(differentiate, setup_context=setup_context)
    return moments


def register_uniform(name: str, forward: Operator, backward: Operator) -> Operator:
    """Makes moments under uniform assignments, and their backward, operators; returns the first."""
    moments = define(name, forward, f"({CHILDREN}, int[] window) -> {FOUR}")
    moments_backward = define(
        f"{name}_backward", backward, f"({GRADS}, {CHILDREN}, Tensor centre, int[] window) -> {THREE}"
    )

    @moments.register_fake
    def _(poses: Tensor, activations: Tensor, maps: Tensor, window: list[int]) -> tuple[Tensor, ...]:
        grid = unpack(window).positions(*poses.shape[3:])
        centre = parents_first(poses.new_empty(len(poses), *grid, poses.shape[2], maps.shape[2]))
        return centre, empty_parents(centre, 1), empty_parents(centre), empty_parents(centre)

    @moments_backward.register_fake
    def _(g0: Tensor, g1: Tensor, g2: Tensor, poses: Tensor, activations: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        return empty_children(poses, activations, rest[0])

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.window = inputs
        ctx.save_for_backward(*tensors, output[0])

    def differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *moments_backward(*grads[1:], *ctx.saved_tensors, ctx.window), None

    moments.register_autograd(differentiate, setup_context=setup_context)
    return moments


def define(name: str, function: Operator, schema: str) -> Any:
    """The function as an operator of that schema, whose last argument is a window."""

    def call(*arguments: Any) -> tuple[Tensor, ...]:
        return function(*arguments[:-1], unpack(arguments[-1]))

    return torch.library.custom_op(f"quatcaps::{name}", call, mutates_args=(), schema=schema)


def pack(window: Window) -> list[int]:
    """A window as numbers, which is what an operator can take."""
    return [window.height, window.width, window.stride, int(window.shared)]


def unpack(numbers: list[int]) -> Window:
    height, width, stride, shared = numbers
    return Window(height, width, stride, bool(shared))


def positions_first(values: Tensor) -> Tensor:
    """(N, J, D, H, W) → (N, H, W, D, J), or (N, J, H, W) → (N, H, W, J), contiguous.

    Parents lie in memory this way: the parents of a position are neighbours. What the operators return is laid out so
    behind the usual shape, elementwise operations keep it, and so this is most often no copy.
    """
    return values.movedim((-2, -1), (1, 2)).transpose(3, -1).contiguous()


def parents_first(values: Tensor) -> Tensor:
    """The inverse of `positions_first`, as a view."""
    return values.transpose(3, -1).movedim((1, 2), (-2, -1))


def empty_parents(centre: Tensor, dims: int | None = None) -> Tensor:
    """An empty tensor in the layout of the operators' results: as many numbers per parent as in `centre`, or one."""
    images, parents, pose, height, width = centre.shape
    if dims is None:
        return parents_first(centre.new_empty(images, height, width, pose, parents))
    return parents_first(centre.new_empty(images, height, width, parents))


def by_parent(maps: Tensor) -> Tensor:
    """(offsets, I, J, C, C) → (offsets, I, C, C, J), contiguous: no copy for maps that lie so in memory."""
    return maps.movedim(2, 4).contiguous()


def empty_children(poses: Tensor, activations: Tensor, maps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Empty gradients of children, in the layout of the operators' results."""
    offsets, children, parents, columns, _ = maps.shape
    grad_maps = maps.new_empty(offsets, children, columns, columns, parents).movedim(4, 2)
    return poses.new_empty(poses.shape), activations.new_empty(activations.shape), grad_maps


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
        *,
        fused: bool = False,
    ) -> None:
        self.operator, self.uniform, self.fused = operator, uniform, fused
        self.poses, self.activations, self.maps, self.window = poses, activations, maps, window

    def __call__(self, parents: Parents | None) -> Moments:
        children = (self.poses, self.activations, self.maps)
        if parents is None:
            return self.uniform(*children, self.window)
        return Moments(parents.centre, *self.operator(*children, *parents, pack(self.window)))

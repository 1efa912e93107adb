"""The fused kernels as operators that PyTorch knows: they can be traced, compiled, captured and differentiated.

Four operators, each with a fake kernel (shapes without numbers):

    uniform_moments     children → moments under uniform assignments, and three empty slots
    moments             children, parents, slots → moments under these parents, and what the backward keeps
    parents_backward    gradients of the moments → those of the parents, and what the next needs
    children_backward   → gradients of the children: poses, activations, maps

The slots have the shapes of what `parents_backward` leaves for `children_backward`. Moments that were given the slots
of uniform moments do not run `children_backward`: they return what is left as the slots' gradient, and the uniform
moments, whose backward comes later, run it once for both. `window` travels as height, width, stride, shared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quatcaps.routing.shapes import unpack
from quatcaps.routing.triton import launch
from quatcaps.routing.triton.layout import empty_children, empty_parents, parents_first
from quatcaps.routing.triton.plan import Layer

CHILDREN = "Tensor poses, Tensor activations, Tensor maps"
PARENTS = "Tensor centre, Tensor precision, Tensor logit"
GRADS = "Tensor grad_mass, Tensor grad_first, Tensor grad_second"
LEFT = "Tensor? rows, Tensor? log_total, Tensor? grad_activation"
UNIFORM = "Tensor? centre, Tensor? grad_mass, Tensor? grad_first, Tensor? grad_second"


def results(count: int) -> str:
    return "(" + ", ".join(["Tensor"] * count) + ")"


def _uniform_moments(poses: Tensor, activations: Tensor, maps: Tensor, window: list[int]) -> tuple[Tensor, ...]:
    return *launch.uniform(poses, activations, maps, unpack(window)[0]), *empty_slots(poses, maps, window)


def _uniform_moments_fake(poses: Tensor, activations: Tensor, maps: Tensor, window: list[int]) -> tuple[Tensor, ...]:
    shapes = Layer.of(poses, maps, unpack(window)[0])
    centre = parents_first(poses.new_empty(shapes.parent_shape(shapes.dims)))
    sums = empty_parents(centre, 1), empty_parents(centre), empty_parents(centre)
    return centre, *sums, *empty_slots(poses, maps, window)


def empty_slots(poses: Tensor, maps: Tensor, window: list[int]) -> tuple[Tensor, ...]:
    """Tensors of the right shapes that take no room."""
    shapes = Layer.of(poses, maps, unpack(window)[0])
    return tuple(poses.new_zeros(()).expand(shape) for shape in (shapes.known, shapes.pairs, shapes.pairs))


uniform_moments = torch.library.custom_op(
    "quatcaps::fused_uniform_moments",
    _uniform_moments,
    mutates_args=(),
    schema=f"({CHILDREN}, int[] window) -> {results(7)}",
)
uniform_moments.register_fake(_uniform_moments_fake)


def _moments(*arguments: Any) -> tuple[Tensor, ...]:
    *_, keep, window = arguments
    poses, activations, maps, centre, precision, logit = arguments[:6]
    return launch.weighted(poses, activations, maps, centre, precision, logit, keep, unpack(window)[0])


def _moments_fake(poses: Tensor, activations: Tensor, maps: Tensor, centre: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *_, keep, window = rest
    kept = Layer.of(poses, maps, unpack(window)[0]).pairs if keep else (0,)
    return empty_parents(centre, 1), empty_parents(centre), empty_parents(centre), poses.new_empty(kept)


moments = torch.library.custom_op(
    "quatcaps::fused_moments",
    _moments,
    mutates_args=(),
    schema=f"({CHILDREN}, {PARENTS}, {LEFT}, bool keep, int[] window) -> {results(4)}",
)
moments.register_fake(_moments_fake)


def _parents_backward(*arguments: Any) -> tuple[Tensor, ...]:
    poses, activations, maps, centre, precision, logit, mass, first, log_total, window = arguments[3:]
    parents = (centre, precision, logit)
    return launch.parents_backward(
        arguments[:3], poses, activations, maps, parents, mass, first, log_total, unpack(window)[0]
    )


def _parents_backward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    poses, _, maps, centre = arguments[3:7]
    shapes = Layer.of(poses, maps, unpack(arguments[-1])[0])
    parents = empty_parents(centre), empty_parents(centre), empty_parents(centre, 1)
    return *parents, poses.new_empty(shapes.known), poses.new_empty(shapes.pairs)


parents_backward = torch.library.custom_op(
    "quatcaps::fused_parents_backward",
    _parents_backward,
    mutates_args=(),
    schema=f"({GRADS}, {CHILDREN}, {PARENTS}, Tensor mass, Tensor first, Tensor log_total, int[] window) "
    f"-> {results(5)}",
)
parents_backward.register_fake(_parents_backward_fake)


def _children_backward(*arguments: Any) -> tuple[Tensor, ...]:
    poses, activations, maps, rows, log_total, grad_activation, *uniform, window = arguments
    left = None if rows is None else (rows, log_total, grad_activation)
    return launch.children_backward(
        poses, activations, maps, left, None if uniform[0] is None else tuple(uniform), unpack(window)[0]
    )


def _children_backward_fake(poses: Tensor, activations: Tensor, maps: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return empty_children(poses, activations, maps, wide=Layer.of(poses, maps, unpack(rest[-1])[0]).wide)


children_backward = torch.library.custom_op(
    "quatcaps::fused_children_backward",
    _children_backward,
    mutates_args=(),
    schema=f"({CHILDREN}, {LEFT}, {UNIFORM}, int[] window) -> {results(3)}",
)
children_backward.register_fake(_children_backward_fake)


def _keep_uniform(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *children, ctx.window = inputs
    ctx.save_for_backward(*children, output[0])
    ctx.mark_non_differentiable(output[0])
    ctx.set_materialize_grads(False)


def _differentiate_uniform(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    *children, centre = ctx.saved_tensors
    _, g0, g1, g2, *left = grads
    if g0 is None and g1 is None and g2 is None:
        uniform: tuple[Tensor | None, ...] = (None, None, None, None)
    else:
        like = (empty_parents(centre, 1), empty_parents(centre), empty_parents(centre))
        filled = (
            torch.zeros_like(empty) if grad is None else grad for grad, empty in zip((g0, g1, g2), like, strict=True)
        )
        uniform = (centre, *filled)
    return *children_backward(*children, *left, *uniform, ctx.window), None


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *children_and_parents, rows, _, _, _, ctx.window = inputs
    ctx.hands_over = rows is not None
    mass, first, _, log_total = output
    ctx.save_for_backward(*children_and_parents, mass, first, log_total)
    ctx.mark_non_differentiable(log_total)


def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    children, log_total = saved[:3], saved[-1]
    *parents, rows, grad_activation = parents_backward(*grads[:3], *saved, ctx.window)
    left = (rows, log_total, grad_activation)
    if ctx.hands_over:
        return None, None, None, *parents, *left, None, None
    grad_children = children_backward(*children, *left, None, None, None, None, ctx.window)
    return *grad_children, *parents, None, None, None, None, None


uniform_moments.register_autograd(_differentiate_uniform, setup_context=_keep_uniform)
moments.register_autograd(_differentiate, setup_context=_keep)

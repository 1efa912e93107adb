"""Children within limits, as the kernels read them: for what a layer below has routed, one kernel instead of three."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quatcaps.operators import operator
from quatcaps.routing.moments import limited
from quatcaps.routing.triton.launch import tiles_of_pixels
from quatcaps.routing.triton.layout import parents_first, positions_first, turned
from quatcaps.routing.triton.plan import MOST_NARROW


def within(poses: Tensor, activations: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """Poses no further from 0 than the limit, and activations: `moments.limited`."""
    if poses.shape[2] > MOST_NARROW or poses.is_contiguous():
        return limited(poses, activations, limit)
    if not all(turned(values).is_contiguous() for values in (poses, activations)):
        return limited(poses, activations, limit)
    laid: tuple[Tensor, Tensor] = lay(poses, activations, limit)
    return laid


def sizes_of(poses: Tensor) -> tuple[int, tuple[int, int, int], dict[str, int]]:
    """How many pixels there are, and the grid and sizes of a launch."""
    images, children, dims, height, width = poses.shape
    pixels = images * height * width
    grid, tiles = tiles_of_pixels(pixels, children, dims)
    return pixels, grid, {"CHILDREN": children, "DIMS": dims, "PLANE": height * width, **tiles}


def compute(poses: Tensor, activations: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    from quatcaps.routing.triton.kernels import children

    laid = empty(poses, activations, limit)
    pixels, grid, sizes = sizes_of(poses)
    children.lay_children[grid](positions_first(poses), positions_first(activations), *laid, pixels, limit, **sizes)
    return laid


def compute_backward(
    grad_poses: Tensor, grad_activations: Tensor, poses: Tensor, limit: float
) -> tuple[Tensor, Tensor]:
    from quatcaps.routing.triton.kernels import children

    found = [torch.empty_like(positions_first(values)) for values in (grad_poses, grad_activations)]
    pixels, grid, sizes = sizes_of(poses)
    given = (grad_poses.contiguous(), grad_activations.contiguous(), positions_first(poses))
    children.lay_children_backward[grid](*given, *found, pixels, limit, **sizes)
    return parents_first(found[0]), parents_first(found[1])


def empty(poses: Tensor, activations: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    return poses.new_empty(poses.shape), activations.new_empty(activations.shape)


def empty_backward(grad_poses: Tensor, grad_activations: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    grads = (grad_poses, grad_activations)
    by_poses, by_activations = (parents_first(torch.empty_like(positions_first(grad))) for grad in grads)
    return by_poses, by_activations


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    poses, _, ctx.limit = inputs
    ctx.save_for_backward(poses)


def differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    return *lay_backward(*grads, *ctx.saved_tensors, ctx.limit), None


lay_backward = operator(
    "triton_lay_children_backward",
    "(Tensor grad_poses, Tensor grad_activations, Tensor poses, float limit) -> (Tensor, Tensor)",
    compute_backward,
    empty_backward,
)
lay = operator(
    "triton_lay_children",
    "(Tensor poses, Tensor activations, float limit) -> (Tensor, Tensor)",
    compute,
    empty,
    save=save,
    differentiate=differentiate,
)

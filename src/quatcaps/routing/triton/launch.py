"""The operators' work: which kernel gets what."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quatcaps.routing.triton.layout import (
    as_maps,
    by_parent,
    by_row,
    children_first,
    children_last,
    parents_first,
    positions_first,
)
from quatcaps.routing.triton.plan import Layer, by_child, by_position, power_of_two
from quatcaps.routing.window import Window


class Passes(NamedTuple):
    """The heavy kernels."""

    sum_moments: Any
    sum_uniform: Any
    sum_parents: Any
    sum_children: Any


def passes(shapes: Layer) -> Passes:
    """Those made for the poses of that shape."""
    if shapes.wide:
        from quatcaps.routing.triton.kernels import wide_backward, wide_forward

        return Passes(
            wide_forward.sum_moments, wide_forward.sum_uniform, wide_backward.sum_parents, wide_backward.sum_children
        )
    from quatcaps.routing.triton.kernels import backward_children, backward_parents, forward

    return Passes(
        forward.sum_moments, forward.sum_uniform, backward_parents.sum_parents, backward_children.sum_children
    )


def laid(poses: Tensor, activations: Tensor, maps: Tensor, shapes: Layer) -> tuple[Tensor, Tensor, Tensor]:
    """Children as the kernels read them."""
    if shapes.wide:
        return children_last(poses), children_last(activations), by_row(maps)
    return poses.contiguous(), activations.contiguous(), by_parent(maps)


def weighted(
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    centre: Tensor,
    precision: Tensor,
    logit: Tensor,
    keep: bool,
    window: Window,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Moments under given parents: mass, first, second; and, to keep, the logarithms of the softmax's sums."""
    from quatcaps.routing.triton.kernels import parts

    shapes = Layer.of(poses, maps, window)
    cut = by_position(shapes, per_thread=8, least_steps=8, registers=(None, 168))
    sums = empty_sums(poses, shapes, cut.splits)
    log_total = poses.new_empty(shapes.pairs if keep else (0,))
    passes(shapes).sum_moments[cut.launch](
        *laid(poses, activations, maps, shapes),
        positions_first(centre),
        positions_first(precision),
        positions_first(logit),
        sums,
        log_total,
        shapes.positions,
        cut.per_program,
        **shapes.constants(),
        KEEP=keep,
        **cut.options(),
    )
    mass, first, second = (poses.new_empty(shapes.parent_shape(*dims)) for dims in ((), (shapes.dims,), (shapes.dims,)))
    tile = 256
    parts.add_moments[(math.ceil(sums.shape[1] / tile),)](
        sums, mass, first, second, cut.splits, mass.numel(), first.numel(), TILE=tile
    )
    return parents_first(mass), parents_first(first), parents_first(second), log_total


def uniform(poses: Tensor, activations: Tensor, maps: Tensor, window: Window) -> tuple[Tensor, ...]:
    """Moments under uniform assignments: centre, mass, first, second."""
    from quatcaps.routing.triton.kernels import parts

    shapes = Layer.of(poses, maps, window)
    cut = by_position(shapes, per_thread=8, least_steps=32, registers=(168, 128))
    part_mass = poses.new_empty(cut.splits, shapes.positions)
    part = [poses.new_empty(cut.splits, *shapes.parent_shape(shapes.dims)) for _ in range(3)]
    passes(shapes).sum_uniform[cut.launch](
        *laid(poses, activations, maps, shapes),
        part_mass,
        *part,
        shapes.positions,
        cut.per_program,
        **shapes.constants(),
        **cut.options(),
    )
    mass = poses.new_empty(shapes.parent_shape())
    centre, first, second = (poses.new_empty(shapes.parent_shape(shapes.dims)) for _ in range(3))
    tile = 256
    parts.merge_moments[(math.ceil(centre.numel() / tile),)](
        part_mass,
        *part,
        centre,
        mass,
        first,
        second,
        cut.splits,
        shapes.positions,
        PARENTS=shapes.parents,
        DIMS=shapes.dims,
        TILE=tile,
    )
    return tuple(parents_first(values) for values in (centre, mass, first, second))


def parents_backward(
    grads: tuple[Tensor, Tensor, Tensor],
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    parents: tuple[Tensor, Tensor, Tensor],
    mass: Tensor,
    first: Tensor,
    log_total: Tensor,
    window: Window,
) -> tuple[Tensor, ...]:
    """Gradients of centre, precision and logit; and what is left for the children: all that is known of each parent,
    and the gradient of each child's activation in each window."""
    from quatcaps.routing.triton.kernels import parts

    shapes = Layer.of(poses, maps, window)
    cut = by_position(shapes, per_thread=4, least_steps=8, registers=(None, 168))
    m, p, c = (positions_first(values) for values in parents)
    g0, g1, g2 = (positions_first(grad) for grad in grads)
    sums = empty_sums(poses, shapes, cut.splits)
    rows = poses.new_empty(shapes.known)
    grad_activation = torch.empty_like(log_total)
    passes(shapes).sum_parents[cut.launch](
        *laid(poses, activations, maps, shapes),
        m,
        p,
        c,
        g0,
        g1,
        g2,
        log_total,
        sums,
        rows,
        grad_activation,
        shapes.positions,
        cut.per_program,
        **shapes.constants(),
        **cut.options(),
    )
    grad_centre, grad_precision, grad_logit = torch.empty_like(m), torch.empty_like(p), torch.empty_like(c)
    tile = 256
    parts.finish_parents[(math.ceil(m.numel() / tile),)](
        sums,
        m,
        p,
        g0,
        g1,
        g2,
        positions_first(mass),
        positions_first(first),
        grad_centre,
        grad_precision,
        grad_logit,
        rows,
        cut.splits,
        shapes.positions,
        **row_order(shapes),
        TILE=tile,
    )
    grad_parents = (parents_first(grad) for grad in (grad_centre, grad_precision, grad_logit))
    return *grad_parents, rows, grad_activation


def children_backward(
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    left: tuple[Tensor, Tensor, Tensor] | None,
    uniform: tuple[Tensor, ...] | None,
    window: Window,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of poses, activations and maps: from weighted moments, by what is `left` of them (rows, the logarithms
    of the softmax's sums, gradients of activations); from uniform ones, by their centre and the gradients of mass,
    first and second; or from both."""
    from quatcaps.routing.triton.kernels import parts

    shapes = Layer.of(poses, maps, window)
    if shapes.positions == 0:  # no images: the pass would look at the first position
        return torch.zeros_like(poses), torch.zeros_like(activations), torch.zeros_like(maps)
    poses, activations, matrices = laid(poses, activations, maps, shapes)
    unread = (poses, poses, poses)
    rows, log_total, grad_activation = (values.contiguous() for values in left or unread)
    uniform_rows = poses
    if uniform is not None:
        given = [positions_first(values) for values in uniform]
        uniform_rows = poses.new_empty(shapes.known_uniform)
        tile, parents = 256, given[1].numel()
        parts.pack_uniform[(math.ceil(parents / tile),)](
            rows, *given, uniform_rows, parents, **row_order(shapes), WEIGHTED=left is not None, TILE=tile
        )
    cut = by_child(shapes, per_thread=4 if left and uniform else 8, registers=(None, 168))
    buffer = poses.new_empty(shapes.positions, shapes.dims + 1, shapes.inside)
    sums = poses.new_empty(cut.splits, shapes.inside, *matrices.shape[2:])
    children = (poses, activations) if shapes.wide else (packed(poses, activations, shapes),)
    passes(shapes).sum_children[cut.launch](
        *children,
        matrices,
        rows,
        log_total,
        grad_activation,
        uniform_rows,
        buffer,
        sums,
        shapes.positions,
        cut.per_program,
        **shapes.constants(),
        WEIGHTED=left is not None,
        UNIFORM=uniform is not None,
        **cut.options(),
    )
    grad_maps = torch.empty_like(matrices)
    block = 64
    parts.add_maps[(math.ceil(grad_maps.numel() / block),)](
        sums, grad_maps, sums.numel() // grad_maps.numel(), grad_maps.numel(), TILE=block, TILE_ROWS=16, num_warps=4
    )
    grad_poses, grad_activations = torch.empty_like(poses), torch.empty_like(activations)
    fold(buffer, grad_poses, grad_activations, shapes)
    if shapes.wide:
        return children_first(grad_poses), children_first(grad_activations), as_maps(grad_maps)
    return grad_poses, grad_activations, grad_maps.movedim(4, 2)


def packed(poses: Tensor, activations: Tensor, shapes: Layer) -> Tensor:
    """Narrow poses and their activations, children as neighbours in memory."""
    from quatcaps.routing.triton.kernels import parts

    pixels, columns = shapes.images * shapes.height * shapes.width, shapes.dims + 1
    tile, tile_children = 16, min(32, power_of_two(shapes.children))
    side_by_side = poses.new_empty(pixels, columns, shapes.children)
    parts.pack_children[(math.ceil(pixels / tile), math.ceil(shapes.children / tile_children), columns)](
        poses,
        activations,
        side_by_side,
        pixels,
        CHILDREN=shapes.children,
        DIMS=shapes.dims,
        PLANE=shapes.height * shapes.width,
        TILE=tile,
        TILE_CHILDREN=tile_children,
        num_warps=1,
    )
    return side_by_side


def fold(buffer: Tensor, grad_poses: Tensor, grad_activations: Tensor, shapes: Layer) -> None:
    """The gradients of children from the columns of all windows."""
    from quatcaps.routing.triton.kernels import backward_children, parts

    pixels = shapes.images * shapes.height * shapes.width
    sizes = {
        "CHILDREN": shapes.children,
        "DIMS": shapes.dims,
        "HEIGHT": shapes.height,
        "WIDTH": shapes.width,
        "GRID_HEIGHT": shapes.grid[0],
        "GRID_WIDTH": shapes.grid[1],
        "KERNEL_HEIGHT": shapes.window.height,
        "KERNEL_WIDTH": shapes.window.width,
        "STRIDE": shapes.window.stride,
    }
    if shapes.wide:
        tile = 256
        grid = (pixels, math.ceil(shapes.children * (shapes.dims + 1) / tile))
        parts.fold_channels[grid](buffer, grad_poses, grad_activations, pixels, **sizes, TILE=tile, num_warps=2)
        return
    tile, tile_children = 16, min(32, power_of_two(shapes.children))
    backward_children.fold[(math.ceil(pixels / tile), math.ceil(shapes.children / tile_children), shapes.dims + 1)](
        buffer, grad_poses, grad_activations, pixels, **sizes, TILE=tile, TILE_CHILDREN=tile_children, num_warps=1
    )


def row_order(shapes: Layer) -> dict[str, Any]:
    """What a kernel needs to write what the pass by child reads of parents."""
    return {"PARENTS": shapes.parents, "DIMS": shapes.dims, "COLUMNS": shapes.columns, "WIDE": shapes.wide}


def empty_sums(like: Tensor, shapes: Layer, splits: int) -> Tensor:
    """Room for the partial sums of each split: one number per parent, then twice one per dimension of it."""
    return like.new_empty(splits, shapes.positions * shapes.parents * (1 + 2 * shapes.dims))

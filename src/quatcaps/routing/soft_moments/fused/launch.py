"""The operators' work: which kernel gets what."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quatcaps.routing.soft_moments.fused.plan import Shapes, by_child, by_position, power_of_two
from quatcaps.routing.soft_moments.layout import by_parent, parents_first, positions_first
from quatcaps.routing.window import Window


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
    from quatcaps.routing.soft_moments.fused.kernels import forward, parts

    shapes = Shapes.of(poses, maps, window)
    cut = by_position(shapes, per_thread=8, least_steps=8)
    sums = empty_sums(poses, shapes, cut.splits)
    log_total = poses.new_empty(shapes.pairs if keep else (0,))
    forward.sum_moments[cut.launch](
        poses.contiguous(),
        activations.contiguous(),
        by_parent(maps),
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
    from quatcaps.routing.soft_moments.fused.kernels import forward, parts

    shapes = Shapes.of(poses, maps, window)
    cut = by_position(shapes, per_thread=8, least_steps=32)
    part_mass = poses.new_empty(cut.splits, shapes.positions)
    part = [poses.new_empty(cut.splits, *shapes.parent_shape(shapes.dims)) for _ in range(3)]
    forward.sum_uniform[cut.launch](
        poses.contiguous(),
        activations.contiguous(),
        by_parent(maps),
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
    from quatcaps.routing.soft_moments.fused.kernels import backward_parents, parts

    shapes = Shapes.of(poses, maps, window)
    cut = by_position(shapes, per_thread=4, least_steps=8)
    m, p, c = (positions_first(values) for values in parents)
    g0, g1, g2 = (positions_first(grad) for grad in grads)
    sums = empty_sums(poses, shapes, cut.splits)
    rows = poses.new_empty(shapes.rows)
    grad_activation = torch.empty_like(log_total)
    backward_parents.sum_parents[cut.launch](
        poses.contiguous(),
        activations.contiguous(),
        by_parent(maps),
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
        PARENTS=shapes.parents,
        DIMS=shapes.dims,
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
    from quatcaps.routing.soft_moments.fused.kernels import backward_children, parts

    shapes = Shapes.of(poses, maps, window)
    poses, activations, matrices = poses.contiguous(), activations.contiguous(), by_parent(maps)
    if shapes.positions == 0:  # no images: the pass would look at the first position
        return torch.zeros_like(poses), torch.zeros_like(activations), torch.zeros_like(matrices).movedim(4, 2)
    unread = (poses, poses, poses)
    rows, log_total, grad_activation = (values.contiguous() for values in left or unread)
    uniform_rows = poses
    if uniform is not None:
        laid = [positions_first(values) for values in uniform]
        uniform_rows = poses.new_empty(shapes.uniform_rows)
        tile, parents = 256, laid[1].numel()
        parts.pack_uniform[(math.ceil(parents / tile),)](
            rows,
            *laid,
            uniform_rows,
            parents,
            PARENTS=shapes.parents,
            DIMS=shapes.dims,
            WEIGHTED=left is not None,
            TILE=tile,
        )
    cut = by_child(shapes, per_thread=4 if left and uniform else 8)
    pixels, columns = shapes.images * shapes.height * shapes.width, shapes.dims + 1
    tile, tile_children = 16, min(32, power_of_two(shapes.children))
    grid = (math.ceil(pixels / tile), math.ceil(shapes.children / tile_children), columns)
    packed = poses.new_empty(pixels, columns, shapes.children)
    parts.pack_children[grid](
        poses,
        activations,
        packed,
        pixels,
        CHILDREN=shapes.children,
        DIMS=shapes.dims,
        PLANE=shapes.height * shapes.width,
        TILE=tile,
        TILE_CHILDREN=tile_children,
        num_warps=1,
    )
    buffer = poses.new_empty(shapes.positions, columns, shapes.inside)
    sums = poses.new_empty(cut.splits, shapes.inside, *matrices.shape[2:])
    backward_children.sum_children[cut.launch](
        packed,
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
    backward_children.fold[grid](
        buffer,
        grad_poses,
        grad_activations,
        pixels,
        CHILDREN=shapes.children,
        DIMS=shapes.dims,
        HEIGHT=shapes.height,
        WIDTH=shapes.width,
        GRID_HEIGHT=shapes.grid[0],
        GRID_WIDTH=shapes.grid[1],
        KERNEL_HEIGHT=shapes.window.height,
        KERNEL_WIDTH=shapes.window.width,
        STRIDE=shapes.window.stride,
        TILE=tile,
        TILE_CHILDREN=tile_children,
        num_warps=1,
    )
    return grad_poses, grad_activations, grad_maps.movedim(4, 2)


def empty_sums(like: Tensor, shapes: Shapes, splits: int) -> Tensor:
    """Room for the partial sums of each split: one number per parent, then twice one per dimension of it."""
    return like.new_empty(splits, shapes.positions * shapes.parents * (1 + 2 * shapes.dims))

"""Moments by the fused Triton kernels: what goes to which program."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quatcaps.accelerator import unavailable
from quatcaps.routing.soft_moments.moments import Moments
from quatcaps.routing.soft_moments.operators import (
    RecomputedVotes,
    by_parent,
    pack,
    parents_first,
    positions_first,
    register,
    register_uniform,
)
from quatcaps.routing.window import Window

MOST_PARENTS, MOST_DIMS, MOST_COLUMNS = 1024, 16, 4
WARPS_BY_POSITION, WARPS_BY_CHILD = 4608, 12288
"""Warps, running and waiting, that keep a large GPU busy to the end of a launch; more splits than that cost more to
add up than they gain."""


def refuses(poses: Tensor, maps: Tensor, competition: str) -> str | None:
    """Why this backend cannot, or None."""
    if competition != "position":
        return f"shares a child among the parents at one position, not by competition {competition!r}"
    if poses.dtype != torch.float32:
        return f"computes in float32, not {str(poses.dtype).removeprefix('torch.')}"
    dims, parents, columns = poses.shape[2], maps.shape[2], maps.shape[-1]
    if parents > MOST_PARENTS:
        return f"holds at most {MOST_PARENTS} parent types, not {parents}"
    if dims > MOST_DIMS or columns > MOST_COLUMNS:
        return f"holds poses of at most {MOST_DIMS} numbers in {MOST_COLUMNS} columns, not {dims} in {columns}"
    return unavailable(poses.device)


def bind(poses: Tensor, activations: Tensor, maps: Tensor, window: Window, *, competition: str) -> RecomputedVotes:
    """The votes of a layer, to be recomputed by the kernels."""
    return RecomputedVotes(triton_moments, uniform, poses, activations, maps, window, fused=True)


def uniform(poses: Tensor, activations: Tensor, maps: Tensor, window: Window) -> Moments:
    """Moments under uniform assignments."""
    return Moments(*triton_uniform(poses, activations, maps, pack(window)))


@dataclass(frozen=True)
class Shapes:
    """The sizes of one layer's routing."""

    images: int
    children: int
    dims: int
    height: int
    width: int
    parents: int
    columns: int
    window: Window

    @staticmethod
    def of(poses: Tensor, maps: Tensor, window: Window) -> Shapes:
        return Shapes(*poses.shape, maps.shape[2], maps.shape[-1], window)

    @property
    def grid(self) -> tuple[int, int]:
        return self.window.positions(self.height, self.width)

    @property
    def positions(self) -> int:
        return self.images * self.grid[0] * self.grid[1]

    @property
    def inside(self) -> int:
        """Children in a window."""
        return self.window.places * self.children

    def parent_shape(self, *dims: int) -> tuple[int, ...]:
        """How parents lie in memory, with so many numbers each."""
        return (self.images, *self.grid, *dims, self.parents)

    def constants(self) -> dict[str, Any]:
        """What the kernels are compiled for."""
        return {
            "CHILDREN": self.children,
            "PARENTS": self.parents,
            "ROWS": self.dims // self.columns,
            "COLUMNS": self.columns,
            "HEIGHT": self.height,
            "WIDTH": self.width,
            "GRID_HEIGHT": self.grid[0],
            "GRID_WIDTH": self.grid[1],
            "PLACES": self.window.places,
            "KERNEL_WIDTH": self.window.width,
            "STRIDE": self.window.stride,
            "SHARED": self.window.shared,
        }


@dataclass(frozen=True)
class Plan:
    """How a pass is cut: tiles of `tile` × `tile_parents`, `tiles` of them, each split into `splits` programs that
    walk `per_program` steps."""

    tile: int
    tile_parents: int
    warps: int
    tiles: int
    splits: int
    per_program: int

    @property
    def launch(self) -> tuple[int, int]:
        return (self.tiles, self.splits)

    def options(self) -> dict[str, int]:
        return {"TILE": self.tile, "TILE_PARENTS": self.tile_parents, "num_warps": self.warps}


def plan(rows: int, steps: int, shapes: Shapes, *, per_thread: int, least_steps: int, warps_wanted: int) -> Plan:
    """Cuts `rows` × parents into tiles of `per_thread` entries a thread, and `steps` into equal walks of at least
    `least_steps`, so many that there are `warps_wanted` in all."""
    tile_parents = max(4, power_of_two(shapes.parents))
    warps = min(16, max(1, tile_parents // 16))
    per_thread = per_thread if shapes.dims <= 4 else 1
    tile = max(1, min(per_thread * 32 * warps // tile_parents, power_of_two(rows)))
    tiles = math.ceil(rows / tile)
    splits = max(1, min(math.ceil(warps_wanted / (tiles * warps)), steps // least_steps))
    per_program = math.ceil(steps / splits)
    return Plan(tile, tile_parents, warps, tiles, math.ceil(steps / per_program), per_program)


def by_position(shapes: Shapes, *, per_thread: int, least_steps: int) -> Plan:
    """For the passes whose tiles are positions and whose steps are children."""
    return plan(
        shapes.positions,
        shapes.inside,
        shapes,
        per_thread=per_thread,
        least_steps=least_steps,
        warps_wanted=WARPS_BY_POSITION,
    )


def by_child(shapes: Shapes) -> Plan:
    """For the pass whose tiles are children and whose steps are positions."""
    return plan(
        shapes.inside, shapes.positions, shapes, per_thread=8, least_steps=16, warps_wanted=WARPS_BY_CHILD
    )


def power_of_two(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << (count - 1).bit_length()


def forward(
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    centre: Tensor,
    precision: Tensor,
    logit: Tensor,
    window: Window,
) -> tuple[Tensor, Tensor, Tensor]:
    from quatcaps.routing.soft_moments.kernels import forward, parts

    shapes = Shapes.of(poses, maps, window)
    cut = by_position(shapes, per_thread=8, least_steps=8)
    sums = empty_sums(poses, shapes, cut.splits)
    forward.sum_moments[cut.launch](
        poses.contiguous(),
        activations.contiguous(),
        by_parent(maps),
        positions_first(centre),
        positions_first(precision),
        positions_first(logit),
        sums,
        shapes.positions,
        cut.per_program,
        **shapes.constants(),
        **cut.options(),
    )
    mass, first, second = (poses.new_empty(shapes.parent_shape(*dims)) for dims in ((), (shapes.dims,), (shapes.dims,)))
    tile = 256
    parts.add_moments[(math.ceil(sums.shape[1] / tile),)](
        sums, mass, first, second, cut.splits, mass.numel(), first.numel(), TILE=tile
    )
    return parents_first(mass), parents_first(first), parents_first(second)


def backward(
    grad_mass: Tensor,
    grad_first: Tensor,
    grad_second: Tensor,
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    centre: Tensor,
    precision: Tensor,
    logit: Tensor,
    mass: Tensor,
    first: Tensor,
    window: Window,
) -> tuple[Tensor, ...]:
    from quatcaps.routing.soft_moments.kernels import backward, parts

    shapes = Shapes.of(poses, maps, window)
    cut = by_position(shapes, per_thread=4, least_steps=8)
    poses, activations, matrices = poses.contiguous(), activations.contiguous(), by_parent(maps)
    m, p, c = positions_first(centre), positions_first(precision), positions_first(logit)
    grads = tuple(positions_first(grad) for grad in (grad_mass, grad_first, grad_second))
    sums = empty_sums(poses, shapes, cut.splits)
    shifted = torch.empty_like(c)
    log_total, grad_activation = (m.new_empty(shapes.inside, shapes.positions) for _ in range(2))
    backward.sum_parents[cut.launch](
        poses,
        activations,
        matrices,
        m,
        p,
        c,
        *grads,
        sums,
        shifted,
        log_total,
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
        p,
        grads[1],
        grads[2],
        positions_first(mass),
        positions_first(first),
        grad_centre,
        grad_precision,
        grad_logit,
        cut.splits,
        shapes.positions,
        PARENTS=shapes.parents,
        DIMS=shapes.dims,
        TILE=tile,
    )
    children = backward_by_child(
        shapes, poses, activations, matrices, m, grads, (p, shifted, log_total, grad_activation)
    )
    return *children, *(parents_first(grad) for grad in (grad_centre, grad_precision, grad_logit))


def uniform_forward(poses: Tensor, activations: Tensor, maps: Tensor, window: Window) -> tuple[Tensor, ...]:
    from quatcaps.routing.soft_moments.kernels import forward, parts

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


def uniform_backward(
    grad_mass: Tensor,
    grad_first: Tensor,
    grad_second: Tensor,
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    centre: Tensor,
    window: Window,
) -> tuple[Tensor, ...]:
    shapes = Shapes.of(poses, maps, window)
    grads = tuple(positions_first(grad) for grad in (grad_mass, grad_first, grad_second))
    m = positions_first(centre)
    return backward_by_child(shapes, poses.contiguous(), activations.contiguous(), by_parent(maps), m, grads, None)


def backward_by_child(
    shapes: Shapes,
    poses: Tensor,
    activations: Tensor,
    matrices: Tensor,
    centre: Tensor,
    grads: tuple[Tensor, ...],
    assigned: tuple[Tensor, Tensor, Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of poses, activations and maps. `assigned` is what the pass by position has left: precision, shifted
    logits, the logarithms of the softmax and the gradients of activations; without it assignments are uniform."""
    from quatcaps.routing.soft_moments.kernels import backward, parts

    cut = by_child(shapes)
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
    backward.sum_children[cut.launch](
        packed,
        matrices,
        centre,
        *grads,
        *(assigned or (centre,) * 4),
        buffer,
        sums,
        shapes.positions,
        cut.per_program,
        **shapes.constants(),
        UNIFORM=assigned is None,
        **cut.options(),
    )
    grad_maps = torch.empty_like(matrices)
    block = 64
    parts.add_maps[(math.ceil(grad_maps.numel() / block),)](
        sums, grad_maps, sums.numel() // grad_maps.numel(), grad_maps.numel(), TILE=block, TILE_ROWS=16, num_warps=4
    )
    grad_poses, grad_activations = torch.empty_like(poses), torch.empty_like(activations)
    backward.fold[grid](
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


triton_moments = register("triton_moments", forward, backward)
triton_uniform = register_uniform("triton_uniform", uniform_forward, uniform_backward)

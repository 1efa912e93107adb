"""Moments by the fused Triton kernels: what goes to which program."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quatcaps.routing.soft_moments.moments import Moments
from quatcaps.routing.soft_moments.operators import RecomputedVotes, pack, parents_first, positions_first, register
from quatcaps.routing.window import Window

MOST_PARENTS, MOST_DIMS, MOST_COLUMNS = 1024, 16, 4
LEAST_CAPABILITY = (7, 0)


def refuses(poses: Tensor, maps: Tensor, competition: str) -> str | None:
    """Why this backend cannot, or None."""
    if competition != "position":
        return f"shares a child among the parents at one position, not by competition {competition!r}"
    if poses.dtype != torch.float32:
        return f"computes in float32, not {str(poses.dtype).removeprefix('torch.')}"
    parents, columns = maps.shape[2], maps.shape[-1]
    if parents > MOST_PARENTS:
        return f"holds at most {MOST_PARENTS} parent types, not {parents}"
    if poses.shape[2] > MOST_DIMS or columns > MOST_COLUMNS:
        return (
            f"holds poses of at most {MOST_DIMS} numbers in {MOST_COLUMNS} columns, not {poses.shape[2]} in {columns}"
        )
    return unavailable(poses.device)


@functools.cache
def unavailable(device: torch.device) -> str | None:
    """Why Triton cannot run there, or None."""
    if importlib.util.find_spec("triton") is None:
        return "needs the package triton, which is not installed"
    if interpreted():
        return None
    if device.type != "cuda":
        return f"needs a CUDA device, not {device.type}"
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        return (
            f"needs compute capability {LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]}, not {capability[0]}.{capability[1]}"
        )
    return None


def interpreted() -> bool:
    """Whether Triton's interpreter stands in for a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def bind(poses: Tensor, activations: Tensor, maps: Tensor, window: Window, *, competition: str) -> RecomputedVotes:
    """The votes of a layer, to be recomputed by the kernels."""
    return RecomputedVotes(triton_moments, uniform, poses, activations, maps, window)


def uniform(poses: Tensor, activations: Tensor, maps: Tensor, window: Window) -> Moments:
    """Moments under uniform assignments, about a centre near the mean."""
    with torch.no_grad():
        centre = mean_vote(poses, activations, maps, window)
    return Moments(centre, *triton_moments(poses, activations, maps, centre, None, None, pack(window)))


def mean_vote(poses: Tensor, activations: Tensor, maps: Tensor, window: Window) -> Tensor:
    """Σ a v / Σ a by convolution, as exactly as the convolution is: the moments do not depend on it."""
    images, children, dims, height, width = poses.shape
    parents, columns = maps.shape[2], maps.shape[-1]
    weighted = (poses * activations[:, :, None]).view(images, children, dims // columns, columns, height, width)
    weighted = weighted.transpose(1, 2).reshape(-1, children * columns, height, width)
    if window.shared:
        weighted = F.avg_pool2d(weighted, (window.height, window.width), window.stride, divisor_override=1)
        weights = maps[0].permute(1, 2, 0, 3).reshape(parents * columns, children * columns, 1, 1)
        total = F.conv2d(weighted, weights)
    else:
        weights = maps.permute(2, 3, 1, 4, 0).reshape(
            parents * columns, children * columns, window.height, window.width
        )
        total = F.conv2d(weighted, weights, stride=window.stride)
    grid = total.shape[-2:]
    total = total.view(images, dims // columns, parents, columns, *grid).transpose(1, 2).flatten(2, 3)
    mass = F.avg_pool2d(
        activations.sum(1, keepdim=True), (window.height, window.width), window.stride, divisor_override=1
    )
    return total / mass.clamp(min=torch.finfo(mass.dtype).tiny)[:, :, None]


@dataclass(frozen=True)
class Shapes:
    """The sizes of one layer's routing, and how its work is cut into programs."""

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

    def options(self) -> dict[str, int]:
        return {"TILE": self.tile, "TILE_PARENTS": self.tile_parents, "num_warps": self.warps}


WARPS_WANTED = 4096
"""Warps in flight and waiting that keep a large GPU busy to the end of a launch."""


def plan(rows: int, steps: int, parents: int, dims: int, per_thread: int, least_steps: int) -> Plan:
    """Cuts `rows` × `parents` into tiles of `per_thread` entries a thread, and `steps` into equal walks of at least
    `least_steps`."""
    tile_parents = max(4, power_of_two(parents))
    warps = min(16, max(1, tile_parents // 16))
    per_thread = per_thread if dims <= 4 else 1
    tile = max(1, min(per_thread * 32 * warps // tile_parents, power_of_two(rows)))
    tiles = math.ceil(rows / tile)
    splits = max(1, min(math.ceil(WARPS_WANTED / (tiles * warps)), steps // least_steps))
    per_program = math.ceil(steps / splits)
    return Plan(tile, tile_parents, warps, tiles, math.ceil(steps / per_program), per_program)


def power_of_two(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << (count - 1).bit_length()


def forward(
    poses: Tensor,
    activations: Tensor,
    maps: Tensor,
    centre: Tensor,
    precision: Tensor | None,
    logit: Tensor | None,
    window: Window,
) -> tuple[Tensor, Tensor, Tensor]:
    from quatcaps.routing.soft_moments import kernels

    shapes = Shapes.of(poses, maps, window)
    cut = plan(shapes.positions, shapes.inside, shapes.parents, shapes.dims, per_thread=8, least_steps=8)
    centre = positions_first(centre)
    uniform = precision is None or logit is None
    mass = centre.new_empty(cut.splits, *centre.shape[:3], shapes.parents)
    first, second = (centre.new_empty(cut.splits, *centre.shape) for _ in range(2))
    kernels.sum_moments[(cut.tiles, cut.splits)](
        poses.contiguous(),
        activations.contiguous(),
        by_parent(maps),
        centre,
        centre if precision is None else positions_first(precision),
        centre if logit is None else positions_first(logit),
        mass,
        first,
        second,
        shapes.positions,
        cut.per_program,
        **shapes.constants(),
        UNIFORM=uniform,
        **cut.options(),
    )
    return add_up(mass), add_up(first), add_up(second)


def backward(
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
    window: Window,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    from quatcaps.routing.soft_moments import kernels

    shapes = Shapes.of(poses, maps, window)
    poses, activations, matrices = poses.contiguous(), activations.contiguous(), by_parent(maps)
    m, g0, g1, g2 = (positions_first(values) for values in (centre, grad_mass, grad_first, grad_second))
    p = shifted = log_total = grad_activation = m
    by_parents = tuple(centre.new_empty(0) for _ in range(3))
    if precision is not None and logit is not None:
        p, c = positions_first(precision), positions_first(logit)
        cut = plan(shapes.positions, shapes.inside, shapes.parents, shapes.dims, per_thread=4, least_steps=8)
        sums = m.new_empty(cut.splits, *c.shape), m.new_empty(cut.splits, *m.shape), m.new_empty(cut.splits, *m.shape)
        shifted = torch.empty_like(c)
        log_total, grad_activation = (m.new_empty(shapes.inside, shapes.positions) for _ in range(2))
        kernels.sum_parents[(cut.tiles, cut.splits)](
            poses,
            activations,
            matrices,
            m,
            p,
            c,
            g0,
            g1,
            g2,
            *sums,
            shifted,
            log_total,
            grad_activation,
            shapes.positions,
            cut.per_program,
            **shapes.constants(),
            **cut.options(),
        )
        grad_logit, with_first, with_second = (add_up(values) for values in sums)
        # d = v − m, so m also moves S1 and S2 directly: ∂S1/∂m = −S0, ∂S2/∂m = −2 S1.
        direct = grad_first * mass[:, :, None] + 2 * grad_second * first
        by_parents = precision * with_first - direct, -0.5 * with_second, grad_logit
    cut = plan(shapes.inside, shapes.positions, shapes.parents, shapes.dims, per_thread=4, least_steps=16)
    columns = m.new_empty(shapes.positions, shapes.dims + 1, shapes.inside)
    grad_maps = m.new_empty(cut.splits, shapes.inside, *matrices.shape[1:])
    kernels.sum_children[(cut.tiles, cut.splits)](
        pack_children(poses, activations),
        matrices,
        m,
        p,
        shifted,
        g0,
        g1,
        g2,
        log_total,
        grad_activation,
        columns,
        grad_maps,
        shapes.positions,
        cut.per_program,
        **shapes.constants(),
        UNIFORM=precision is None,
        **cut.options(),
    )
    grad_maps = grad_maps.view(cut.splits, window.places, shapes.children, *matrices.shape[1:])
    grad_maps = grad_maps.sum((0, 1)).unsqueeze(0) if window.shared else grad_maps.sum(0)
    grad_maps = grad_maps.movedim(-1, 2).unflatten(-1, maps.shape[-2:]).contiguous()
    return *fold(columns, poses, activations, shapes), grad_maps, *by_parents


def fold(columns: Tensor, poses: Tensor, activations: Tensor, shapes: Shapes) -> tuple[Tensor, Tensor]:
    """Gradients of poses and activations from those of each child in each window."""
    from quatcaps.routing.soft_moments import kernels

    grad_poses, grad_activations = torch.empty_like(poses), torch.empty_like(activations)
    pixels = shapes.images * shapes.height * shapes.width
    tile, tile_children = 16, min(32, power_of_two(shapes.children))
    grid = (math.ceil(pixels / tile), math.ceil(shapes.children / tile_children), shapes.dims + 1)
    kernels.fold[grid](
        columns,
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
    return grad_poses, grad_activations


def by_parent(maps: Tensor) -> Tensor:
    """(offsets, I, J, C, C) → (offsets · I, C · C, J), contiguous."""
    return maps.flatten(0, 1).flatten(2).transpose(1, 2).contiguous()


def pack_children(poses: Tensor, activations: Tensor) -> Tensor:
    """(N, I, D, H, W) and (N, I, H, W) → (N, H, W, D + 1, I), contiguous."""
    return torch.cat([poses, activations[:, :, None]], 2).permute(0, 3, 4, 2, 1).contiguous()


def add_up(parts: Tensor) -> Tensor:
    """The sum of partial sums, in their order, in the usual shape."""
    return parents_first(parts[0] if len(parts) == 1 else parts.sum(0))


triton_moments = register("triton_moments", forward, backward)

"""Children as the kernels read them, and their gradients from the columns of all windows."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.parts import window_with


@triton.jit
def narrow_tile(pixels, CHILDREN: tl.constexpr, PLANE: tl.constexpr, TILE: tl.constexpr, TILE_CHILDREN: tl.constexpr):
    """Of a program's [pixels × child types]: both, which there are, and where they lie: as (n, i, ·) and, within a
    plane, (y, x); the number of a pose, or the activation behind them, is the third of the program's."""
    pixel = tl.program_id(0) * TILE + tl.arange(0, TILE)
    i = tl.program_id(1) * TILE_CHILDREN + tl.arange(0, TILE_CHILDREN)
    mask = (pixel < pixels)[:, None] & (i < CHILDREN)[None, :]
    channel = (pixel // PLANE).to(tl.int64)[:, None] * CHILDREN + i[None, :]
    return pixel, i[None, :], mask, channel, (pixel % PLANE)[:, None]


@triton.jit
def lay_children(
    poses,  # (n, y, x, h, i)
    activations,  # (n, y, x, i)
    laid_poses,  # (n, i, h, y, x)
    laid_activations,  # (n, i, y, x)
    pixels,
    limit,
    CHILDREN: tl.constexpr,
    DIMS: tl.constexpr,
    PLANE: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CHILDREN: tl.constexpr,
):
    """Parents as the narrow children of the next layer, their poses within ±limit."""
    pixel, i, mask, channel, within = narrow_tile(pixels, CHILDREN, PLANE, TILE, TILE_CHILDREN)
    routed, h = pixel.to(tl.int64)[:, None] * CHILDREN, tl.program_id(2)
    if h < DIMS:
        values = tl.load(poses + routed * DIMS + h * CHILDREN + i, mask=mask, other=0.0)
        values = tl.where(values > limit, limit, tl.where(values < -limit, -limit, values))
        tl.store(laid_poses + (channel * DIMS + h) * PLANE + within, values, mask=mask)
    else:
        values = tl.load(activations + routed + i, mask=mask, other=0.0)
        tl.store(laid_activations + channel * PLANE + within, values, mask=mask)


@triton.jit
def lay_children_backward(
    grad_laid_poses,  # (n, i, h, y, x)
    grad_laid_activations,  # (n, i, y, x)
    poses,  # (n, y, x, h, i)
    grad_poses,  # (n, y, x, h, i)
    grad_activations,  # (n, y, x, i)
    pixels,
    limit,
    CHILDREN: tl.constexpr,
    DIMS: tl.constexpr,
    PLANE: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CHILDREN: tl.constexpr,
):
    """The way back: nothing for a number at its limit or beyond."""
    pixel, i, mask, channel, within = narrow_tile(pixels, CHILDREN, PLANE, TILE, TILE_CHILDREN)
    routed, h = pixel.to(tl.int64)[:, None] * CHILDREN, tl.program_id(2)
    if h < DIMS:
        place = routed * DIMS + h * CHILDREN + i
        values = tl.load(poses + place, mask=mask, other=0.0)
        grad = tl.load(grad_laid_poses + (channel * DIMS + h) * PLANE + within, mask=mask, other=0.0)
        tl.store(grad_poses + place, tl.where((values >= limit) | (values <= -limit), 0.0, grad), mask=mask)
    else:
        grad = tl.load(grad_laid_activations + channel * PLANE + within, mask=mask, other=0.0)
        tl.store(grad_activations + routed + i, grad, mask=mask)


@triton.jit
def pack_children(
    poses,  # (n, i, h, y, x)
    activations,  # (n, i, y, x)
    packed,  # (n, y, x, h + 1, i)
    pixels,
    LAYER: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CHILDREN: tl.constexpr,
):
    """Narrow children as neighbours in memory, each pose followed by its activation."""
    pixel, i, mask, channel, within = narrow_tile(pixels, LAYER.CHILDREN, LAYER.PLANE, TILE, TILE_CHILDREN)
    h = tl.program_id(2)
    if h < LAYER.DIMS:
        values = tl.load(poses + (channel * LAYER.DIMS + h) * LAYER.PLANE + within, mask=mask, other=0.0)
    else:
        values = tl.load(activations + channel * LAYER.PLANE + within, mask=mask, other=0.0)
    target = packed + (pixel.to(tl.int64)[:, None] * (LAYER.DIMS + 1) + h) * LAYER.CHILDREN + i
    tl.store(target, values, mask=mask)


@triton.jit
def fold(
    columns,  # (p, h + 1, b)
    grad_poses,  # (n, i, h, y, x)
    grad_activations,  # (n, i, y, x)
    pixels,
    LAYER: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CHILDREN: tl.constexpr,
):
    """Each narrow child's gradient: the sum of its columns in all windows that hold it, place by place."""
    pixel, i, mask, channel, within = narrow_tile(pixels, LAYER.CHILDREN, LAYER.PLANE, TILE, TILE_CHILDREN)
    h = tl.program_id(2)
    image, y, x = pixel // LAYER.PLANE, pixel // LAYER.WIDTH % LAYER.HEIGHT, pixel % LAYER.WIDTH
    total = tl.zeros([TILE, TILE_CHILDREN], tl.float32)
    for ky in range(LAYER.KERNEL_HEIGHT):
        for kx in range(LAYER.KERNEL_WIDTH):
            p, seen = window_with(ky, kx, image, y, x, LAYER)
            source = (
                columns + (p * (LAYER.DIMS + 1) + h) * LAYER.INSIDE + (ky * LAYER.KERNEL_WIDTH + kx) * LAYER.CHILDREN
            )
            total += tl.load(source[:, None] + i, mask=mask & seen[:, None], other=0.0)
    if h < LAYER.DIMS:
        tl.store(grad_poses + (channel * LAYER.DIMS + h) * LAYER.PLANE + within, total, mask=mask)
    else:
        tl.store(grad_activations + channel * LAYER.PLANE + within, total, mask=mask)


@triton.jit
def fold_wide(
    columns,  # (p, place, [i × h, i])
    grad_poses,  # (n, y, x, i, h)
    grad_activations,  # (n, y, x, i)
    LAYER: tl.constexpr,
    TILE: tl.constexpr,
):
    """The same of wide children."""
    CHANNELS: tl.constexpr = LAYER.CHILDREN * (LAYER.DIMS + 1)
    POSES: tl.constexpr = LAYER.CHILDREN * LAYER.DIMS
    pixel = tl.program_id(0)
    channel = tl.program_id(1) * TILE + tl.arange(0, TILE)
    image, y, x = pixel // LAYER.PLANE, pixel // LAYER.WIDTH % LAYER.HEIGHT, pixel % LAYER.WIDTH
    total = tl.zeros([TILE], tl.float32)
    for ky in range(LAYER.KERNEL_HEIGHT):
        for kx in range(LAYER.KERNEL_WIDTH):
            p, seen = window_with(ky, kx, image, y, x, LAYER)
            source = columns + (p * LAYER.PLACES + ky * LAYER.KERNEL_WIDTH + kx) * CHANNELS
            total += tl.load(source + channel, mask=seen & (channel < CHANNELS), other=0.0)
    tl.store(grad_poses + tl.cast(pixel, tl.int64) * POSES + channel, total, mask=channel < POSES)
    of_activation = (channel >= POSES) & (channel < CHANNELS)
    place = tl.cast(pixel, tl.int64) * LAYER.CHILDREN + (channel - POSES)
    tl.store(grad_activations + place, total, mask=of_activation)

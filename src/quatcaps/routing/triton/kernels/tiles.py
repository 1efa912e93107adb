"""Arithmetic that the passes share, on tuples of tiles, narrow and wide."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from quatcaps.accelerator import interpreted

LOG2E = tl.constexpr(1.4426950408889634)
INTERPRETED = tl.constexpr(interpreted())
SMALLEST = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def zeros(COUNT: tl.constexpr, LAYER: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    """COUNT tiles."""
    TILE_COLUMNS: tl.constexpr = LAYER.TILE_COLUMNS
    tiles = ()
    for _ in tl.static_range(COUNT):
        if LAYER.WIDE:
            tiles += (tl.zeros([TILE, TILE_PARENTS, TILE_COLUMNS], tl.float32),)
        else:
            tiles += (tl.zeros([TILE, TILE_PARENTS], tl.float32),)
    return tiles


@triton.jit
def over_parents(u, LAYER: tl.constexpr):
    """A child's numbers at many positions, to go with tiles."""
    if LAYER.WIDE:
        return u
    else:
        tiles = ()
        COUNT: tl.constexpr = LAYER.COUNT
        for h in tl.static_range(COUNT):
            tiles += (u[h][:, None],)
        return tiles


@triton.jit
def over_positions(matrix, LAYER: tl.constexpr):
    """A child's maps to all parents, to go with tiles."""
    if LAYER.WIDE:
        return matrix
    else:
        tiles = ()
        CELLS: tl.constexpr = LAYER.CELLS
        for k in tl.static_range(CELLS):
            tiles += (matrix[k][None, :],)
        return tiles


@triton.jit
def over_dims(weight, LAYER: tl.constexpr):
    """One number per parent, to go with the tiles of poses."""
    if LAYER.WIDE:
        return weight[:, :, None]
    else:
        return weight


@triton.jit
def votes(start, sign: tl.constexpr, matrix, u, LAYER: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    """A u plus sign · start; of rotors w, u w plus that."""
    ROWS: tl.constexpr = LAYER.ROWS
    COLUMNS: tl.constexpr = LAYER.COLUMNS
    if LAYER.ROTORS:
        return hamilton((sign * start[0], sign * start[1], sign * start[2], sign * start[3]), u, matrix)
    else:
        found = ()
        for r in tl.static_range(ROWS):
            if LAYER.WIDE:
                numbers = apart(u[r], LAYER, TILE, TILE_PARENTS)
                vote = sign * start[r]
                for e in tl.static_range(COLUMNS):
                    vote += matrix[e] * numbers[e]
                found += (vote,)
            else:
                for k in tl.static_range(COLUMNS):
                    vote = sign * start[r * COLUMNS + k]
                    for e in tl.static_range(COLUMNS):
                        vote += matrix[k * COLUMNS + e] * u[r * COLUMNS + e]
                    found += (vote,)
        return found


@triton.jit
def hamilton(start, p, q):
    """start + p q, quaternions as tuples of tiles, scalar first."""
    w = start[0] + p[0] * q[0] - p[1] * q[1] - p[2] * q[2] - p[3] * q[3]
    x = start[1] + p[0] * q[1] + p[1] * q[0] + p[2] * q[3] - p[3] * q[2]
    y = start[2] + p[0] * q[2] - p[1] * q[3] + p[2] * q[0] + p[3] * q[1]
    z = start[3] + p[0] * q[3] + p[1] * q[2] - p[2] * q[1] + p[3] * q[0]
    return w, x, y, z


@triton.jit
def apart(tile, LAYER: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    """The columns of a tile, each as one that spreads over columns: it costs nothing, the columns lie in one thread."""
    if LAYER.TILE_COLUMNS == 4:
        even, odd = tl.split(tl.reshape(tile, [TILE, TILE_PARENTS, 2, 2]))
        first, third = tl.split(even)
        second, fourth = tl.split(odd)
        return first[:, :, None], second[:, :, None], third[:, :, None], fourth[:, :, None]
    elif LAYER.TILE_COLUMNS == 2:
        first, second = tl.split(tile)
        return first[:, :, None], second[:, :, None]
    else:
        return (tile,)


@triton.jit
def dot(start, left, right, LAYER: tl.constexpr):
    """start + Σ_h left_h right_h: [tile × parents]."""
    COUNT: tl.constexpr = LAYER.COUNT
    if LAYER.WIDE:
        total = left[0] * right[0]
        for r in tl.static_range(1, COUNT):
            total += left[r] * right[r]
        return start + tl.sum(total, 2)
    else:
        total = start
        for h in tl.static_range(COUNT):
            total += left[h] * right[h]
        return total


@triton.jit
def coordinates(b, LAYER: tl.constexpr):
    """Where child b stands in its window: row and column, by the window's rule."""
    place = b // LAYER.CHILDREN
    if LAYER.RULE == 2:
        return place * 0.0 + 0.1, place * 0.0 + 0.1
    elif LAYER.RULE == 1:
        row = (place // LAYER.KERNEL_WIDTH + 1.0) * (0.1 / LAYER.KERNEL_HEIGHT)
        return row, (place % LAYER.KERNEL_WIDTH + 1.0) * (0.1 / LAYER.KERNEL_WIDTH)
    else:
        row = (place // LAYER.KERNEL_WIDTH + 0.5) * (1.0 / LAYER.KERNEL_HEIGHT)
        return row, (place % LAYER.KERNEL_WIDTH + 0.5) * (1.0 / LAYER.KERNEL_WIDTH)


@triton.jit
def moved(tiles, row, column, LAYER: tl.constexpr):
    """The tiles less the coordinates of a child, which stand in the last column of the first two rows: d = A u + s − m
    is A u − (m − s)."""
    COUNT: tl.constexpr = LAYER.COUNT
    less = ()
    if LAYER.WIDE:
        last = (tl.arange(0, LAYER.TILE_COLUMNS) == LAYER.COLUMNS - 1)[None, None, :]
        less += (tiles[0] - tl.where(last, row, 0.0), tiles[1] - tl.where(last, column, 0.0))
        for r in tl.static_range(2, COUNT):
            less += (tiles[r],)
    else:
        for h in tl.static_range(COUNT):
            if h == LAYER.COLUMNS - 1:
                less += (tiles[h] - row,)
            elif h == 2 * LAYER.COLUMNS - 1:
                less += (tiles[h] - column,)
            else:
                less += (tiles[h],)
    return less


@triton.jit
def deviations(m, matrix, u, b, LAYER: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    """d = v − m of child b at many positions."""
    centred = m
    if LAYER.COORDINATES:
        row, column = coordinates(b, LAYER)
        centred = moved(m, row, column, LAYER)
    seen = over_parents(u, LAYER)
    return votes(centred, -1.0, over_positions(matrix, LAYER), seen, LAYER, TILE, TILE_PARENTS)


@triton.jit
def of_shares(da, log_sum, LAYER: tl.constexpr):
    """What the gradient of a child's activation takes from those of its logits: nothing where its total is the floor,
    which does not depend on them."""
    if LAYER.FLOORED:
        return tl.where(log_sum > LAYER.FLOOR, da, 0.0)
    else:
        return da


@triton.jit
def softmax(logits):
    """exp2(logits), up to a factor that keeps them finite; their sum over parents; and the logarithm of the sum."""
    largest = tl.max(logits, 1)
    powers = tl.exp2(logits - largest[:, None])
    total = tl.sum(powers, 1)
    return powers, total, largest + log2(total)


@triton.jit
def with_slack(log_sum):
    """Logarithms so large that float32 has no digits left behind the point are made a little larger: a share that the
    backward finds from a rounded logit then stays below 1."""
    return log_sum + tl.maximum(tl.abs(log_sum) - 16777216.0, 0.0) * 2e-6


@triton.jit
def log2(x):
    """By the hardware's instruction, exact to 2⁻²² for x from 1 up; the interpreter has none."""
    if INTERPRETED:
        return tl.log2(x)
    else:
        return libdevice.fast_log2f(x)


@triton.jit
def scaled(tiles, factor, COUNT: tl.constexpr):
    result = ()
    for k in tl.static_range(COUNT):
        result += (tiles[k] * factor,)
    return result


@triton.jit
def products(left, right, COUNT: tl.constexpr):
    result = ()
    for k in tl.static_range(COUNT):
        result += (left[k] * right[k],)
    return result


@triton.jit
def sums(left, right, COUNT: tl.constexpr):
    result = ()
    for k in tl.static_range(COUNT):
        result += (left[k] + right[k],)
    return result


@triton.jit
def plus_products(start, left, right, COUNT: tl.constexpr):
    """start + left · right, tile by tile."""
    result = ()
    for k in tl.static_range(COUNT):
        result += (start[k] + left[k] * right[k],)
    return result


@triton.jit
def plus_weighted(start, weight, tiles, COUNT: tl.constexpr):
    """start + weight · tiles, tile by tile."""
    result = ()
    for k in tl.static_range(COUNT):
        result += (start[k] + weight * tiles[k],)
    return result

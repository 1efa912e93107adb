"""What the passes over wide poses share: loading children and parents, and arithmetic on tuples of tiles.

A pose of R rows and C columns is a tuple of R tiles [tile × parents × C], the columns of a row side by side in one
thread. A thread then reads a row at once, and the compiler has a quarter of the operations to think about that it would
have with one tile a number.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.tiles import SMALLEST, locate


@triton.jit
def load_tiles(source, mask, COUNT: tl.constexpr, STRIDE: tl.constexpr):
    """COUNT tiles, so far apart."""
    tiles = ()
    for n in tl.static_range(COUNT):
        tiles += (tl.load(source + n * STRIDE, mask=mask, other=0.0),)
    return tiles


@triton.jit
def store_tiles(target, tiles, mask, COUNT: tl.constexpr, STRIDE: tl.constexpr):
    for n in tl.static_range(COUNT):
        tl.store(target + n * STRIDE, tiles[n], mask=mask)


@triton.jit
def zero_tiles(COUNT: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr, TILE_COLUMNS: tl.constexpr):
    tiles = ()
    for _ in tl.static_range(COUNT):
        tiles += (tl.zeros([TILE, TILE_PARENTS, TILE_COLUMNS], tl.float32),)
    return tiles


@triton.jit
def apart(tile, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr, TILE_COLUMNS: tl.constexpr):
    """The columns of a tile, each as one that spreads over columns: it costs nothing, the columns lie in one thread."""
    if TILE_COLUMNS == 4:
        even, odd = tl.split(tl.reshape(tile, [TILE, TILE_PARENTS, 2, 2]))
        first, third = tl.split(even)
        second, fourth = tl.split(odd)
        return first[:, :, None], second[:, :, None], third[:, :, None], fourth[:, :, None]
    elif TILE_COLUMNS == 2:
        first, second = tl.split(tile)
        return first[:, :, None], second[:, :, None]
    else:
        return (tile,)


@triton.jit
def places(
    p,
    positions,
    CHILDREN: tl.constexpr,
    DIMS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    GRID_HEIGHT: tl.constexpr,
    GRID_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
):
    """Where the first child of each position's window lies among the activations, and the first row of its pose among
    the poses: that at [tile × parents × columns], the same for all parents, so that each thread reads a row at once."""
    column = tl.arange(0, TILE_COLUMNS)
    image, corner = locate(tl.minimum(p, positions - 1), GRID_HEIGHT, GRID_WIDTH, WIDTH, STRIDE)
    first = (image.to(tl.int64) * (HEIGHT * WIDTH) + corner) * CHILDREN
    spread = tl.zeros([TILE, TILE_PARENTS, TILE_COLUMNS], tl.int32)
    return first, first[:, None, None] * DIMS + column[None, None, :] + spread, (column < COLUMNS)[None, None, :]


@triton.jit
def load_child(
    poses,  # at `places`
    activations,
    maps,
    b,
    j,
    short,
    CHILDREN: tl.constexpr,
    PARENTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
    SHARED: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
):
    """Pose (by row) and activation of child b in the windows of all positions of the tile, and its maps to all parents
    (by the column of the pose that they take)."""
    place, i = b // CHILDREN, b % CHILDREN
    shift = (place // KERNEL_WIDTH * WIDTH + place % KERNEL_WIDTH) * CHILDREN + i
    whole = tl.zeros([TILE, TILE_PARENTS, TILE_COLUMNS], tl.int1)
    u = load_tiles(poses + shift * (ROWS * COLUMNS), short | whole, ROWS, COLUMNS)
    a = tl.load(activations + shift)
    column = tl.arange(0, TILE_COLUMNS)
    of_parent = (j * COLUMNS)[None, :, None] + column[None, None, :] + whole.to(tl.int32)
    row = maps + (i if SHARED else b) * (COLUMNS * COLUMNS * PARENTS)
    real = short & (j < PARENTS)[None, :, None] | whole
    return u, a, load_tiles(row + of_parent, real, COLUMNS, COLUMNS * PARENTS)


@triton.jit
def own_rows(
    p,
    j,
    here,
    PARENTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
):
    """Where the first row of a parent's numbers lies in (p, h, j), the others COLUMNS · PARENTS apart; and a mask."""
    column = tl.arange(0, TILE_COLUMNS)
    place = p[:, None, None] * (ROWS * COLUMNS * PARENTS) + (column * PARENTS)[None, None, :] + j[None, :, None]
    return place, here[:, None, None] & (j < PARENTS)[None, :, None] & (column < COLUMNS)[None, None, :]


@triton.jit
def votes(
    start,
    sign: tl.constexpr,
    matrix,
    u,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
):
    """A u plus sign · start, row by row."""
    found = ()
    for r in tl.static_range(ROWS):
        numbers = apart(u[r], TILE, TILE_PARENTS, TILE_COLUMNS)
        vote = sign * start[r]
        for e in tl.static_range(COLUMNS):
            vote += matrix[e] * numbers[e]
        found += (vote,)
    return found


@triton.jit
def moved(tiles, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILE_COLUMNS: tl.constexpr):
    """The tiles less the coordinates of a child, which stand in the last column of the first two rows."""
    last = (tl.arange(0, TILE_COLUMNS) == COLUMNS - 1)[None, None, :]
    less = (tiles[0] - tl.where(last, row, 0.0), tiles[1] - tl.where(last, column, 0.0))
    for r in tl.static_range(2, ROWS):
        less += (tiles[r],)
    return less


@triton.jit
def sum_products(left, right, ROWS: tl.constexpr):
    """Σ_h left_h right_h over all numbers of a pose: [tile × parents]."""
    total = left[0] * right[0]
    for r in tl.static_range(1, ROWS):
        total += left[r] * right[r]
    return tl.sum(total, 2)


@triton.jit
def store_sums(sums, zeroth, first, second, p, j, here, positions, PARENTS, ROWS, COLUMNS, TILE_COLUMNS):
    """A split's sums, side by side: one number per parent, then twice one per dimension of it."""
    small = tl.cast(positions, tl.int64) * PARENTS
    part = sums + tl.program_id(1) * (small * (1 + 2 * ROWS * COLUMNS))
    tl.store(part + p[:, None] * PARENTS + j[None, :], zeroth, mask=here[:, None] & (j < PARENTS)[None, :])
    place, mask = own_rows(p, j, here, PARENTS, ROWS, COLUMNS, TILE_COLUMNS)
    store_tiles(part + small + place, first, mask, ROWS, COLUMNS * PARENTS)
    store_tiles(part + small * (1 + ROWS * COLUMNS) + place, second, mask, ROWS, COLUMNS * PARENTS)


@triton.jit
def inverse(weight):
    """One over a sum of activations, finite where there are none."""
    return 1.0 / tl.maximum(weight, SMALLEST)

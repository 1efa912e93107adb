"""What the passes share: loading children and parents, and arithmetic on tuples of tiles."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from quatcaps.accelerator import interpreted

LOG2E = tl.constexpr(1.4426950408889634)
INTERPRETED = tl.constexpr(interpreted())
SMALLEST = tl.constexpr(1.1754943508222875e-38)
SOME = tl.constexpr(8)
"""Of the children, every so many find the centre of uniform moments."""
EXCHANGE_16, EXCHANGE_8, EXCHANGE_4, EXCHANGE_2, EXCHANGE_1 = (
    tl.constexpr(f"shfl.sync.bfly.b32 $0, $1, {lanes}, 0x1f, 0xffffffff;") for lanes in (16, 8, 4, 2, 1)
)
"""With the lane whose number differs in one bit."""


@triton.jit
def tile_of_positions(positions, PARENTS: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    """A program's positions and parents, and which of them there are."""
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    here = p < positions
    return p, j, here, here[:, None] & (j < PARENTS)[None, :]


@triton.jit
def locate(p, GRID_HEIGHT: tl.constexpr, GRID_WIDTH: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr):
    """The image of a position, and the pixel in the upper left corner of its window."""
    within = p % (GRID_HEIGHT * GRID_WIDTH)
    corner = within // GRID_WIDTH * (STRIDE * WIDTH) + within % GRID_WIDTH * STRIDE
    return p // (GRID_HEIGHT * GRID_WIDTH), corner


@triton.jit
def load_child(
    poses,
    activations,
    maps,
    b,
    j,
    here,
    CHILDREN: tl.constexpr,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PLANE: tl.constexpr,
    WIDTH: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
    SHARED: tl.constexpr,
):
    """Pose and activation of child b in the windows of all positions of the tile, and its maps to all parents."""
    place, i = b // CHILDREN, b % CHILDREN
    shift = place // KERNEL_WIDTH * WIDTH + place % KERNEL_WIDTH
    pose = poses + (i * (DIMS * PLANE) + shift)
    u = ()
    for h in tl.static_range(DIMS):
        u += (tl.load(pose + h * PLANE, mask=here, other=0.0),)
    a = load_activation(activations, b, here, CHILDREN, PLANE, WIDTH, KERNEL_WIDTH)
    row = maps + (i if SHARED else b) * (COLUMNS * COLUMNS * PARENTS) + j
    matrix = ()
    for k in tl.static_range(COLUMNS * COLUMNS):
        matrix += (tl.load(row + k * PARENTS, mask=j < PARENTS, other=0.0),)
    return u, a, matrix


@triton.jit
def load_activation(
    activations,
    b,
    here,
    CHILDREN: tl.constexpr,
    PLANE: tl.constexpr,
    WIDTH: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
):
    """The activation alone of child b in the windows of all positions of the tile."""
    place, i = b // CHILDREN, b % CHILDREN
    shift = place // KERNEL_WIDTH * WIDTH + place % KERNEL_WIDTH
    return tl.load(activations + (i * PLANE + shift), mask=here, other=0.0)


@triton.jit
def load_position(
    p,
    window,
    rows,
    children,
    here,
    real,
    CHILDREN: tl.constexpr,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    GRID_HEIGHT: tl.constexpr,
    GRID_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """Poses and activations of the tile's children in the window at p, and what its parents are and want."""
    image, corner = locate(p, GRID_HEIGHT, GRID_WIDTH, WIDTH, STRIDE)
    seen = window + (tl.cast(image, tl.int64) * (HEIGHT * WIDTH) + corner) * ((DIMS + 1) * CHILDREN)
    u = ()
    for h in tl.static_range(DIMS):
        u += (tl.load(seen + h * CHILDREN, mask=here, other=0.0),)
    a = tl.load(seen + DIMS * CHILDREN, mask=here, other=0.0)
    if WEIGHTED:
        row = rows + p * ((4 * DIMS + 2) * PARENTS)
        m = load_rows(row, real, DIMS, PARENTS)
        q = load_rows(row + DIMS * PARENTS, real, DIMS, PARENTS)
        g1 = load_rows(row + 2 * DIMS * PARENTS, real, DIMS, PARENTS)
        g2 = load_rows(row + 3 * DIMS * PARENTS, real, DIMS, PARENTS)
        c = tl.load(row + 4 * DIMS * PARENTS, mask=real, other=float("-inf"))[None, :]
        g0 = tl.load(row + (4 * DIMS + 1) * PARENTS, mask=real, other=0.0)[None, :]
        log_sum = tl.load(children[0] + p, mask=here, other=0.0)
        da = tl.load(children[1] + p, mask=here, other=0.0)
        return u, a, m, q, g1, g2, c, g0, log_sum, da
    else:
        m = load_rows(rows + p * ((3 * DIMS + 1) * PARENTS), real, DIMS, PARENTS)
        return u, a, m, m, m, m, a, a, a, a


@triton.jit
def slopes(g0, g1, g2, d, DIMS: tl.constexpr):
    """The gradient of a weight, g0 + Σ_h (g1 d + g2 d²), and g1 + g2 d."""
    slope = ()
    for h in tl.static_range(DIMS):
        slope += (g1[h] + g2[h] * d[h],)
    return add_products(g0, d, slope, DIMS), slope


@triton.jit
def load_logits(logit, p, j, here, mask, PARENTS: tl.constexpr):
    """c_j less its largest, in units of log 2: a common offset of logits changes nothing, and costs digits. The tile's
    parents beyond the last get −∞."""
    c = tl.load(logit + p[:, None] * PARENTS + j[None, :], mask=mask, other=float("-inf"))
    c = tl.where(here[:, None], c, 0.0)
    return (c - tl.max(c, 1)[:, None]) * LOG2E


@triton.jit
def load_tiles(source, row, j, mask, COUNT: tl.constexpr, PARENTS: tl.constexpr):
    """COUNT tiles of (row, COUNT, j)."""
    place = source + row[:, None] * (COUNT * PARENTS) + j[None, :]
    tiles = ()
    for k in tl.static_range(COUNT):
        tiles += (tl.load(place + k * PARENTS, mask=mask, other=0.0),)
    return tiles


@triton.jit
def load_rows(source, real, DIMS: tl.constexpr, PARENTS: tl.constexpr):
    """The parents at one position, as DIMS rows that spread over a tile."""
    rows = ()
    for h in tl.static_range(DIMS):
        rows += (tl.load(source + h * PARENTS, mask=real, other=0.0)[None, :],)
    return rows


@triton.jit
def store_tiles(target, tiles, row, j, mask, COUNT: tl.constexpr, PARENTS: tl.constexpr):
    place = target + row[:, None] * (COUNT * PARENTS) + j[None, :]
    for k in tl.static_range(COUNT):
        tl.store(place + k * PARENTS, tiles[k], mask=mask)


@triton.jit
def store_sums(sums, zeroth, first, second, p, j, mask, positions, DIMS: tl.constexpr, PARENTS: tl.constexpr):
    """A split's sums, side by side: one number per parent, then twice one per dimension of it."""
    small = tl.cast(positions, tl.int64) * PARENTS
    part = sums + tl.program_id(1) * (small * (1 + 2 * DIMS))
    tl.store(part + p[:, None] * PARENTS + j[None, :], zeroth, mask=mask)
    store_tiles(part + small, first, p, j, mask, DIMS, PARENTS)
    store_tiles(part + small * (1 + DIMS), second, p, j, mask, DIMS, PARENTS)


@triton.jit
def zero_tiles(COUNT: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    tiles = ()
    for _ in tl.static_range(COUNT):
        tiles += (tl.zeros([TILE, TILE_PARENTS], tl.float32),)
    return tiles


@triton.jit
def deviations(matrix, u, m, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """d = A u − m, for one child at many positions: A varies along parents, u along positions."""
    d = ()
    for r in tl.static_range(ROWS):
        for k in tl.static_range(COLUMNS):
            vote = -m[r * COLUMNS + k]
            for e in tl.static_range(COLUMNS):
                vote += matrix[k * COLUMNS + e][None, :] * u[r * COLUMNS + e][:, None]
            d += (vote,)
    return d


@triton.jit
def deviations_by_child(matrix, u, m, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """d = A u − m, for many children at one position: A varies along both, u along children, m along parents."""
    d = ()
    for r in tl.static_range(ROWS):
        for k in tl.static_range(COLUMNS):
            vote = matrix[k * COLUMNS] * u[r * COLUMNS][:, None] - m[r * COLUMNS + k]
            for e in tl.static_range(1, COLUMNS):
                vote += matrix[k * COLUMNS + e] * u[r * COLUMNS + e][:, None]
            d += (vote,)
    return d


@triton.jit
def halved(values, upper, EXCHANGE: tl.constexpr, HALF: tl.constexpr):
    """Twice HALF tiles become HALF: a lane gives away one half and gets what its partner has of the other. `upper` says
    which half a lane keeps, EXCHANGE is the instruction that trades with the partner."""
    kept = ()
    for i in tl.static_range(HALF):
        own = tl.where(upper, values[i + HALF], values[i])
        given = tl.where(upper, values[i], values[i + HALF])
        kept += (own + tl.inline_asm_elementwise(EXCHANGE, "=f,f", [given], dtype=tl.float32, is_pure=False, pack=1),)
    return kept


@triton.jit
def sums_by_lane(values, j):
    """Sums over parents of 16 tiles of one warp that has one parent a thread: that of tile number j // 2. 16 exchanges
    between lanes instead of 80."""
    values = halved(values, ((j & 16) != 0)[None, :], EXCHANGE_16, 8)
    values = halved(values, ((j & 8) != 0)[None, :], EXCHANGE_8, 4)
    values = halved(values, ((j & 4) != 0)[None, :], EXCHANGE_4, 2)
    values = halved(values, ((j & 2) != 0)[None, :], EXCHANGE_2, 1)
    last = values[0]
    return last + tl.inline_asm_elementwise(EXCHANGE_1, "=f,f", [last], dtype=tl.float32, is_pure=False, pack=1)


@triton.jit
def coordinates(b, CHILDREN: tl.constexpr, PLACES: tl.constexpr, KERNEL_WIDTH: tl.constexpr):
    """Where child b stands in its window: row and column, from 0 to 1."""
    place = b // CHILDREN
    row = (place // KERNEL_WIDTH + 0.5) * (KERNEL_WIDTH / PLACES)
    return row, (place % KERNEL_WIDTH + 0.5) * (1.0 / KERNEL_WIDTH)


@triton.jit
def moved(tiles, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The tiles less the coordinates of a child: d = A u + s − m is A u − (m − s)."""
    less = ()
    for h in tl.static_range(ROWS * COLUMNS):
        if h == COLUMNS - 1:
            less += (tiles[h] - row,)
        elif h == 2 * COLUMNS - 1:
            less += (tiles[h] - column,)
        else:
            less += (tiles[h],)
    return less


@triton.jit
def softmax(logits):
    """exp2(logits), up to a factor that keeps them finite; their sum over parents; and the logarithm of the sum."""
    largest = tl.max(logits, 1)
    powers = tl.exp2(logits - largest[:, None])
    total = tl.sum(powers, 1)
    return powers, total, largest + log2(total)


@triton.jit
def log2(x):
    """By the hardware's instruction, exact to 2⁻²² for x from 1 up; the interpreter has none."""
    if INTERPRETED:
        return tl.log2(x)
    else:
        return libdevice.fast_log2f(x)


@triton.jit
def multiply(left, right, COUNT: tl.constexpr):
    tiles = ()
    for k in tl.static_range(COUNT):
        tiles += (left[k] * right[k],)
    return tiles


@triton.jit
def add_products(start, left, right, COUNT: tl.constexpr):
    """start + Σ_h left_h right_h."""
    total = start
    for k in tl.static_range(COUNT):
        total += left[k] * right[k]
    return total


@triton.jit
def accumulate(sums, weight, tiles, COUNT: tl.constexpr):
    """sums + weight · tiles, tile by tile."""
    total = ()
    for k in tl.static_range(COUNT):
        total += (sums[k] + weight * tiles[k],)
    return total


@triton.jit
def add_votes(sums, matrix, u, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """sums + A u, for one child at many positions."""
    total = ()
    for r in tl.static_range(ROWS):
        for k in tl.static_range(COLUMNS):
            vote = sums[r * COLUMNS + k]
            for e in tl.static_range(COLUMNS):
                vote += matrix[k * COLUMNS + e][None, :] * u[r * COLUMNS + e][:, None]
            total += (vote,)
    return total


@triton.jit
def add_tiles(left, right, COUNT: tl.constexpr):
    tiles = ()
    for k in tl.static_range(COUNT):
        tiles += (left[k] + right[k],)
    return tiles


@triton.jit
def add_each_product(sums, left, right, COUNT: tl.constexpr):
    """sums + left · right, tile by tile."""
    total = ()
    for k in tl.static_range(COUNT):
        total += (sums[k] + left[k] * right[k],)
    return total


@triton.jit
def scale_tiles(tiles, factor, COUNT: tl.constexpr):
    scaled = ()
    for k in tl.static_range(COUNT):
        scaled += (tiles[k] * factor,)
    return scaled

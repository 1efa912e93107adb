"""What the passes share: loading children and parents, and arithmetic on tuples of tiles, narrow and wide."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from quatcaps.accelerator import interpreted

LOG2E = tl.constexpr(1.4426950408889634)
INTERPRETED = tl.constexpr(interpreted())
SMALLEST = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def tile_of_positions(positions, LAYER: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    """A program's positions and parents, and which of them there are."""
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    here = p < positions
    return p, j, here, here[:, None] & (j < LAYER.PARENTS)[None, :]


@triton.jit
def steps_of_program(per_program, steps):
    """From where to where a program walks."""
    start = tl.program_id(1) * per_program
    return start, tl.minimum(start + per_program, steps)


@triton.jit
def locate(p, LAYER: tl.constexpr):
    """The image of a position, and the pixel in the upper left corner of its window."""
    within = p % (LAYER.GRID_HEIGHT * LAYER.GRID_WIDTH)
    down, across = within // LAYER.GRID_WIDTH, within % LAYER.GRID_WIDTH
    corner = down * (LAYER.STRIDE * LAYER.WIDTH) + across * LAYER.STRIDE
    return p // (LAYER.GRID_HEIGHT * LAYER.GRID_WIDTH), corner


@triton.jit
def windows(poses, activations, p, positions, LAYER: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    """Where the first child of each position's window lies, among the poses and among the activations. Of wide poses at
    [tile × parents × columns], the same for all parents, so that each thread reads a row at once."""
    TILE_COLUMNS: tl.constexpr = LAYER.TILE_COLUMNS
    if LAYER.WIDE:
        column = tl.arange(0, LAYER.TILE_COLUMNS)
        image, corner = locate(tl.minimum(p, positions - 1), LAYER)
        first = (image.to(tl.int64) * LAYER.PLANE + corner) * LAYER.CHILDREN
        spread = tl.zeros([TILE, TILE_PARENTS, TILE_COLUMNS], tl.int32)
        return poses + (first[:, None, None] * LAYER.DIMS + column[None, None, :] + spread), activations + first
    else:
        image, corner = locate(p, LAYER)
        first = image.to(tl.int64) * (LAYER.CHILDREN * LAYER.PLANE)
        return poses + (first * LAYER.DIMS + corner), activations + (first + corner)


@triton.jit
def load_child(
    poses, activations, maps, b, j, here, LAYER: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr
):
    """Pose and activation of child b in the windows of all positions of the tile, and its maps to all parents: of wide
    poses by the column of the pose that they take."""
    TILE_COLUMNS: tl.constexpr = LAYER.TILE_COLUMNS
    place, i = b // LAYER.CHILDREN, b % LAYER.CHILDREN
    shift = place // LAYER.KERNEL_WIDTH * LAYER.WIDTH + place % LAYER.KERNEL_WIDTH
    a = load_activation(activations, b, here, LAYER)
    row = maps + (i if LAYER.SHARED else b) * (LAYER.CELLS * LAYER.PARENTS)
    if LAYER.WIDE:
        column = tl.arange(0, LAYER.TILE_COLUMNS)
        whole = tl.zeros([TILE, TILE_PARENTS, TILE_COLUMNS], tl.int1)
        short = (column < LAYER.COLUMNS)[None, None, :]
        pose = poses + (shift * LAYER.CHILDREN + i) * LAYER.DIMS
        u = load_rows(pose, short | whole, LAYER.ROWS, LAYER.COLUMNS)
        of_parent = (j * LAYER.COLUMNS)[None, :, None] + column[None, None, :] + whole.to(tl.int32)
        real = short & (j < LAYER.PARENTS)[None, :, None] | whole
        return u, a, load_rows(row + of_parent, real, LAYER.COLUMNS, LAYER.ROW)
    else:
        u = load_rows(poses + (i * (LAYER.DIMS * LAYER.PLANE) + shift), here, LAYER.DIMS, LAYER.PLANE)
        return u, a, load_rows(row + j, j < LAYER.PARENTS, LAYER.CELLS, LAYER.PARENTS)


@triton.jit
def load_activation(activations, b, here, LAYER: tl.constexpr):
    """The activation of child b in the windows of all positions of the tile."""
    place, i = b // LAYER.CHILDREN, b % LAYER.CHILDREN
    shift = place // LAYER.KERNEL_WIDTH * LAYER.WIDTH + place % LAYER.KERNEL_WIDTH
    if LAYER.WIDE:
        return tl.load(activations + (shift * LAYER.CHILDREN + i))
    else:
        return tl.load(activations + (i * LAYER.PLANE + shift), mask=here, other=0.0)


@triton.jit
def load_rows(source, mask, COUNT: tl.constexpr, STRIDE: tl.constexpr):
    """COUNT of what lies at `source`, so far apart."""
    rows = ()
    for k in tl.static_range(COUNT):
        rows += (tl.load(source + k * STRIDE, mask=mask, other=0.0),)
    return rows


@triton.jit
def store_rows(target, rows, mask, COUNT: tl.constexpr, STRIDE: tl.constexpr):
    for k in tl.static_range(COUNT):
        tl.store(target + k * STRIDE, rows[k], mask=mask)


@triton.jit
def load_logits(logit, p, j, here, mask, LAYER: tl.constexpr):
    """c_j in units of log 2, less its largest: a common offset of logits changes nothing, and costs digits. Where all
    positions compete their offsets count, and the caller has taken off what an image has in common; held against a
    floor, all of it counts. The tile's parents beyond the last get −∞."""
    c = tl.load(logit + p[:, None] * LAYER.PARENTS + j[None, :], mask=mask, other=float("-inf"))
    c = tl.where(here[:, None], c, 0.0)
    if LAYER.EVERYWHERE or LAYER.FLOORED:
        return c * LOG2E
    else:
        return (c - tl.max(c, 1)[:, None]) * LOG2E


@triton.jit
def load_tiles(source, row, j, mask, COUNT: tl.constexpr, PARENTS: tl.constexpr):
    """COUNT tiles [rows × parents] of (row, COUNT, j)."""
    return load_rows(source + row[:, None] * (COUNT * PARENTS) + j[None, :], mask, COUNT, PARENTS)


@triton.jit
def store_tiles(target, tiles, row, j, mask, COUNT: tl.constexpr, PARENTS: tl.constexpr):
    store_rows(target + row[:, None] * (COUNT * PARENTS) + j[None, :], tiles, mask, COUNT, PARENTS)


@triton.jit
def places_of_poses(p, j, here, LAYER: tl.constexpr):
    """Where the first tile of the parents' numbers lies in (p, h, j), the others STEP apart; and which there are."""
    if LAYER.WIDE:
        column = tl.arange(0, LAYER.TILE_COLUMNS)
        of_parent = (column * LAYER.PARENTS)[None, None, :] + j[None, :, None]
        mask = (j < LAYER.PARENTS)[None, :, None] & (column < LAYER.COLUMNS)[None, None, :]
        return p[:, None, None] * (LAYER.DIMS * LAYER.PARENTS) + of_parent, here[:, None, None] & mask
    else:
        place = p[:, None] * (LAYER.DIMS * LAYER.PARENTS) + j[None, :]
        return place, here[:, None] & (j < LAYER.PARENTS)[None, :]


@triton.jit
def load_poses(source, p, j, here, LAYER: tl.constexpr):
    """Numbers of the parents of a tile of positions, from (p, h, j)."""
    place, mask = places_of_poses(p, j, here, LAYER)
    return load_rows(source + place, mask, LAYER.COUNT, LAYER.STEP)


@triton.jit
def store_poses(target, tiles, p, j, here, LAYER: tl.constexpr):
    place, mask = places_of_poses(p, j, here, LAYER)
    store_rows(target + place, tiles, mask, LAYER.COUNT, LAYER.STEP)


@triton.jit
def store_sums(sums, zeroth, first, second, p, j, here, positions, LAYER: tl.constexpr):
    """A split's sums, side by side: one number per parent, then twice one per dimension of it."""
    small = tl.cast(positions, tl.int64) * LAYER.PARENTS
    part = sums + tl.program_id(1) * (small * (1 + 2 * LAYER.DIMS))
    mask = here[:, None] & (j < LAYER.PARENTS)[None, :]
    tl.store(part + p[:, None] * LAYER.PARENTS + j[None, :], zeroth, mask=mask)
    store_poses(part + small, first, p, j, here, LAYER)
    store_poses(part + small * (1 + LAYER.DIMS), second, p, j, here, LAYER)


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
def zeros_laid_as(source, p, j, positions, LAYER: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    """Zeros. Narrow ones are loaded: the compiler lays tiles over threads as it lays the loads that begin them."""
    if LAYER.WIDE:
        return zeros(LAYER.COUNT, LAYER, TILE, TILE_PARENTS)
    else:
        return load_poses(source, p, j, (p < positions) & (positions < 0), LAYER)


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

"""What the passes load and store, and where: children in their windows, parents, sums."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.tiles import LOG2E, zeros


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
def zeros_laid_as(source, p, j, positions, LAYER: tl.constexpr, TILE: tl.constexpr, TILE_PARENTS: tl.constexpr):
    """Zeros. Narrow ones are loaded: the compiler lays tiles over threads as it lays the loads that begin them."""
    if LAYER.WIDE:
        return zeros(LAYER.COUNT, LAYER, TILE, TILE_PARENTS)
    else:
        return load_poses(source, p, j, (p < positions) & (positions < 0), LAYER)

"""Putting together what the splits of a pass have summed, in a fixed order."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.tiles import SMALLEST, log2

AT_ONCE = tl.constexpr(8)
"""Splits whose parts are loaded together."""


@triton.jit
def place_in_row(h, j, LAYER: tl.constexpr):
    """Where number h of parent j stands among those of a position that the pass by child reads: (h, j), or, of wide
    poses, (row, j, column)."""
    if LAYER.WIDE:
        return h // LAYER.COLUMNS * LAYER.ROW + j * LAYER.COLUMNS + h % LAYER.COLUMNS
    else:
        return h * LAYER.PARENTS + j


@triton.jit
def sum_of_splits(parts, e, mask, stride, splits, TILE: tl.constexpr):
    """Σ over splits of entries e of their parts, which are `stride` apart: several at a time, as each is waited for."""
    total = tl.zeros([AT_ONCE, TILE], tl.float32)
    for start in range(0, splits, AT_ONCE):
        split = start + tl.arange(0, AT_ONCE)
        there = (split < splits)[:, None] & mask[None, :]
        total += tl.load(parts + split[:, None] * stride + e[None, :], mask=there, other=0.0)
    return tl.sum(total, 0)


@triton.jit
def add_moments(
    parts,  # (split, [p × j, p × h × j, p × h × j])
    mass,  # (p, j)
    first,  # (p, h, j)
    second,  # (p, h, j)
    splits,
    small,  # p × j
    large,  # p × h × j
    TILE: tl.constexpr,
):
    """The sum of partial moments."""
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    stride = tl.cast(small, tl.int64) + 2 * large
    total = sum_of_splits(parts, e, e < stride, stride, splits, TILE)
    tl.store(mass + e, total, mask=e < small)
    tl.store(first + (e - small), total, mask=(e >= small) & (e < small + large))
    tl.store(second + (e - small - large), total, mask=(e >= small + large) & (e < stride))


@triton.jit
def merge_moments(
    part_mass,  # (split, p)
    part_centre,  # (split, p, h, j)
    part_first,  # (split, p, h, j)
    part_second,  # (split, p, h, j)
    centre,  # (p, h, j)
    mass,  # (p, j)
    first,  # (p, h, j)
    second,  # (p, h, j)
    splits,
    positions,
    LAYER: tl.constexpr,
    TILE: tl.constexpr,
):
    """The sum of partial moments that have centres of their own, about their common mean.

    Moved by δ, S1 gains δ S0 and S2 gains 2 δ S1 + δ² S0.
    """
    PARENTS: tl.constexpr = LAYER.PARENTS
    DIMS: tl.constexpr = LAYER.DIMS
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    entries = tl.cast(positions, tl.int64) * (DIMS * PARENTS)
    here = e < entries
    p, j = e // (DIMS * PARENTS), e % PARENTS
    s0 = tl.zeros([TILE], tl.float32)
    weighted = tl.zeros([TILE], tl.float32)
    for split in range(splits):
        a = tl.load(part_mass + split * positions + p, mask=here, other=0.0)
        s0 += a
        weighted += a * tl.load(part_centre + split * entries + e, mask=here, other=0.0)
    m = weighted / tl.maximum(s0, SMALLEST)
    s1 = tl.zeros([TILE], tl.float32)
    s2 = tl.zeros([TILE], tl.float32)
    for split in range(splits):
        a = tl.load(part_mass + split * positions + p, mask=here, other=0.0)
        moved = tl.load(part_centre + split * entries + e, mask=here, other=0.0) - m
        one = tl.load(part_first + split * entries + e, mask=here, other=0.0)
        s1 += one + a * moved
        s2 += tl.load(part_second + split * entries + e, mask=here, other=0.0) + moved * (2 * one + a * moved)
    tl.store(centre + e, m, mask=here)
    tl.store(first + e, s1, mask=here)
    tl.store(second + e, s2, mask=here)
    tl.store(mass + p * PARENTS + j, s0, mask=here & (e // PARENTS % DIMS == 0))


@triton.jit
def finish_parents(
    parts,  # (split, [p × j, p × h × j, p × h × j])   Σ dl, Σ dl d, Σ dl d²
    centre,  # (p, h, j)
    precision,  # (p, h, j)
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    mass,  # (p, j)
    first,  # (p, h, j)
    grad_centre,  # (p, h, j)
    grad_precision,  # (p, h, j)
    grad_logit,  # (p, j)
    known,  # (p, [centre, precision, g1, g2: place_in_row; logit, g0: j])
    splits,
    positions,
    LAYER: tl.constexpr,
    TILE: tl.constexpr,
):
    """Gradients of the parents from sums over children.

    dc = Σ dl, dp = −½ Σ dl d², dm = p Σ dl d − g1 S0 − 2 g2 S1: the last two terms because d = v − m moves S1 and S2.
    All that the pass by child needs of a parent is put side by side in `known`; the logit is there already.
    """
    PARENTS: tl.constexpr = LAYER.PARENTS
    DIMS: tl.constexpr = LAYER.DIMS
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    small = tl.cast(positions, tl.int64) * PARENTS
    here = e < small * DIMS
    parent = e // (DIMS * PARENTS) * PARENTS + e % PARENTS
    leading = here & (e // PARENTS % DIMS == 0)
    stride = small * (1 + 2 * DIMS)
    e0 = sum_of_splits(parts, parent, leading, stride, splits, TILE)
    e1 = sum_of_splits(parts + small, e, here, stride, splits, TILE)
    e2 = sum_of_splits(parts + small * (1 + DIMS), e, here, stride, splits, TILE)
    q = tl.load(precision + e, mask=here, other=0.0)
    g1 = tl.load(grad_first + e, mask=here, other=0.0)
    g2 = tl.load(grad_second + e, mask=here, other=0.0)
    s0 = tl.load(mass + parent, mask=here, other=0.0)
    s1 = tl.load(first + e, mask=here, other=0.0)
    tl.store(grad_centre + e, q * e1 - g1 * s0 - 2 * g2 * s1, mask=here)
    tl.store(grad_precision + e, -0.5 * e2, mask=here)
    tl.store(grad_logit + parent, e0, mask=leading)
    row = known + e // (DIMS * PARENTS) * ((4 * DIMS + 2) * PARENTS)
    place = row + place_in_row(e // PARENTS % DIMS, e % PARENTS, LAYER)
    tl.store(place, tl.load(centre + e, mask=here, other=0.0), mask=here)
    tl.store(place + DIMS * PARENTS, q, mask=here)
    tl.store(place + 2 * DIMS * PARENTS, g1, mask=here)
    tl.store(place + 3 * DIMS * PARENTS, g2, mask=here)
    g0 = tl.load(grad_mass + parent, mask=leading, other=0.0)
    tl.store(row + (4 * DIMS + 1) * PARENTS + e % PARENTS, g0, mask=leading)


@triton.jit
def pack_uniform(
    known,  # (p, [centre, precision, g1, g2: place_in_row; logit, g0: j])
    centre,  # (p, h, j)
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    even,  # (p, [centre, g1, g2: place_in_row; g0: j])   the centre only where no other is known
    parents,
    LAYER: tl.constexpr,
    WEIGHTED: tl.constexpr,
    TILE: tl.constexpr,
):
    """What the pass by child needs of uniform moments; with weighted ones beside them, about the centre of those.

    With e = d + δ, g0 + Σ_h (g1 e + g2 e²) = (g0 + Σ_h (g1 δ + g2 δ²)) + Σ_h ((g1 + 2 g2 δ) d + g2 d²).
    """
    PARENTS: tl.constexpr = LAYER.PARENTS
    DIMS: tl.constexpr = LAYER.DIMS
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = e < parents
    p, j = e // PARENTS, e % PARENTS
    k0 = tl.load(grad_mass + e, mask=here, other=0.0)
    row = even + p * ((3 * DIMS + 1) * PARENTS)
    weighted = known + p * ((4 * DIMS + 2) * PARENTS)
    for h in tl.static_range(DIMS):
        source = p * (DIMS * PARENTS) + h * PARENTS + j
        place = place_in_row(h, j, LAYER)
        m = tl.load(centre + source, mask=here, other=0.0)
        k1 = tl.load(grad_first + source, mask=here, other=0.0)
        k2 = tl.load(grad_second + source, mask=here, other=0.0)
        if WEIGHTED:
            moved = tl.load(weighted + place, mask=here, other=0.0) - m
            k0 += moved * (k1 + k2 * moved)
            k1 += 2 * k2 * moved
        else:
            tl.store(row + place, m, mask=here)
        tl.store(row + DIMS * PARENTS + place, k1, mask=here)
        tl.store(row + 2 * DIMS * PARENTS + place, k2, mask=here)
    tl.store(row + 3 * DIMS * PARENTS + j, k0, mask=here)


@triton.jit
def add_rows(
    parts,  # (row, entry)
    total,  # (entry)
    rows,
    entries,
    TILE: tl.constexpr,
    TILE_ROWS: tl.constexpr,
):
    """The sum of all rows: of the gradients of maps over splits, and over places where these share maps; of the
    gradients of β over tiles."""
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    row = tl.arange(0, TILE_ROWS)
    sums = tl.zeros([TILE_ROWS, TILE], tl.float32)
    for start in range(0, rows, TILE_ROWS):
        place = (start + row).to(tl.int64)[:, None] * entries + e[None, :]
        sums += tl.load(parts + place, mask=(start + row < rows)[:, None] & (e < entries)[None, :], other=0.0)
    tl.store(total + e, tl.sum(sums, 0), mask=e < entries)


@triton.jit
def over_windows(
    values,  # (b, p)   what a child has in each window that holds it; becomes what it has in all
    images,
    LAYER: tl.constexpr,
    LOGARITHMS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sums over all windows that hold a child, or the base-2 logarithms of sums of powers of two."""
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    image = tl.program_id(1)
    i, y, x = e // LAYER.PLANE, e // LAYER.WIDTH % LAYER.HEIGHT, e % LAYER.WIDTH
    here = i < LAYER.CHILDREN
    positions = tl.cast(images, tl.int64) * (LAYER.GRID_HEIGHT * LAYER.GRID_WIDTH)
    largest = tl.zeros([TILE], tl.float32)
    if LOGARITHMS:
        largest += float("-inf")
        for place in range(LAYER.PLACES):
            source, seen = in_window(place, image, i, y, x, positions, LAYER)
            largest = tl.maximum(largest, tl.load(values + source, mask=here & seen, other=float("-inf")))
        largest = tl.where(largest == float("-inf"), 0.0, largest)  # of what no window holds
    total = tl.zeros([TILE], tl.float32)
    for place in range(LAYER.PLACES):
        source, seen = in_window(place, image, i, y, x, positions, LAYER)
        value = tl.load(values + source, mask=here & seen, other=float("-inf") if LOGARITHMS else 0.0)
        if LOGARITHMS:
            value = tl.where(here & seen, tl.exp2(value - largest), 0.0)
        total += value
    if LOGARITHMS:
        total = largest + log2(tl.maximum(total, SMALLEST))
    for place in range(LAYER.PLACES):
        target, seen = in_window(place, image, i, y, x, positions, LAYER)
        tl.store(values + target, total, mask=here & seen)


@triton.jit
def in_window(place, image, i, y, x, positions, LAYER: tl.constexpr):
    """Where (b, p) lies for the window in which a child stands at that place, and whether there is one."""
    p, seen = window_with(place // LAYER.KERNEL_WIDTH, place % LAYER.KERNEL_WIDTH, image, y, x, LAYER)
    return (place * LAYER.CHILDREN + i) * positions + p, seen


@triton.jit
def window_with(ky, kx, image, y, x, LAYER: tl.constexpr):
    """The position whose window has a pixel at row ky and column kx, and whether there is one."""
    top, left = y - ky, x - kx
    row, column = top // LAYER.STRIDE, left // LAYER.STRIDE
    seen = (top >= 0) & (left >= 0) & (row < LAYER.GRID_HEIGHT) & (column < LAYER.GRID_WIDTH)
    seen &= (row * LAYER.STRIDE == top) & (column * LAYER.STRIDE == left)
    return tl.cast((image * LAYER.GRID_HEIGHT + row) * LAYER.GRID_WIDTH + column, tl.int64), seen

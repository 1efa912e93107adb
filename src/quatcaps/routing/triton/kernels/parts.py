"""Putting together what the splits of a pass have summed, in a fixed order."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.tiles import SMALLEST


@triton.jit
def place_in_row(h, j, PARENTS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr):
    """Where number h of parent j stands among those of a position that the pass by child reads: (h, j), or, of wide
    poses, (row, j, column)."""
    if WIDE:
        return h // COLUMNS * (COLUMNS * PARENTS) + j * COLUMNS + h % COLUMNS
    else:
        return h * PARENTS + j


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
    total = tl.zeros([TILE], tl.float32)
    for split in range(splits):
        total += tl.load(parts + split * stride + e, mask=e < stride, other=0.0)
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
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
):
    """The sum of partial moments that have centres of their own, about their common mean.

    Moved by δ, S1 gains δ S0 and S2 gains 2 δ S1 + δ² S0.
    """
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
    rows,  # (p, [centre, precision, g1, g2: place_in_row; logit, g0: j])
    splits,
    positions,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Gradients of the parents from sums over children.

    dc = Σ dl, dp = −½ Σ dl d², dm = p Σ dl d − g1 S0 − 2 g2 S1: the last two terms because d = v − m moves S1 and S2.
    All that the pass by child needs of a parent is put side by side in `rows`; the logit is there already.
    """
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    small = tl.cast(positions, tl.int64) * PARENTS
    here = e < small * DIMS
    parent = e // (DIMS * PARENTS) * PARENTS + e % PARENTS
    leading = here & (e // PARENTS % DIMS == 0)
    e0 = tl.zeros([TILE], tl.float32)
    e1 = tl.zeros([TILE], tl.float32)
    e2 = tl.zeros([TILE], tl.float32)
    for split in range(splits):
        part = parts + split * (small * (1 + 2 * DIMS))
        e0 += tl.load(part + parent, mask=leading, other=0.0)
        e1 += tl.load(part + small + e, mask=here, other=0.0)
        e2 += tl.load(part + small * (1 + DIMS) + e, mask=here, other=0.0)
    q = tl.load(precision + e, mask=here, other=0.0)
    g1 = tl.load(grad_first + e, mask=here, other=0.0)
    g2 = tl.load(grad_second + e, mask=here, other=0.0)
    s0 = tl.load(mass + parent, mask=here, other=0.0)
    s1 = tl.load(first + e, mask=here, other=0.0)
    tl.store(grad_centre + e, q * e1 - g1 * s0 - 2 * g2 * s1, mask=here)
    tl.store(grad_precision + e, -0.5 * e2, mask=here)
    tl.store(grad_logit + parent, e0, mask=leading)
    row = rows + e // (DIMS * PARENTS) * ((4 * DIMS + 2) * PARENTS)
    place = row + place_in_row(e // PARENTS % DIMS, e % PARENTS, PARENTS, COLUMNS, WIDE)
    tl.store(place, tl.load(centre + e, mask=here, other=0.0), mask=here)
    tl.store(place + DIMS * PARENTS, q, mask=here)
    tl.store(place + 2 * DIMS * PARENTS, g1, mask=here)
    tl.store(place + 3 * DIMS * PARENTS, g2, mask=here)
    g0 = tl.load(grad_mass + parent, mask=leading, other=0.0)
    tl.store(row + (4 * DIMS + 1) * PARENTS + e % PARENTS, g0, mask=leading)


@triton.jit
def pack_uniform(
    rows,  # (p, [centre, precision, g1, g2: place_in_row; logit, g0: j])
    centre,  # (p, h, j)
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    uniform_rows,  # (p, [centre, g1, g2: place_in_row; g0: j])   the centre only where no other is known
    parents,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    TILE: tl.constexpr,
):
    """What the pass by child needs of uniform moments; with weighted ones beside them, about the centre of those.

    With e = d + δ, g0 + Σ_h (g1 e + g2 e²) = (g0 + Σ_h (g1 δ + g2 δ²)) + Σ_h ((g1 + 2 g2 δ) d + g2 d²).
    """
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = e < parents
    p, j = e // PARENTS, e % PARENTS
    k0 = tl.load(grad_mass + e, mask=here, other=0.0)
    row = uniform_rows + p * ((3 * DIMS + 1) * PARENTS)
    weighted = rows + p * ((4 * DIMS + 2) * PARENTS)
    for h in tl.static_range(DIMS):
        source = p * (DIMS * PARENTS) + h * PARENTS + j
        place = place_in_row(h, j, PARENTS, COLUMNS, WIDE)
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
def add_maps(
    parts,  # (split × place, i × column × column × j), or (split, place × i × column × column × j)
    grad_maps,  # one row of it
    rows,
    entries,
    TILE: tl.constexpr,
    TILE_ROWS: tl.constexpr,
):
    """The sum of the gradients of maps over splits, and over places where these share maps."""
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    row = tl.arange(0, TILE_ROWS)
    total = tl.zeros([TILE_ROWS, TILE], tl.float32)
    for start in range(0, rows, TILE_ROWS):
        place = (start + row).to(tl.int64)[:, None] * entries + e[None, :]
        total += tl.load(parts + place, mask=(start + row < rows)[:, None] & (e < entries)[None, :], other=0.0)
    tl.store(grad_maps + e, tl.sum(total, 0), mask=e < entries)


@triton.jit
def pack_children(
    poses,  # (n, i, h, y, x)
    activations,  # (n, i, y, x)
    packed,  # (n, y, x, h + 1, i)
    pixels,
    CHILDREN: tl.constexpr,
    DIMS: tl.constexpr,
    PLANE: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CHILDREN: tl.constexpr,
):
    """Children as neighbours in memory, each pose followed by its activation."""
    pixel = tl.program_id(0) * TILE + tl.arange(0, TILE)
    i = tl.program_id(1) * TILE_CHILDREN + tl.arange(0, TILE_CHILDREN)
    h = tl.program_id(2)
    mask = (pixel < pixels)[:, None] & (i < CHILDREN)[None, :]
    channel = (pixel // PLANE).to(tl.int64)[:, None] * CHILDREN + i[None, :]
    within = (pixel % PLANE)[:, None]
    if h < DIMS:
        values = tl.load(poses + (channel * DIMS + h) * PLANE + within, mask=mask, other=0.0)
    else:
        values = tl.load(activations + channel * PLANE + within, mask=mask, other=0.0)
    target = packed + (pixel.to(tl.int64)[:, None] * (DIMS + 1) + h) * CHILDREN + i[None, :]
    tl.store(target, values, mask=mask)


@triton.jit
def fold_channels(
    columns,  # (p, place, [i × h, i])
    grad_poses,  # (n, y, x, i, h)
    grad_activations,  # (n, y, x, i)
    pixels,
    CHILDREN: tl.constexpr,
    DIMS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    GRID_HEIGHT: tl.constexpr,
    GRID_WIDTH: tl.constexpr,
    KERNEL_HEIGHT: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Of wide poses, each child's gradient: the sum of its columns in all windows that hold it, place by place."""
    CHANNELS: tl.constexpr = CHILDREN * (DIMS + 1)
    pixel = tl.program_id(0)
    channel = tl.program_id(1) * TILE + tl.arange(0, TILE)
    image, y, x = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    total = tl.zeros([TILE], tl.float32)
    for ky in range(KERNEL_HEIGHT):
        top = y - ky
        row = top // STRIDE
        for kx in range(KERNEL_WIDTH):
            left = x - kx
            column = left // STRIDE
            seen = (top >= 0) & (left >= 0) & (row < GRID_HEIGHT) & (column < GRID_WIDTH)
            seen &= (row * STRIDE == top) & (column * STRIDE == left)
            p = tl.cast((image * GRID_HEIGHT + row) * GRID_WIDTH + column, tl.int64)
            source = columns + (p * (KERNEL_HEIGHT * KERNEL_WIDTH) + ky * KERNEL_WIDTH + kx) * CHANNELS
            total += tl.load(source + channel, mask=seen & (channel < CHANNELS), other=0.0)
    POSES: tl.constexpr = CHILDREN * DIMS
    tl.store(grad_poses + tl.cast(pixel, tl.int64) * POSES + channel, total, mask=channel < POSES)
    of_activation = (channel >= POSES) & (channel < CHANNELS)
    place = tl.cast(pixel, tl.int64) * CHILDREN + (channel - POSES)
    tl.store(grad_activations + place, total, mask=of_activation)

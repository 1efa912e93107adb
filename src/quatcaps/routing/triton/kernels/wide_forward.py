"""Forward passes over wide poses; `forward` has the same for narrow ones, and the comments."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.tiles import (
    LOG2E,
    SOME,
    accumulate,
    add_each_product,
    add_tiles,
    coordinates,
    load_logits,
    multiply,
    scale_tiles,
    softmax,
    tile_of_positions,
)
from quatcaps.routing.triton.kernels.wide_tiles import (
    inverse,
    load_child,
    load_tiles,
    moved,
    own_rows,
    places,
    store_sums,
    store_tiles,
    sum_products,
    votes,
    zero_tiles,
)

UNROLLED = tl.constexpr(2)
"""Two children a turn: what is loaded for the next one then needs no moving to where this one's numbers were."""


@triton.jit
def sum_moments(
    poses,  # (n, y, x, i, h)
    activations,  # (n, y, x, i)
    maps,  # (b or i, column of the pose, j, column of the vote)
    centre,  # (p, h, j)
    precision,  # (p, h, j)
    logit,  # (p, j)
    sums,  # (split, [p × j, p × h × j, p × h × j])   mass, first, second
    log_total,  # (b, p)                              log2 Σ_j exp2(logit)
    positions,
    per_program,
    CHILDREN: tl.constexpr,
    PARENTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    GRID_HEIGHT: tl.constexpr,
    GRID_WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    SHARED: tl.constexpr,
    COORDINATES: tl.constexpr,
    KEEP: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
):
    p, j, here, mask = tile_of_positions(positions, PARENTS, TILE, TILE_PARENTS)
    first, rows, short = places(
        p,
        positions,
        CHILDREN,
        ROWS * COLUMNS,
        COLUMNS,
        HEIGHT,
        WIDTH,
        GRID_HEIGHT,
        GRID_WIDTH,
        STRIDE,
        TILE,
        TILE_PARENTS,
        TILE_COLUMNS,
    )
    poses += rows
    activations += first
    own, own_mask = own_rows(p, j, here, PARENTS, ROWS, COLUMNS, TILE_COLUMNS)
    m = load_tiles(centre + own, own_mask, ROWS, COLUMNS * PARENTS)
    scaled = scale_tiles(load_tiles(precision + own, own_mask, ROWS, COLUMNS * PARENTS), -0.5 * LOG2E, ROWS)
    c = load_logits(logit, p, j, here, mask, PARENTS)
    s0 = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    s1 = zero_tiles(ROWS, TILE, TILE_PARENTS, TILE_COLUMNS)
    s2 = zero_tiles(ROWS, TILE, TILE_PARENTS, TILE_COLUMNS)
    start = tl.program_id(1) * per_program
    stop = tl.minimum(start + per_program, CHILDREN * PLACES)
    u, a, matrix = load_child(
        poses,
        activations,
        maps,
        start,
        j,
        short,
        CHILDREN,
        PARENTS,
        ROWS,
        COLUMNS,
        WIDTH,
        KERNEL_WIDTH,
        SHARED,
        TILE,
        TILE_PARENTS,
        TILE_COLUMNS,
    )
    for b in tl.range(start, stop, loop_unroll_factor=UNROLLED):
        following = load_child(
            poses,
            activations,
            maps,
            tl.minimum(b + 1, stop - 1),
            j,
            short,
            CHILDREN,
            PARENTS,
            ROWS,
            COLUMNS,
            WIDTH,
            KERNEL_WIDTH,
            SHARED,
            TILE,
            TILE_PARENTS,
            TILE_COLUMNS,
        )
        centred = m
        if COORDINATES:
            row, column = coordinates(b, CHILDREN, PLACES, KERNEL_WIDTH)
            centred = moved(m, row, column, ROWS, COLUMNS, TILE_COLUMNS)
        d = votes(centred, -1.0, matrix, u, ROWS, COLUMNS, TILE, TILE_PARENTS, TILE_COLUMNS)
        squares = multiply(d, d, ROWS)
        powers, total, log_sum = softmax(c + sum_products(scaled, squares, ROWS))
        if KEEP:
            tl.store(log_total + tl.cast(b, tl.int64) * positions + p, log_sum, mask=here)
        weight = powers * (a / total)[:, None]
        s0 += weight
        s1 = accumulate(s1, weight[:, :, None], d, ROWS)
        s2 = accumulate(s2, weight[:, :, None], squares, ROWS)
        u, a, matrix = following
    store_sums(sums, s0, s1, s2, p, j, here, positions, PARENTS, ROWS, COLUMNS, TILE_COLUMNS)


@triton.jit
def sum_uniform(
    poses,  # (n, y, x, i, h)
    activations,  # (n, y, x, i)
    maps,  # (b or i, column of the pose, j, column of the vote)
    mass,  # (split, p)
    centre,  # (split, p, h, j)
    first,  # (split, p, h, j)
    second,  # (split, p, h, j)
    positions,
    per_program,
    CHILDREN: tl.constexpr,
    PARENTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    GRID_HEIGHT: tl.constexpr,
    GRID_WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    SHARED: tl.constexpr,
    COORDINATES: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
):
    """Moments under uniform assignments, each split about a centre of its own."""
    p, j, here, _ = tile_of_positions(positions, PARENTS, TILE, TILE_PARENTS)
    child, rows, short = places(
        p,
        positions,
        CHILDREN,
        ROWS * COLUMNS,
        COLUMNS,
        HEIGHT,
        WIDTH,
        GRID_HEIGHT,
        GRID_WIDTH,
        STRIDE,
        TILE,
        TILE_PARENTS,
        TILE_COLUMNS,
    )
    poses += rows
    activations += child
    split = tl.program_id(1)
    start = split * per_program
    stop = tl.minimum(start + per_program, CHILDREN * PLACES)
    total = tl.zeros([TILE], tl.float32)
    of_some = tl.zeros([TILE], tl.float32)
    for b in tl.range(start, stop, loop_unroll_factor=8):
        place = b // CHILDREN
        shift = (place // KERNEL_WIDTH * WIDTH + place % KERNEL_WIDTH) * CHILDREN + b % CHILDREN
        a = tl.load(activations + shift)
        total += a
        of_some += tl.where((b - start) % SOME == 0, a, 0.0)
    step = tl.where(tl.max(total - 64 * of_some, 0) > 0, 1, SOME)
    weighed = tl.zeros([TILE], tl.float32)
    m = zero_tiles(ROWS, TILE, TILE_PARENTS, TILE_COLUMNS)
    for b in range(start, stop, step):
        u, a, matrix = load_child(
            poses,
            activations,
            maps,
            b,
            j,
            short,
            CHILDREN,
            PARENTS,
            ROWS,
            COLUMNS,
            WIDTH,
            KERNEL_WIDTH,
            SHARED,
            TILE,
            TILE_PARENTS,
            TILE_COLUMNS,
        )
        weighed += a
        some = scale_tiles(u, a[:, None, None], ROWS)
        m = votes(m, 1.0, matrix, some, ROWS, COLUMNS, TILE, TILE_PARENTS, TILE_COLUMNS)
        if COORDINATES:
            row, column = coordinates(b, CHILDREN, PLACES, KERNEL_WIDTH)
            m = moved(m, (-row * a)[:, None, None], (-column * a)[:, None, None], ROWS, COLUMNS, TILE_COLUMNS)
    m = scale_tiles(m, inverse(weighed)[:, None, None], ROWS)
    s1 = zero_tiles(ROWS, TILE, TILE_PARENTS, TILE_COLUMNS)
    s2 = zero_tiles(ROWS, TILE, TILE_PARENTS, TILE_COLUMNS)
    u, a, matrix = load_child(
        poses,
        activations,
        maps,
        start,
        j,
        short,
        CHILDREN,
        PARENTS,
        ROWS,
        COLUMNS,
        WIDTH,
        KERNEL_WIDTH,
        SHARED,
        TILE,
        TILE_PARENTS,
        TILE_COLUMNS,
    )
    for b in tl.range(start, stop, loop_unroll_factor=UNROLLED):
        following = load_child(
            poses,
            activations,
            maps,
            tl.minimum(b + 1, stop - 1),
            j,
            short,
            CHILDREN,
            PARENTS,
            ROWS,
            COLUMNS,
            WIDTH,
            KERNEL_WIDTH,
            SHARED,
            TILE,
            TILE_PARENTS,
            TILE_COLUMNS,
        )
        centred = m
        if COORDINATES:
            row, column = coordinates(b, CHILDREN, PLACES, KERNEL_WIDTH)
            centred = moved(m, row, column, ROWS, COLUMNS, TILE_COLUMNS)
        d = votes(centred, -1.0, matrix, u, ROWS, COLUMNS, TILE, TILE_PARENTS, TILE_COLUMNS)
        weighted = scale_tiles(d, (a * (1.0 / PARENTS))[:, None, None], ROWS)
        s1 = add_tiles(s1, weighted, ROWS)
        s2 = add_each_product(s2, weighted, d, ROWS)
        u, a, matrix = following
    part = split.to(tl.int64) * positions
    tl.store(mass + part + p, total * (1.0 / PARENTS), mask=here)
    own, own_mask = own_rows(p, j, here, PARENTS, ROWS, COLUMNS, TILE_COLUMNS)
    own += part * (ROWS * COLUMNS * PARENTS)
    store_tiles(centre + own, m, own_mask, ROWS, COLUMNS * PARENTS)
    store_tiles(first + own, s1, own_mask, ROWS, COLUMNS * PARENTS)
    store_tiles(second + own, s2, own_mask, ROWS, COLUMNS * PARENTS)

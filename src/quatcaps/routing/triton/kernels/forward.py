"""Forward passes: moments, summed over children in registers."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.tiles import (
    LOG2E,
    SMALLEST,
    SOME,
    accumulate,
    add_each_product,
    add_products,
    add_tiles,
    add_votes,
    coordinates,
    deviations,
    load_activation,
    load_child,
    load_logits,
    load_tiles,
    locate,
    moved,
    multiply,
    scale_tiles,
    softmax,
    store_sums,
    store_tiles,
    tile_of_positions,
    zero_tiles,
)


@triton.jit
def sum_moments(
    poses,  # (n, i, h, y, x)
    activations,  # (n, i, y, x)
    maps,  # (b or i, column × column, j)
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
):
    DIMS: tl.constexpr = ROWS * COLUMNS
    p, j, here, mask = tile_of_positions(positions, PARENTS, TILE, TILE_PARENTS)
    image, corner = locate(p, GRID_HEIGHT, GRID_WIDTH, WIDTH, STRIDE)
    poses += image.to(tl.int64) * (CHILDREN * DIMS * HEIGHT * WIDTH) + corner
    activations += image.to(tl.int64) * (CHILDREN * HEIGHT * WIDTH) + corner
    m = load_tiles(centre, p, j, mask, DIMS, PARENTS)
    scaled = scale_tiles(load_tiles(precision, p, j, mask, DIMS, PARENTS), -0.5 * LOG2E, DIMS)
    c = load_logits(logit, p, j, here, mask, PARENTS)
    s0 = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    s1 = zero_tiles(DIMS, TILE, TILE_PARENTS)
    s2 = zero_tiles(DIMS, TILE, TILE_PARENTS)
    split = tl.program_id(1)
    start = split * per_program
    stop = tl.minimum(start + per_program, CHILDREN * PLACES)
    u, a, matrix = load_child(
        poses,
        activations,
        maps,
        start,
        j,
        here,
        CHILDREN,
        PARENTS,
        DIMS,
        COLUMNS,
        HEIGHT * WIDTH,
        WIDTH,
        KERNEL_WIDTH,
        SHARED,
    )
    for b in range(start, stop):
        following = load_child(
            poses,
            activations,
            maps,
            tl.minimum(b + 1, stop - 1),
            j,
            here,
            CHILDREN,
            PARENTS,
            DIMS,
            COLUMNS,
            HEIGHT * WIDTH,
            WIDTH,
            KERNEL_WIDTH,
            SHARED,
        )
        centred = m
        if COORDINATES:
            row, column = coordinates(b, CHILDREN, PLACES, KERNEL_WIDTH)
            centred = moved(m, row, column, ROWS, COLUMNS)
        d = deviations(matrix, u, centred, ROWS, COLUMNS)
        squares = multiply(d, d, DIMS)
        powers, total, log_sum = softmax(add_products(c, scaled, squares, DIMS))
        if KEEP:
            tl.store(log_total + tl.cast(b, tl.int64) * positions + p, log_sum, mask=here)
        weight = powers * (a / total)[:, None]
        s0 += weight
        s1 = accumulate(s1, weight, d, DIMS)
        s2 = accumulate(s2, weight, squares, DIMS)
        u, a, matrix = following
    store_sums(sums, s0, s1, s2, p, j, mask, positions, DIMS, PARENTS)


@triton.jit
def sum_uniform(
    poses,  # (n, i, h, y, x)
    activations,  # (n, i, y, x)
    maps,  # (b or i, column × column, j)
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
):
    """Moments under uniform assignments, each split about a centre of its own.

    Centred at the mean of a part of the children that weighs a share f of all, the variance loses at most a factor
    1/f of its digits: every eighth child will do, unless these weigh next to nothing.
    """
    DIMS: tl.constexpr = ROWS * COLUMNS
    p, j, here, mask = tile_of_positions(positions, PARENTS, TILE, TILE_PARENTS)
    image, corner = locate(p, GRID_HEIGHT, GRID_WIDTH, WIDTH, STRIDE)
    poses += image.to(tl.int64) * (CHILDREN * DIMS * HEIGHT * WIDTH) + corner
    activations += image.to(tl.int64) * (CHILDREN * HEIGHT * WIDTH) + corner
    split = tl.program_id(1)
    start = split * per_program
    stop = tl.minimum(start + per_program, CHILDREN * PLACES)
    total = tl.zeros([TILE], tl.float32)
    of_some = tl.zeros([TILE], tl.float32)
    for b in range(start, stop):
        a = load_activation(activations, b, here, CHILDREN, HEIGHT * WIDTH, WIDTH, KERNEL_WIDTH)
        total += a
        of_some += tl.where((b - start) % SOME == 0, a, 0.0)
    some = tl.where(tl.max(total - 64 * of_some, 0) > 0, 1, SOME)
    weighed, m = sum_votes(
        poses,
        activations,
        maps,
        first,
        start,
        stop,
        some,
        p,
        j,
        here,
        mask,
        positions,
        CHILDREN,
        PARENTS,
        ROWS,
        COLUMNS,
        HEIGHT * WIDTH,
        WIDTH,
        KERNEL_WIDTH,
        PLACES,
        SHARED,
        COORDINATES,
    )
    m = scale_tiles(m, (1.0 / tl.maximum(weighed, SMALLEST))[:, None], DIMS)
    s1 = load_tiles(first, p, j, mask & (positions < 0), DIMS, PARENTS)
    s2 = load_tiles(first, p, j, mask & (positions < 0), DIMS, PARENTS)
    u, a, matrix = load_child(
        poses,
        activations,
        maps,
        start,
        j,
        here,
        CHILDREN,
        PARENTS,
        DIMS,
        COLUMNS,
        HEIGHT * WIDTH,
        WIDTH,
        KERNEL_WIDTH,
        SHARED,
    )
    for b in range(start, stop):
        following = load_child(
            poses,
            activations,
            maps,
            tl.minimum(b + 1, stop - 1),
            j,
            here,
            CHILDREN,
            PARENTS,
            DIMS,
            COLUMNS,
            HEIGHT * WIDTH,
            WIDTH,
            KERNEL_WIDTH,
            SHARED,
        )
        centred = m
        if COORDINATES:
            row, column = coordinates(b, CHILDREN, PLACES, KERNEL_WIDTH)
            centred = moved(m, row, column, ROWS, COLUMNS)
        d = deviations(matrix, u, centred, ROWS, COLUMNS)
        weight = (a * (1.0 / PARENTS))[:, None]
        weighted = scale_tiles(d, weight, DIMS)
        s1 = add_tiles(s1, weighted, DIMS)
        s2 = add_each_product(s2, weighted, d, DIMS)
        u, a, matrix = following
    part = split.to(tl.int64) * positions
    tl.store(mass + part + p, total * (1.0 / PARENTS), mask=here)
    store_tiles(centre + part * (DIMS * PARENTS), m, p, j, mask, DIMS, PARENTS)
    store_tiles(first + part * (DIMS * PARENTS), s1, p, j, mask, DIMS, PARENTS)
    store_tiles(second + part * (DIMS * PARENTS), s2, p, j, mask, DIMS, PARENTS)


@triton.jit
def sum_votes(
    poses,
    activations,
    maps,
    like,
    start,
    stop,
    step,
    p,
    j,
    here,
    mask,
    positions,
    CHILDREN: tl.constexpr,
    PARENTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PLANE: tl.constexpr,
    WIDTH: tl.constexpr,
    KERNEL_WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    SHARED: tl.constexpr,
    COORDINATES: tl.constexpr,
):
    """Σ a and Σ a v over every so many children."""
    DIMS: tl.constexpr = ROWS * COLUMNS
    weighed = tl.zeros_like(p).to(tl.float32)
    # Zeros, but loaded: the compiler lays tiles over threads as it lays the loads that begin them.
    votes = load_tiles(like, p, j, mask & (positions < 0), DIMS, PARENTS)
    u, a, matrix = load_child(
        poses, activations, maps, start, j, here, CHILDREN, PARENTS, DIMS, COLUMNS, PLANE, WIDTH, KERNEL_WIDTH, SHARED
    )
    for b in range(start, stop, step):
        ahead = tl.minimum(b + step, stop - 1)
        following = load_child(
            poses,
            activations,
            maps,
            ahead,
            j,
            here,
            CHILDREN,
            PARENTS,
            DIMS,
            COLUMNS,
            PLANE,
            WIDTH,
            KERNEL_WIDTH,
            SHARED,
        )
        weighed += a
        votes = add_votes(votes, matrix, scale_tiles(u, a, DIMS), ROWS, COLUMNS)
        if COORDINATES:
            row, column = coordinates(b, CHILDREN, PLACES, KERNEL_WIDTH)
            votes = moved(votes, (-row * a)[:, None], (-column * a)[:, None], ROWS, COLUMNS)
        u, a, matrix = following
    return weighed, votes

"""The backward pass by position: gradients of the parents."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.tiles import (
    LOG2E,
    accumulate,
    add_products,
    coordinates,
    deviations,
    load_child,
    load_logits,
    load_tiles,
    locate,
    moved,
    multiply,
    scale_tiles,
    store_sums,
    tile_of_positions,
    zero_tiles,
)


@triton.jit
def sum_parents(
    poses,  # (n, i, h, y, x)
    activations,  # (n, i, y, x)
    maps,  # (b or i, column × column, j)
    centre,  # (p, h, j)
    precision,  # (p, h, j)
    logit,  # (p, j)
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    log_total,  # (b, p)
    sums,  # (split, [p × j, p × h × j, p × h × j])   Σ_b dl, Σ_b dl d, Σ_b dl d²
    rows,  # (p, 4 h + 2, j)   gets the logits as the kernels take them
    grad_activation,  # (b, p)
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
    DIMS: tl.constexpr = ROWS * COLUMNS
    p, j, here, mask = tile_of_positions(positions, PARENTS, TILE, TILE_PARENTS)
    image, corner = locate(p, GRID_HEIGHT, GRID_WIDTH, WIDTH, STRIDE)
    poses += image.to(tl.int64) * (CHILDREN * DIMS * HEIGHT * WIDTH) + corner
    activations += image.to(tl.int64) * (CHILDREN * HEIGHT * WIDTH) + corner
    m = load_tiles(centre, p, j, mask, DIMS, PARENTS)
    scaled = scale_tiles(load_tiles(precision, p, j, mask, DIMS, PARENTS), -0.5 * LOG2E, DIMS)
    c = load_logits(logit, p, j, here, mask, PARENTS)
    g0 = tl.load(grad_mass + p[:, None] * PARENTS + j[None, :], mask=mask, other=0.0)
    g1 = load_tiles(grad_first, p, j, mask, DIMS, PARENTS)
    g2 = load_tiles(grad_second, p, j, mask, DIMS, PARENTS)
    e0 = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    e1 = zero_tiles(DIMS, TILE, TILE_PARENTS)
    e2 = zero_tiles(DIMS, TILE, TILE_PARENTS)
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
    log_sum = tl.load(log_total + tl.cast(start, tl.int64) * positions + p, mask=here, other=0.0)
    for b in range(start, stop):
        ahead = tl.minimum(b + 1, stop - 1)
        log_sum_ahead = tl.load(log_total + tl.cast(ahead, tl.int64) * positions + p, mask=here, other=0.0)
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
        shares = tl.exp2(add_products(c, scaled, squares, DIMS) - log_sum[:, None])
        dweight = add_products(add_products(g0, g1, d, DIMS), g2, squares, DIMS)
        da = tl.sum(dweight * shares, 1)
        dl = shares * a[:, None] * (dweight - da[:, None])
        e0 += dl
        e1 = accumulate(e1, dl, d, DIMS)
        e2 = accumulate(e2, dl, squares, DIMS)
        tl.store(grad_activation + tl.cast(b, tl.int64) * positions + p, da, mask=here)
        u, a, matrix = following
        log_sum = log_sum_ahead
    if split == 0:
        place = p[:, None] * ((4 * DIMS + 2) * PARENTS) + 4 * DIMS * PARENTS + j[None, :]
        tl.store(rows + place, c, mask=mask)
    store_sums(sums, e0, e1, e2, p, j, mask, positions, DIMS, PARENTS)

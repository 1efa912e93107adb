"""Backward passes over wide poses; `backward_parents` and `backward_children` have the same for narrow ones."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.tiles import (
    INTERPRETED,
    LOG2E,
    accumulate,
    add_each_product,
    coordinates,
    load_logits,
    locate,
    multiply,
    scale_tiles,
    sums_by_lane,
    tile_of_positions,
)
from quatcaps.routing.triton.kernels.wide_tiles import (
    apart,
    load_child,
    load_tiles,
    moved,
    own_rows,
    places,
    store_sums,
    sum_products,
    votes,
    zero_tiles,
)


@triton.jit
def sum_parents(
    poses,  # (n, y, x, i, h)
    activations,  # (n, y, x, i)
    maps,  # (b or i, column of the pose, j, column of the vote)
    centre,  # (p, h, j)
    precision,  # (p, h, j)
    logit,  # (p, j)
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    log_total,  # (b, p)
    sums,  # (split, [p × j, p × h × j, p × h × j])   Σ_b dl, Σ_b dl d, Σ_b dl d²
    rows,  # (p, [centre, precision, g1, g2: row, j, column; logit, g0: j])   gets the logits as the kernels take them
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
    TILE_COLUMNS: tl.constexpr,
):
    DIMS: tl.constexpr = ROWS * COLUMNS
    p, j, here, mask = tile_of_positions(positions, PARENTS, TILE, TILE_PARENTS)
    first, row_of, short = places(
        p,
        positions,
        CHILDREN,
        DIMS,
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
    poses += row_of
    activations += first
    own, own_mask = own_rows(p, j, here, PARENTS, ROWS, COLUMNS, TILE_COLUMNS)
    m = load_tiles(centre + own, own_mask, ROWS, COLUMNS * PARENTS)
    scaled = scale_tiles(load_tiles(precision + own, own_mask, ROWS, COLUMNS * PARENTS), -0.5 * LOG2E, ROWS)
    c = load_logits(logit, p, j, here, mask, PARENTS)
    g0 = tl.load(grad_mass + p[:, None] * PARENTS + j[None, :], mask=mask, other=0.0)
    g1 = load_tiles(grad_first + own, own_mask, ROWS, COLUMNS * PARENTS)
    g2 = load_tiles(grad_second + own, own_mask, ROWS, COLUMNS * PARENTS)
    e0 = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    e1 = zero_tiles(ROWS, TILE, TILE_PARENTS, TILE_COLUMNS)
    e2 = zero_tiles(ROWS, TILE, TILE_PARENTS, TILE_COLUMNS)
    split = tl.program_id(1)
    start = split * per_program
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
        shares = tl.exp2(c + sum_products(scaled, squares, ROWS) - log_sum[:, None])
        dweight = g0 + sum_products(add_each_product(g1, g2, d, ROWS), d, ROWS)
        da = tl.sum(dweight * shares, 1)
        dl = shares * a[:, None] * (dweight - da[:, None])
        e0 += dl
        e1 = accumulate(e1, dl[:, :, None], d, ROWS)
        e2 = accumulate(e2, dl[:, :, None], squares, ROWS)
        tl.store(grad_activation + tl.cast(b, tl.int64) * positions + p, da, mask=here)
        u, a, matrix = following
        log_sum = log_sum_ahead
    if split == 0:
        place = p[:, None] * ((4 * DIMS + 2) * PARENTS) + 4 * DIMS * PARENTS + j[None, :]
        tl.store(rows + place, c, mask=mask)
    store_sums(sums, e0, e1, e2, p, j, here, positions, PARENTS, ROWS, COLUMNS, TILE_COLUMNS)


@triton.jit
def sum_children(
    poses,  # (n, y, x, i, h)
    activations,  # (n, y, x, i)
    maps,  # (b or i, column of the pose, j, column of the vote)
    rows,  # (p, [centre, precision, g1, g2: row, j, column; logit, g0: j])
    log_total,  # (b, p)
    grad_activation,  # (b, p)
    uniform_rows,  # (p, [centre, g1, g2: row, j, column; g0: j])
    columns,  # (p, place, [i × h, i])               gradients of poses and activations
    grad_maps,  # (split, b, column of the pose, j, column of the vote)
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
    WEIGHTED: tl.constexpr,
    UNIFORM: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
):
    """The gradients of children and maps from weighted moments, from uniform ones, or from one of each at once."""
    DIMS: tl.constexpr = ROWS * COLUMNS
    INSIDE: tl.constexpr = CHILDREN * PLACES
    BLOCK: tl.constexpr = DIMS * PARENTS
    ROW: tl.constexpr = COLUMNS * PARENTS
    # One child a warp, one parent a thread. Of two children the compiler may choose which lanes get which.
    BY_LANE: tl.constexpr = (DIMS == 16) and (TILE == 1) and (TILE_PARENTS == 32) and (not INTERPRETED)
    number = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    column = tl.arange(0, TILE_COLUMNS)
    here = number < INSIDE
    b = tl.minimum(number, INSIDE - 1)
    place, i = b // CHILDREN, b % CHILDREN
    shift = (place // KERNEL_WIDTH * WIDTH + place % KERNEL_WIDTH) * CHILDREN + i
    spread = tl.zeros([TILE, TILE_PARENTS, TILE_COLUMNS], tl.int32)
    short = (column < COLUMNS)[None, None, :] & (spread == 0)
    real = (j < PARENTS)[None, :] & (tl.zeros([TILE, TILE_PARENTS], tl.int32) == 0)
    both = real[:, :, None] & short
    by_child = (shift * DIMS)[:, None, None] + column[None, None, :] + spread
    by_parent = (j * COLUMNS)[None, :, None] + column[None, None, :] + spread
    map_row = (i if SHARED else b) * (COLUMNS * ROW)
    matrix = load_tiles(maps + map_row[:, None, None] + by_parent, both, COLUMNS, ROW)
    dmatrix = zero_tiles(COLUMNS, TILE, TILE_PARENTS, TILE_COLUMNS)
    down, across = coordinates(b, CHILDREN, PLACES, KERNEL_WIDTH)
    log_total += b.to(tl.int64) * positions
    grad_activation += b.to(tl.int64) * positions
    split = tl.program_id(1)
    start = split * per_program
    stop = tl.minimum(start + per_program, positions)
    for p in range(start, stop):
        image, corner = locate(p, GRID_HEIGHT, GRID_WIDTH, WIDTH, STRIDE)
        first = (tl.cast(image, tl.int64) * (HEIGHT * WIDTH) + corner) * CHILDREN
        u = load_tiles(poses + first * DIMS + by_child, short, ROWS, COLUMNS)
        a = tl.load(activations + first + shift)
        weighted = rows + tl.cast(p, tl.int64) * (4 * BLOCK + 2 * PARENTS)
        even = uniform_rows + tl.cast(p, tl.int64) * (3 * BLOCK + PARENTS)
        m = load_tiles((weighted if WEIGHTED else even) + by_parent, both, ROWS, ROW)
        if COORDINATES:
            m = moved(m, down[:, None, None], across[:, None, None], ROWS, COLUMNS, TILE_COLUMNS)
        d = votes(m, -1.0, matrix, u, ROWS, COLUMNS, TILE, TILE_PARENTS, TILE_COLUMNS)
        dd = ()
        if WEIGHTED:
            q = load_tiles(weighted + BLOCK + by_parent, both, ROWS, ROW)
            g1 = load_tiles(weighted + 2 * BLOCK + by_parent, both, ROWS, ROW)
            g2 = load_tiles(weighted + 3 * BLOCK + by_parent, both, ROWS, ROW)
            c = tl.load(weighted + 4 * BLOCK + j[None, :], mask=real, other=float("-inf"))
            g0 = tl.load(weighted + (4 * BLOCK + PARENTS) + j[None, :], mask=real, other=0.0)
            log_sum = tl.load(log_total + p)
            da = tl.load(grad_activation + p)
            pull = multiply(q, d, ROWS)
            slope = add_each_product(g1, g2, d, ROWS)
            energy = sum_products(pull, d, ROWS)
            weight = tl.exp2(energy * (-0.5 * LOG2E) + (c - log_sum[:, None])) * a[:, None]
            dl = weight * (g0 + sum_products(slope, d, ROWS) - da[:, None])
            for r in tl.static_range(ROWS):
                dd += (weight[:, :, None] * (slope[r] + g2[r] * d[r]) - dl[:, :, None] * pull[r],)
        if UNIFORM:
            k1 = load_tiles(even + BLOCK + by_parent, both, ROWS, ROW)
            k2 = load_tiles(even + 2 * BLOCK + by_parent, both, ROWS, ROW)
            k0 = tl.load(even + 3 * BLOCK + j[None, :], mask=real, other=0.0)
            slope = add_each_product(k1, k2, d, ROWS)
            share = (a * (1.0 / PARENTS))[:, None, None]
            dshare = tl.sum(k0 + sum_products(slope, d, ROWS), 1) * (1.0 / PARENTS)
            both_dd = ()
            for r in tl.static_range(ROWS):
                more = share * (slope[r] + k2[r] * d[r])
                if WEIGHTED:
                    more += dd[r]
                both_dd += (more,)
            dd = both_dd
            da = da + dshare if WEIGHTED else dshare
        out = columns + (tl.cast(p, tl.int64) * PLACES + place) * (CHILDREN * (DIMS + 1))
        du = ()
        for r in tl.static_range(ROWS):
            for e in tl.static_range(COLUMNS):
                du += (tl.sum(dd[r] * matrix[e], 2),)
        if BY_LANE:
            once = here[:, None] & (j % 2 == 0)[None, :]
            tl.store((out + i * DIMS)[:, None] + (j // 2)[None, :], sums_by_lane(du, j), mask=once)
        else:
            for h in tl.static_range(DIMS):
                tl.store(out + i * DIMS + h, tl.sum(du[h], 1), mask=here)
        tl.store(out + CHILDREN * DIMS + i, da, mask=here)
        total = ()
        for e in tl.static_range(COLUMNS):
            total += (dmatrix[e],)
        for r in tl.static_range(ROWS):
            numbers = apart(u[r], TILE, TILE_PARENTS, TILE_COLUMNS)
            grown = ()
            for e in tl.static_range(COLUMNS):
                grown += (total[e] + dd[r] * numbers[e],)
            total = grown
        dmatrix = total
    part = grad_maps + split.to(tl.int64) * (INSIDE * COLUMNS * ROW)
    target = part + (b * (COLUMNS * ROW))[:, None, None] + by_parent
    for e in tl.static_range(COLUMNS):
        tl.store(target + e * ROW, dmatrix[e], mask=both & here[:, None, None])

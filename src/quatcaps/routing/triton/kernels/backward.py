"""Backward passes: by position, gradients of the parents; by child, gradients of children and maps."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.forward import SUMS, TOTALS
from quatcaps.routing.triton.kernels.gradients import (
    about,
    grad_of_pose,
    load_parents,
    load_step,
    of_children,
    plus_grad_of_maps,
    rows_over_children,
    share_of,
    under_none,
    under_parents,
)
from quatcaps.routing.triton.kernels.lanes import sums_by_lane
from quatcaps.routing.triton.kernels.loads import (
    load_child,
    load_logits,
    load_poses,
    load_rows,
    load_tiles,
    locate,
    steps_of_program,
    store_rows,
    store_sums,
    store_tiles,
    tile_of_positions,
    windows,
)
from quatcaps.routing.triton.kernels.tiles import (
    INTERPRETED,
    LOG2E,
    apart,
    coordinates,
    deviations,
    dot,
    moved,
    of_shares,
    over_dims,
    over_parents,
    plus_products,
    plus_weighted,
    products,
    scaled,
    sums,
    votes,
    zeros,
)


@triton.jit
def sum_parents(
    poses,
    activations,
    maps,
    centre,  # (p, h, j)
    precision,  # (p, h, j)
    logit,  # (p, j)
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    log_total,  # (b, p)
    parts,  # (split, [p × j, p × h × j, p × h × j])   Σ_b dl, Σ_b dl d, Σ_b dl d²
    known,  # (p, 4 h + 2, j)   gets the logits as the kernels take them
    grad_activation,  # (b, p)
    positions,
    per_program,
    LAYER: tl.constexpr,
    FINDS: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    COUNT: tl.constexpr = LAYER.COUNT
    p, j, here, mask = tile_of_positions(positions, LAYER, TILE, TILE_PARENTS)
    poses, activations = windows(poses, activations, p, positions, LAYER, TILE, TILE_PARENTS)
    m = load_poses(centre, p, j, here, LAYER)
    halves = scaled(load_poses(precision, p, j, here, LAYER), -0.5 * LOG2E, COUNT)
    c = load_logits(logit, p, j, here, mask, LAYER)
    g0 = tl.load(grad_mass + p[:, None] * LAYER.PARENTS + j[None, :], mask=mask, other=0.0)
    g1 = load_poses(grad_first, p, j, here, LAYER)
    g2 = load_poses(grad_second, p, j, here, LAYER)
    e0 = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    e1 = zeros(COUNT, LAYER, TILE, TILE_PARENTS)
    e2 = zeros(COUNT, LAYER, TILE, TILE_PARENTS)
    start, stop = steps_of_program(per_program, LAYER.INSIDE)
    u, a, matrix = load_child(poses, activations, maps, start, j, here, LAYER, TILE, TILE_PARENTS)
    log_sum = tl.load(log_total + tl.cast(start, tl.int64) * positions + p, mask=here, other=0.0)
    for b in range(start, stop):
        ahead = tl.minimum(b + 1, stop - 1)
        log_sum_ahead = tl.load(log_total + tl.cast(ahead, tl.int64) * positions + p, mask=here, other=0.0)
        following = load_child(poses, activations, maps, ahead, j, here, LAYER, TILE, TILE_PARENTS)
        d = deviations(m, matrix, u, b, LAYER, TILE, TILE_PARENTS)
        squares = products(d, d, COUNT)
        shares = tl.exp2(dot(c, halves, squares, LAYER) - log_sum[:, None])
        dweight = dot(g0, plus_products(g1, g2, d, COUNT), d, LAYER)
        place = grad_activation + tl.cast(b, tl.int64) * positions + p
        if FINDS == SUMS:
            da = tl.load(place, mask=here, other=0.0)
        else:
            da = tl.sum(dweight * shares, 1)
            tl.store(place, da, mask=here)
        if FINDS != TOTALS:
            dl = shares * a[:, None] * (dweight - of_shares(da, log_sum, LAYER)[:, None])
            e0 += dl
            e1 = plus_weighted(e1, over_dims(dl, LAYER), d, COUNT)
            e2 = plus_weighted(e2, over_dims(dl, LAYER), squares, COUNT)
        u, a, matrix = following
        log_sum = log_sum_ahead
    if FINDS != TOTALS:
        if tl.program_id(1) == 0:
            place = p[:, None] * ((4 * LAYER.DIMS + 2) * LAYER.PARENTS) + 4 * LAYER.DIMS * LAYER.PARENTS + j[None, :]
            tl.store(known + place, c, mask=mask)
        store_sums(parts, e0, e1, e2, p, j, here, positions, LAYER)


@triton.jit
def sum_children(
    packed,  # (n, y, x, h + 1, i)
    maps,  # (b or i, column × column, j)
    weighted,  # for each iteration: known (p, [centre, precision, g1, g2: h; logit, g0], j), log_total, da (b, p)
    even,  # (p, [centre, g1, g2: h; g0], j), about the centre of the first of `weighted` where there is one
    columns,  # (p, h + 1, b)                        gradients of poses and activations
    grad_maps,  # (split, b, column × column, j)
    positions,
    per_program,
    LAYER: tl.constexpr,
    WEIGHTED: tl.constexpr,
    UNIFORM: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    """The gradients of children and maps from so many weighted moments, and from uniform ones: all share the votes, and
    everything after dd."""
    DIMS: tl.constexpr = LAYER.DIMS
    CELLS: tl.constexpr = LAYER.CELLS
    b = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    here = b < LAYER.INSIDE
    real = j < LAYER.PARENTS
    mask = here[:, None] & real[None, :]
    place, i = b // LAYER.CHILDREN, b % LAYER.CHILDREN
    shift = place // LAYER.KERNEL_WIDTH * LAYER.WIDTH + place % LAYER.KERNEL_WIDTH
    window = packed + shift * ((DIMS + 1) * LAYER.CHILDREN) + i
    down, across = coordinates(b, LAYER)
    matrix = load_tiles(maps, i if LAYER.SHARED else b, j, mask, CELLS, LAYER.PARENTS)
    dmatrix = zeros(CELLS, LAYER, TILE, TILE_PARENTS)
    start, stop = steps_of_program(per_program, positions)
    mine = of_children(weighted[0], b, positions)
    step = load_step(start, window, mine, even, j, here, real, LAYER, WEIGHTED)
    for p in range(start, stop):
        u, a, parents = step
        ahead = tl.minimum(p + 1, stop - 1)
        step = load_step(ahead, window, mine, even, j, here, real, LAYER, WEIGHTED)
        if UNIFORM:
            row = even + p * ((3 * DIMS + 1) * LAYER.PARENTS) + j
            k1 = rows_over_children(row + DIMS * LAYER.PARENTS, real, LAYER)
            k2 = rows_over_children(row + 2 * DIMS * LAYER.PARENTS, real, LAYER)
            k0 = tl.load(row + 3 * DIMS * LAYER.PARENTS, mask=real, other=0.0)[None, :]
        m = parents[0]
        if LAYER.COORDINATES:
            m = moved(m, down[:, None], across[:, None], LAYER)
        seen = over_parents(u, LAYER)
        d = votes(m, -1.0, matrix, seen, LAYER, TILE, TILE_PARENTS)
        if WEIGHTED > 0:
            dd, da = under_parents(d, a, parents, LAYER)
            for k in tl.static_range(1, WEIGHTED):
                others = load_parents(p, of_children(weighted[k], b, positions), j, here, real, LAYER)
                more, again = under_parents(about(d, parents[0], others[0], LAYER), a, others, LAYER)
                dd = sums(dd, more, DIMS)
                da += again
        if UNIFORM:
            more, again = under_none(d, a, k0, k1, k2, share_of(p, place, LAYER), LAYER)
            if WEIGHTED > 0:
                dd = sums(dd, more, DIMS)
                da += again
            else:
                dd, da = more, again
        out = columns + tl.cast(p, tl.int64) * ((DIMS + 1) * LAYER.INSIDE) + b
        du = grad_of_pose(dd, matrix, LAYER)
        for h in tl.static_range(DIMS):
            tl.store(out + h * LAYER.INSIDE, tl.sum(du[h], 1), mask=here)
        tl.store(out + DIMS * LAYER.INSIDE, da * share_of(p, place, LAYER), mask=here)
        dmatrix = plus_grad_of_maps(dmatrix, dd, seen, LAYER)
    part = tl.cast(tl.program_id(1), tl.int64) * (LAYER.INSIDE * CELLS * LAYER.PARENTS)
    store_tiles(grad_maps + part, dmatrix, b, j, mask, CELLS, LAYER.PARENTS)


@triton.jit
def sum_children_wide(
    poses,  # (n, y, x, i, h)
    activations,  # (n, y, x, i)
    maps,  # (b or i, column of the pose, j, column of the vote)
    weighted,  # for each iteration: known (p, [centre, precision, g1, g2: row, j, column; logit, g0: j]), log_total, da
    even,  # (p, [centre, g1, g2: row, j, column; g0: j])
    columns,  # (p, place, [i × h, i])               gradients of poses and activations
    grad_maps,  # (split, b, column of the pose, j, column of the vote)
    positions,
    per_program,
    LAYER: tl.constexpr,
    WEIGHTED: tl.constexpr,
    UNIFORM: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    """The same of wide poses."""
    TILE_COLUMNS: tl.constexpr = LAYER.TILE_COLUMNS
    ROWS: tl.constexpr = LAYER.ROWS
    COLUMNS: tl.constexpr = LAYER.COLUMNS
    DIMS: tl.constexpr = LAYER.DIMS
    BLOCK: tl.constexpr = LAYER.DIMS * LAYER.PARENTS
    ROW: tl.constexpr = LAYER.ROW
    # One child a warp, one parent a thread. Of two children the compiler may choose which lanes get which.
    BY_LANE: tl.constexpr = (LAYER.DIMS == 16) and (TILE == 1) and (TILE_PARENTS == 32) and (not INTERPRETED)
    number = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    column = tl.arange(0, LAYER.TILE_COLUMNS)
    here = number < LAYER.INSIDE
    b = tl.minimum(number, LAYER.INSIDE - 1)
    place, i = b // LAYER.CHILDREN, b % LAYER.CHILDREN
    shift = (place // LAYER.KERNEL_WIDTH * LAYER.WIDTH + place % LAYER.KERNEL_WIDTH) * LAYER.CHILDREN + i
    spread = tl.zeros([TILE, TILE_PARENTS, TILE_COLUMNS], tl.int32)
    short = (column < COLUMNS)[None, None, :] & (spread == 0)
    real = (j < LAYER.PARENTS)[None, :] & (tl.zeros([TILE, TILE_PARENTS], tl.int32) == 0)
    both = real[:, :, None] & short
    by_child = (shift * DIMS)[:, None, None] + column[None, None, :] + spread
    by_parent = (j * COLUMNS)[None, :, None] + column[None, None, :] + spread
    map_row = (i if LAYER.SHARED else b) * (COLUMNS * ROW)
    matrix = load_rows(maps + map_row[:, None, None] + by_parent, both, COLUMNS, ROW)
    dmatrix = zeros(COLUMNS, LAYER, TILE, TILE_PARENTS)
    down, across = coordinates(b, LAYER)
    start, stop = steps_of_program(per_program, positions)
    for p in range(start, stop):
        image, corner = locate(p, LAYER)
        first = (tl.cast(image, tl.int64) * LAYER.PLANE + corner) * LAYER.CHILDREN
        u = load_rows(poses + first * DIMS + by_child, short, ROWS, COLUMNS)
        a = tl.load(activations + first + shift)
        evenly = even + tl.cast(p, tl.int64) * (3 * BLOCK + LAYER.PARENTS)
        leading = weighted[0][0] + tl.cast(p, tl.int64) * (4 * BLOCK + 2 * LAYER.PARENTS) if WEIGHTED > 0 else evenly
        m = load_rows(leading + by_parent, both, ROWS, ROW)
        if LAYER.COORDINATES:
            m = moved(m, down[:, None, None], across[:, None, None], LAYER)
        d = votes(m, -1.0, matrix, u, LAYER, TILE, TILE_PARENTS)
        for k in tl.static_range(WEIGHTED):
            known, log_total, grad_activation = weighted[k]
            row = known + tl.cast(p, tl.int64) * (4 * BLOCK + 2 * LAYER.PARENTS)
            away = d
            if k > 0:
                centre = load_rows(leading + by_parent, both, ROWS, ROW)
                away = about(d, centre, load_rows(row + by_parent, both, ROWS, ROW), LAYER)
            q = load_rows(row + BLOCK + by_parent, both, ROWS, ROW)
            g1 = load_rows(row + 2 * BLOCK + by_parent, both, ROWS, ROW)
            g2 = load_rows(row + 3 * BLOCK + by_parent, both, ROWS, ROW)
            c = tl.load(row + 4 * BLOCK + j[None, :], mask=real, other=float("-inf"))
            g0 = tl.load(row + (4 * BLOCK + LAYER.PARENTS) + j[None, :], mask=real, other=0.0)
            log_sum = tl.load(log_total + b.to(tl.int64) * positions + p)
            given = tl.load(grad_activation + b.to(tl.int64) * positions + p)
            more, again = under_parents(away, a, (m, q, g1, g2, c, g0, log_sum, given), LAYER)
            if k == 0:
                dd, da = more, again
            else:
                dd = sums(dd, more, ROWS)
                da += again
        if UNIFORM:
            k1 = load_rows(evenly + BLOCK + by_parent, both, ROWS, ROW)
            k2 = load_rows(evenly + 2 * BLOCK + by_parent, both, ROWS, ROW)
            k0 = tl.load(evenly + 3 * BLOCK + j[None, :], mask=real, other=0.0)
            more, again = under_none(d, a, k0, k1, k2, share_of(p, place, LAYER), LAYER)
            if WEIGHTED > 0:
                dd = sums(dd, more, ROWS)
                da += again
            else:
                dd, da = more, again
        out = columns + (tl.cast(p, tl.int64) * LAYER.PLACES + place) * (LAYER.CHILDREN * (DIMS + 1))
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
        tl.store(out + LAYER.CHILDREN * DIMS + i, da * share_of(p, place, LAYER), mask=here)
        for r in tl.static_range(ROWS):
            numbers = apart(u[r], LAYER, TILE, TILE_PARENTS)
            grown = ()
            for e in tl.static_range(COLUMNS):
                grown += (dmatrix[e] + dd[r] * numbers[e],)
            dmatrix = grown
    part = grad_maps + tl.cast(tl.program_id(1), tl.int64) * (LAYER.INSIDE * COLUMNS * ROW)
    target = part + (b * (COLUMNS * ROW))[:, None, None] + by_parent
    store_rows(target, dmatrix, both & here[:, None, None], COLUMNS, ROW)

"""Backward passes: by position, gradients of the parents; by child, gradients of children and maps."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.forward import SUMS, TOTALS
from quatcaps.routing.triton.kernels.lanes import sums_by_lane
from quatcaps.routing.triton.kernels.tiles import (
    INTERPRETED,
    LOG2E,
    apart,
    coordinates,
    deviations,
    dot,
    hamilton,
    load_child,
    load_logits,
    load_poses,
    load_rows,
    load_tiles,
    locate,
    moved,
    of_shares,
    over_dims,
    over_parents,
    plus_products,
    plus_weighted,
    products,
    scaled,
    steps_of_program,
    store_rows,
    store_sums,
    store_tiles,
    sums,
    tile_of_positions,
    votes,
    windows,
    with_slack,
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


@triton.jit
def grad_of_pose(dd, matrix, LAYER: tl.constexpr):
    """Aᵀ dd, before the sum over parents; of a rotor w, dd w*."""
    if LAYER.ROTORS:
        return hamilton((0.0, 0.0, 0.0, 0.0), dd, (matrix[0], -matrix[1], -matrix[2], -matrix[3]))
    else:
        ROWS: tl.constexpr = LAYER.ROWS
        COLUMNS: tl.constexpr = LAYER.COLUMNS
        result = ()
        for r in tl.static_range(ROWS):
            for e in tl.static_range(COLUMNS):
                du = dd[r * COLUMNS] * matrix[e]
                for k in tl.static_range(1, COLUMNS):
                    du += dd[r * COLUMNS + k] * matrix[k * COLUMNS + e]
                result += (du,)
        return result


@triton.jit
def plus_grad_of_maps(start, dd, u, LAYER: tl.constexpr):
    """start + dd uᵀ; of a rotor, start + u* dd."""
    if LAYER.ROTORS:
        return hamilton(start, (u[0], -u[1], -u[2], -u[3]), dd)
    else:
        ROWS: tl.constexpr = LAYER.ROWS
        COLUMNS: tl.constexpr = LAYER.COLUMNS
        result = ()
        for k in tl.static_range(COLUMNS):
            for e in tl.static_range(COLUMNS):
                cell = start[k * COLUMNS + e]
                for r in tl.static_range(ROWS):
                    cell += dd[r * COLUMNS + k] * u[r * COLUMNS + e]
                result += (cell,)
        return result


@triton.jit
def under_parents(d, a, parents, LAYER: tl.constexpr):
    """dd and da of weighted moments, whose parents are and want (centre, precision, g1, g2, logit, g0), and whose
    children had `log_sum` and have the gradient `da` of their activation."""
    _, q, g1, g2, c, g0, log_sum, da = parents
    COUNT: tl.constexpr = LAYER.COUNT
    slope = plus_products(g1, g2, d, COUNT)
    dweight = dot(g0, slope, d, LAYER)
    pull = products(q, d, COUNT)
    energy = dot(0.0, pull, d, LAYER)
    if LAYER.EVERYWHERE:
        log_sum = with_slack(log_sum)
    weight = tl.exp2(energy * (-0.5 * LOG2E) + (c - log_sum[:, None])) * a[:, None]
    dl = weight * (dweight - of_shares(da, log_sum, LAYER)[:, None])
    weight, dl = over_dims(weight, LAYER), over_dims(dl, LAYER)
    dd = ()
    for h in tl.static_range(COUNT):
        dd += (weight * (slope[h] + g2[h] * d[h]) - dl * pull[h],)
    return dd, da


@triton.jit
def under_none(d, a, k0, k1, k2, share, LAYER: tl.constexpr):
    """dd and da, the latter but for the factor `share`, of uniform moments with the gradients k0, k1, k2. Where
    positions do not compete yet, each has the whole of both."""
    COUNT: tl.constexpr = LAYER.COUNT
    slope = plus_products(k1, k2, d, COUNT)
    da = tl.sum(dot(k0, slope, d, LAYER), 1) * (1.0 / LAYER.PARENTS)
    if LAYER.SPREAD:
        given = a * share
    else:
        given = a
        if LAYER.EVERYWHERE:
            da = da / share
    evenly = over_dims((given * (1.0 / LAYER.PARENTS))[:, None], LAYER)
    dd = ()
    for h in tl.static_range(COUNT):
        dd += (evenly * (slope[h] + k2[h] * d[h]),)
    return dd, da


@triton.jit
def share_of(p, place, LAYER: tl.constexpr):
    """Where all positions compete: one over the number of windows that hold the child at a place of window p. Each of
    them adds that share of the gradient of its activation."""
    if LAYER.EVERYWHERE:
        within = p % (LAYER.GRID_HEIGHT * LAYER.GRID_WIDTH)
        y = within // LAYER.GRID_WIDTH * LAYER.STRIDE + place // LAYER.KERNEL_WIDTH
        x = within % LAYER.GRID_WIDTH * LAYER.STRIDE + place % LAYER.KERNEL_WIDTH
        rows = windows_over(y, LAYER.KERNEL_HEIGHT, LAYER.GRID_HEIGHT, LAYER)
        windows_with_it = rows * windows_over(x, LAYER.KERNEL_WIDTH, LAYER.GRID_WIDTH, LAYER)
        return 1.0 / tl.maximum(windows_with_it, 1).to(tl.float32)
    else:
        return 1.0


@triton.jit
def windows_over(y, KERNEL: tl.constexpr, GRID: tl.constexpr, LAYER: tl.constexpr):
    """How many windows hold row, or column, y."""
    last = tl.minimum(y // LAYER.STRIDE, GRID - 1)
    return last - tl.maximum((y - KERNEL + LAYER.STRIDE) // LAYER.STRIDE, 0) + 1


@triton.jit
def of_children(weighted, b, positions):
    """What is known of parents, and where the tile's children have their logarithms and gradients."""
    known, log_total, grad_activation = weighted
    return known, log_total + b.to(tl.int64) * positions, grad_activation + b.to(tl.int64) * positions


@triton.jit
def load_step(p, window, weighted, even, j, here, real, LAYER: tl.constexpr, WEIGHTED: tl.constexpr):
    """Poses and activations of the tile's children in the window at p, and its parents as `under_parents` takes them;
    of uniform moments their centre alone."""
    image, corner = locate(p, LAYER)
    seen = window + (tl.cast(image, tl.int64) * LAYER.PLANE + corner) * ((LAYER.DIMS + 1) * LAYER.CHILDREN)
    u = load_rows(seen, here, LAYER.DIMS, LAYER.CHILDREN)
    a = tl.load(seen + LAYER.DIMS * LAYER.CHILDREN, mask=here, other=0.0)
    if WEIGHTED > 0:
        return u, a, load_parents(p, weighted, j, here, real, LAYER)
    else:
        m = rows_over_children(even + p * ((3 * LAYER.DIMS + 1) * LAYER.PARENTS) + j, real, LAYER)
        return u, a, (m, m, m, m, a, a, a, a)


@triton.jit
def load_parents(p, weighted, j, here, real, LAYER: tl.constexpr):
    known, log_total, grad_activation = weighted
    BLOCK: tl.constexpr = LAYER.DIMS * LAYER.PARENTS
    row = known + p * (4 * BLOCK + 2 * LAYER.PARENTS) + j
    m = rows_over_children(row, real, LAYER)
    q = rows_over_children(row + BLOCK, real, LAYER)
    g1 = rows_over_children(row + 2 * BLOCK, real, LAYER)
    g2 = rows_over_children(row + 3 * BLOCK, real, LAYER)
    c = tl.load(row + 4 * BLOCK, mask=real, other=float("-inf"))[None, :]
    g0 = tl.load(row + (4 * BLOCK + LAYER.PARENTS), mask=real, other=0.0)[None, :]
    log_sum = tl.load(log_total + p, mask=here, other=0.0)
    return m, q, g1, g2, c, g0, log_sum, tl.load(grad_activation + p, mask=here, other=0.0)


@triton.jit
def rows_over_children(source, real, LAYER: tl.constexpr):
    """The parents at one position, as rows that spread over a tile."""
    rows = ()
    DIMS: tl.constexpr = LAYER.DIMS
    for h in tl.static_range(DIMS):
        rows += (tl.load(source + h * LAYER.PARENTS, mask=real, other=0.0)[None, :],)
    return rows


@triton.jit
def about(d, m, other, LAYER: tl.constexpr):
    """Deviations about another centre."""
    COUNT: tl.constexpr = LAYER.COUNT
    result = ()
    for h in tl.static_range(COUNT):
        result += (d[h] + (m[h] - other[h]),)
    return result

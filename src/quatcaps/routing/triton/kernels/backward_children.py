"""The backward pass by child: gradients of children and maps, and the fold of their column buffer."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.tiles import (
    LOG2E,
    add_tiles,
    coordinates,
    deviations_by_child,
    load_position,
    load_rows,
    load_tiles,
    moved,
    multiply,
    slopes,
    store_tiles,
    zero_tiles,
)


@triton.jit
def sum_children(
    packed,  # (n, y, x, h + 1, i)
    maps,  # (b or i, column × column, j)
    rows,  # (p, [centre, precision, g1, g2: h; logit, g0], j)
    log_total,  # (b, p)
    grad_activation,  # (b, p)
    uniform_rows,  # (p, [centre, g1, g2: h; g0], j)
    columns,  # (p, h + 1, b)                        gradients of poses and activations
    grad_maps,  # (split, b, column × column, j)
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
):
    """The gradients of children and maps from weighted moments, from uniform ones, or from one of each at once: the
    two share the votes, and everything after dd."""
    DIMS: tl.constexpr = ROWS * COLUMNS
    INSIDE: tl.constexpr = CHILDREN * PLACES
    b = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    here = b < INSIDE
    real = j < PARENTS
    mask = here[:, None] & real[None, :]
    place = b // CHILDREN
    window = packed + (place // KERNEL_WIDTH * WIDTH + place % KERNEL_WIDTH) * ((DIMS + 1) * CHILDREN) + b % CHILDREN
    row = b % CHILDREN if SHARED else b
    down, across = coordinates(b, CHILDREN, PLACES, KERNEL_WIDTH)
    matrix = load_tiles(maps, row, j, mask, COLUMNS * COLUMNS, PARENTS)
    dmatrix = zero_tiles(COLUMNS * COLUMNS, TILE, TILE_PARENTS)
    split = tl.program_id(1)
    start = split * per_program
    stop = tl.minimum(start + per_program, positions)
    children = (log_total + b.to(tl.int64) * positions, grad_activation + b.to(tl.int64) * positions)
    step = load_position(
        start,
        window,
        (rows if WEIGHTED else uniform_rows) + j,
        children,
        here,
        real,
        CHILDREN,
        PARENTS,
        DIMS,
        HEIGHT,
        WIDTH,
        GRID_HEIGHT,
        GRID_WIDTH,
        STRIDE,
        WEIGHTED,
    )
    for p in range(start, stop):
        u, a, m, q, g1, g2, c, g0, log_sum, da = step
        step = load_position(
            tl.minimum(p + 1, stop - 1),
            window,
            (rows if WEIGHTED else uniform_rows) + j,
            children,
            here,
            real,
            CHILDREN,
            PARENTS,
            DIMS,
            HEIGHT,
            WIDTH,
            GRID_HEIGHT,
            GRID_WIDTH,
            STRIDE,
            WEIGHTED,
        )
        if UNIFORM:
            even_row = uniform_rows + p * ((3 * DIMS + 1) * PARENTS) + j
            k1 = load_rows(even_row + DIMS * PARENTS, real, DIMS, PARENTS)
            k2 = load_rows(even_row + 2 * DIMS * PARENTS, real, DIMS, PARENTS)
            k0 = tl.load(even_row + 3 * DIMS * PARENTS, mask=real, other=0.0)[None, :]
        centred = m
        if COORDINATES:
            centred = moved(m, down[:, None], across[:, None], ROWS, COLUMNS)
        d = deviations_by_child(matrix, u, centred, ROWS, COLUMNS)
        if WEIGHTED:
            dweight, slope = slopes(g0, g1, g2, d, DIMS)
            pull = multiply(q, d, DIMS)
            energy = pull[0] * d[0]
            for h in tl.static_range(1, DIMS):
                energy += pull[h] * d[h]
            weight = tl.exp2(energy * (-0.5 * LOG2E) + (c - log_sum[:, None])) * a[:, None]
            dl = weight * (dweight - da[:, None])
            dd = ()
            for h in tl.static_range(DIMS):
                dd += (weight * (slope[h] + g2[h] * d[h]) - dl * pull[h],)
        if UNIFORM:
            dshare, slope = slopes(k0, k1, k2, d, DIMS)
            even = (a * (1.0 / PARENTS))[:, None]
            more = ()
            for h in tl.static_range(DIMS):
                more += (even * (slope[h] + k2[h] * d[h]),)
            dshare = tl.sum(dshare, 1) * (1.0 / PARENTS)
            if WEIGHTED:
                dd = add_tiles(dd, more, DIMS)
                da += dshare
            else:
                dd = more
                da = dshare
        out = columns + tl.cast(p, tl.int64) * ((DIMS + 1) * INSIDE) + b
        for r in tl.static_range(ROWS):
            for e in tl.static_range(COLUMNS):
                du = dd[r * COLUMNS] * matrix[e]
                for k in tl.static_range(1, COLUMNS):
                    du += dd[r * COLUMNS + k] * matrix[k * COLUMNS + e]
                tl.store(out + (r * COLUMNS + e) * INSIDE, tl.sum(du, 1), mask=here)
        tl.store(out + DIMS * INSIDE, da, mask=here)
        total = ()
        for k in tl.static_range(COLUMNS):
            for e in tl.static_range(COLUMNS):
                cell = dmatrix[k * COLUMNS + e]
                for r in tl.static_range(ROWS):
                    cell += dd[r * COLUMNS + k] * u[r * COLUMNS + e][:, None]
                total += (cell,)
        dmatrix = total
    part = split.to(tl.int64) * (INSIDE * COLUMNS * COLUMNS * PARENTS)
    store_tiles(grad_maps + part, dmatrix, b, j, mask, COLUMNS * COLUMNS, PARENTS)


@triton.jit
def fold(
    columns,  # (p, h + 1, b)
    grad_poses,  # (n, i, h, y, x)
    grad_activations,  # (n, i, y, x)
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
    TILE_CHILDREN: tl.constexpr,
):
    """Each child's gradient: the sum of its columns in all windows that hold it, place by place."""
    INSIDE: tl.constexpr = CHILDREN * KERNEL_HEIGHT * KERNEL_WIDTH
    PLANE: tl.constexpr = HEIGHT * WIDTH
    pixel = tl.program_id(0) * TILE + tl.arange(0, TILE)
    i = tl.program_id(1) * TILE_CHILDREN + tl.arange(0, TILE_CHILDREN)
    h = tl.program_id(2)
    image, y, x = pixel // PLANE, pixel // WIDTH % HEIGHT, pixel % WIDTH
    here = pixel < pixels
    total = tl.zeros([TILE, TILE_CHILDREN], tl.float32)
    for ky in range(KERNEL_HEIGHT):
        top = y - ky
        row = top // STRIDE
        for kx in range(KERNEL_WIDTH):
            left = x - kx
            column = left // STRIDE
            seen = here & (top >= 0) & (left >= 0) & (row < GRID_HEIGHT) & (column < GRID_WIDTH)
            seen &= (row * STRIDE == top) & (column * STRIDE == left)
            p = ((image * GRID_HEIGHT + row) * GRID_WIDTH + column).to(tl.int64)
            source = columns + (p * (DIMS + 1) + h) * INSIDE + (ky * KERNEL_WIDTH + kx) * CHILDREN
            total += tl.load(source[:, None] + i[None, :], mask=seen[:, None] & (i < CHILDREN)[None, :], other=0.0)
    mask = here[:, None] & (i < CHILDREN)[None, :]
    within = (pixel % PLANE)[:, None]
    channel = image[:, None].to(tl.int64) * CHILDREN + i[None, :]
    if h < DIMS:
        tl.store(grad_poses + (channel * DIMS + h) * PLANE + within, total, mask=mask)
    else:
        tl.store(grad_activations + channel * PLANE + within, total, mask=mask)

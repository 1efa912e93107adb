"""What the backward passes by child are made of: gradients under parents and under none, and what a step loads."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.loads import load_rows, locate
from quatcaps.routing.triton.kernels.tiles import (
    LOG2E,
    dot,
    hamilton,
    of_shares,
    over_dims,
    plus_products,
    products,
    with_slack,
)


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

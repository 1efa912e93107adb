"""Forward passes: moments, summed over children in registers."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.loads import (
    load_activation,
    load_child,
    load_logits,
    load_poses,
    steps_of_program,
    store_poses,
    store_sums,
    tile_of_positions,
    windows,
    zeros_laid_as,
)
from quatcaps.routing.triton.kernels.tiles import (
    LOG2E,
    SMALLEST,
    coordinates,
    deviations,
    dot,
    moved,
    over_dims,
    over_parents,
    over_positions,
    plus_products,
    plus_weighted,
    products,
    scaled,
    softmax,
    sums,
    votes,
    with_slack,
    zeros,
)

SOME = tl.constexpr(8)
"""Of the children, every so many find the centre of uniform moments."""
BOTH, TOTALS, SUMS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""What a pass finds: all, only each child's total in a window, or the sums under totals that are given."""


@triton.jit
def sum_moments(
    poses,
    activations,
    maps,
    centre,  # (p, h, j)
    precision,  # (p, h, j)
    logit,  # (p, j)
    parts,  # (split, [p × j, p × h × j, p × h × j])   mass, first, second
    log_total,  # (b, p)                               log2 Σ_j exp2(logit)
    positions,
    per_program,
    LAYER: tl.constexpr,
    FINDS: tl.constexpr,
    KEEP: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    COUNT: tl.constexpr = LAYER.COUNT
    # Two children a turn: what is loaded for the next one then needs no moving to where this one's numbers were.
    UNROLLED: tl.constexpr = 2 if LAYER.WIDE else 1
    p, j, here, mask = tile_of_positions(positions, LAYER, TILE, TILE_PARENTS)
    poses, activations = windows(poses, activations, p, positions, LAYER, TILE, TILE_PARENTS)
    m = load_poses(centre, p, j, here, LAYER)
    halves = scaled(load_poses(precision, p, j, here, LAYER), -0.5 * LOG2E, COUNT)
    c = load_logits(logit, p, j, here, mask, LAYER)
    s0 = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    s1 = zeros(COUNT, LAYER, TILE, TILE_PARENTS)
    s2 = zeros(COUNT, LAYER, TILE, TILE_PARENTS)
    start, stop = steps_of_program(per_program, LAYER.INSIDE)
    u, a, matrix = load_child(poses, activations, maps, start, j, here, LAYER, TILE, TILE_PARENTS)
    for b in tl.range(start, stop, loop_unroll_factor=UNROLLED):
        ahead = tl.minimum(b + 1, stop - 1)
        following = load_child(poses, activations, maps, ahead, j, here, LAYER, TILE, TILE_PARENTS)
        d = deviations(m, matrix, u, b, LAYER, TILE, TILE_PARENTS)
        squares = products(d, d, COUNT)
        logits = dot(c, halves, squares, LAYER)
        place = log_total + tl.cast(b, tl.int64) * positions + p
        if FINDS == SUMS:
            weight = tl.exp2(logits - tl.load(place, mask=here, other=0.0)[:, None]) * a[:, None]
        else:
            powers, total, log_sum = softmax(logits)
            weight = powers * (a / total)[:, None]
            if KEEP:
                tl.store(place, log_sum if LAYER.EVERYWHERE else with_slack(log_sum), mask=here)
        if FINDS != TOTALS:
            s0 += weight
            s1 = plus_weighted(s1, over_dims(weight, LAYER), d, COUNT)
            s2 = plus_weighted(s2, over_dims(weight, LAYER), squares, COUNT)
        u, a, matrix = following
    if FINDS != TOTALS:
        store_sums(parts, s0, s1, s2, p, j, here, positions, LAYER)


@triton.jit
def sum_uniform(
    poses,
    activations,
    maps,
    mass,  # (split, p)
    centre,  # (split, p, h, j)
    first,  # (split, p, h, j)
    second,  # (split, p, h, j)
    positions,
    per_program,
    LAYER: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    """Moments under uniform assignments, each split about a centre of its own.

    Centred at the mean of a part of the children that weighs a share f of all, the variance loses at most a factor
    1/f of its digits: every eighth child will do, unless these weigh next to nothing.
    """
    COUNT: tl.constexpr = LAYER.COUNT
    UNROLLED: tl.constexpr = 2 if LAYER.WIDE else 1
    p, j, here, _ = tile_of_positions(positions, LAYER, TILE, TILE_PARENTS)
    poses, activations = windows(poses, activations, p, positions, LAYER, TILE, TILE_PARENTS)
    start, stop = steps_of_program(per_program, LAYER.INSIDE)
    total = tl.zeros([TILE], tl.float32)
    of_some = tl.zeros([TILE], tl.float32)
    for b in tl.range(start, stop, loop_unroll_factor=8 if LAYER.WIDE else 1):
        a = load_activation(activations, b, here, LAYER)
        total += a
        of_some += tl.where((b - start) % SOME == 0, a, 0.0)
    step = tl.where(tl.max(total - 64 * of_some, 0) > 0, 1, SOME)
    weighed, m = sum_votes(
        poses, activations, maps, first, start, stop, step, p, j, here, positions, LAYER, TILE, TILE_PARENTS
    )
    m = scaled(m, over_dims((1.0 / tl.maximum(weighed, SMALLEST))[:, None], LAYER), COUNT)
    s1 = zeros_laid_as(first, p, j, positions, LAYER, TILE, TILE_PARENTS)
    s2 = zeros_laid_as(first, p, j, positions, LAYER, TILE, TILE_PARENTS)
    u, a, matrix = load_child(poses, activations, maps, start, j, here, LAYER, TILE, TILE_PARENTS)
    for b in tl.range(start, stop, loop_unroll_factor=UNROLLED):
        ahead = tl.minimum(b + 1, stop - 1)
        following = load_child(poses, activations, maps, ahead, j, here, LAYER, TILE, TILE_PARENTS)
        d = deviations(m, matrix, u, b, LAYER, TILE, TILE_PARENTS)
        weighted = scaled(d, over_dims((a * (1.0 / LAYER.PARENTS))[:, None], LAYER), COUNT)
        s1 = sums(s1, weighted, COUNT)
        s2 = plus_products(s2, weighted, d, COUNT)
        u, a, matrix = following
    part = tl.cast(tl.program_id(1), tl.int64) * positions
    tl.store(mass + part + p, total * (1.0 / LAYER.PARENTS), mask=here)
    part *= LAYER.DIMS * LAYER.PARENTS
    store_poses(centre + part, m, p, j, here, LAYER)
    store_poses(first + part, s1, p, j, here, LAYER)
    store_poses(second + part, s2, p, j, here, LAYER)


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
    positions,
    LAYER: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    """Σ a and Σ a v over every so many children."""
    weighed = tl.zeros_like(p).to(tl.float32)
    total = zeros_laid_as(like, p, j, positions, LAYER, TILE, TILE_PARENTS)
    u, a, matrix = load_child(poses, activations, maps, start, j, here, LAYER, TILE, TILE_PARENTS)
    for b in range(start, stop, step):
        ahead = tl.minimum(b + step, stop - 1)
        following = load_child(poses, activations, maps, ahead, j, here, LAYER, TILE, TILE_PARENTS)
        weighed += a
        some = scaled(u, a[:, None, None] if LAYER.WIDE else a, LAYER.COUNT)
        some = over_parents(some, LAYER)
        total = votes(total, 1.0, over_positions(matrix, LAYER), some, LAYER, TILE, TILE_PARENTS)
        if LAYER.COORDINATES:
            row, column = coordinates(b, LAYER)
            away = over_dims(-a[:, None], LAYER)
            total = moved(total, away * row, away * column, LAYER)
        u, a, matrix = following
    return weighed, total

"""Variational Bayes: from the moments of a tile of [positions × parents] to the posterior and what is expected of it.

Letters as in `quatcaps.routing.vb`; R is the mass, s = m − c the way from the moments' centre to the posterior's mean.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.loads import load_tiles, store_tiles

LOG_TWO = tl.constexpr(0.6931471805599453)
SHIFTS = tl.constexpr(6)
"""Steps of x by which the gamma functions' recurrence leads to where their series are exact in float32."""


@triton.jit
def digamma(x):
    """ϝ(x) = ϝ(x + n) − Σ_k 1/(x + k) for x above 0, where ϝ(y) = ln y − 1/2y − 1/12y² + 1/120y⁴ − 1/252y⁶ + …"""
    steps = 1.0 / x
    for k in tl.static_range(1, SHIFTS):
        steps += 1.0 / (x + k)
    y = 1.0 / (x + SHIFTS)
    z = y * y
    return (
        -tl.log(y) - 0.5 * y - z * (0.08333333333333333 - z * (0.008333333333333333 - z * 0.003968253968253968)) - steps
    )


@triton.jit
def trigamma(x):
    """ϝ′(x) = ϝ′(x + n) + Σ_k 1/(x + k)² for x above 0, where ϝ′(y) = 1/y + 1/2y² + 1/6y³ − 1/30y⁵ + 1/42y⁷ − …"""
    step = 1.0 / x
    steps = step * step
    for k in tl.static_range(1, SHIFTS):
        step = 1.0 / (x + k)
        steps += step * step
    y = 1.0 / (x + SHIFTS)
    z = y * y
    return y + 0.5 * z + y * z * (0.16666666666666666 - z * (0.03333333333333333 - z * 0.023809523809523808)) + steps


@triton.jit
def load_posterior(
    centre,
    mass,
    first,
    second,
    p,
    j,
    mask,
    mean_weight,
    prior_mean,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
):
    """R, c, S1, κ, and for each dimension s and the scatter Σ ρ (v − m)², which rounding may leave below 0."""
    c = load_tiles(centre, p, j, mask, DIMS, PARENTS)
    s1 = load_tiles(first, p, j, mask, DIMS, PARENTS)
    s2 = load_tiles(second, p, j, mask, DIMS, PARENTS)
    s0 = tl.load(mass + p[:, None] * PARENTS + j[None, :], mask=mask, other=0.0)
    kappa = mean_weight + s0
    shift = ()
    scatter = ()
    for h in tl.static_range(DIMS):
        moved = (s1[h] + mean_weight * (prior_mean - c[h])) / kappa
        shift += (moved,)
        scatter += (s2[h] - 2 * moved * s1[h] + s0 * (moved * moved),)
    return s0, c, s1, kappa, shift, scatter


@triton.jit
def vb_step(
    centre,  # (p, h, j)
    mass,  # (p, j)
    first,  # (p, h, j)
    second,  # (p, h, j)
    mean,  # (p, h, j)
    precision,  # (p, h, j)
    logit,  # (p, j)
    share,  # (p, j)
    determinant,  # (p, j)
    positions,
    concentration,
    prior_mean,
    mean_weight,
    scale,
    freedom,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    mask = (p < positions)[:, None] & (j < PARENTS)[None, :]
    s0, c, _, kappa, shift, scatter = load_posterior(
        centre, mass, first, second, p, j, mask, mean_weight, prior_mean, PARENTS, DIMS
    )
    nu = DIMS - 1 + freedom + s0
    log_determinant = tl.zeros([TILE, TILE_PARENTS], tl.float32) + DIMS * LOG_TWO
    means = ()
    precisions = ()
    for h in tl.static_range(DIMS):
        m = c[h] + shift[h]
        psi = scale + tl.maximum(scatter[h], 0.0) + mean_weight * (m - prior_mean) * (m - prior_mean)
        log_determinant -= tl.log(psi)
        means += (m,)
        precisions += (nu / psi,)
    for d in range(DIMS):  # (ν − D + 1 + d) / 2, from the last to the first; ν itself has lost digits of a small one
        log_determinant += digamma(0.5 * (freedom + s0 + d))
    alpha = tl.where(mask, concentration + s0, 0.0)
    log_share = digamma(tl.where(mask, alpha, 1.0)) - digamma(tl.maximum(tl.sum(alpha, 1), concentration))[:, None]
    parent = p[:, None] * PARENTS + j[None, :]
    store_tiles(mean, means, p, j, mask, DIMS, PARENTS)
    store_tiles(precision, precisions, p, j, mask, DIMS, PARENTS)
    tl.store(logit + parent, log_share + 0.5 * log_determinant - 0.5 * DIMS / kappa, mask=mask)
    tl.store(share + parent, log_share, mask=mask)
    tl.store(determinant + parent, log_determinant, mask=mask)


@triton.jit
def vb_step_backward(
    grad_mean,  # (p, h, j)
    grad_precision,  # (p, h, j)
    grad_logit,  # (p, j)
    grad_share,  # (p, j)
    grad_determinant,  # (p, j)
    centre,  # (p, h, j)
    mass,  # (p, j)
    first,  # (p, h, j)
    second,  # (p, h, j)
    grad_centre,  # (p, h, j)
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    positions,
    concentration,
    prior_mean,
    mean_weight,
    scale,
    freedom,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    HAS_MEAN: tl.constexpr,
    HAS_PRECISION: tl.constexpr,
    HAS_LOGIT: tl.constexpr,
    HAS_SHARE: tl.constexpr,
    HAS_DETERMINANT: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    mask = (p < positions)[:, None] & (j < PARENTS)[None, :]
    parent = p[:, None] * PARENTS + j[None, :]
    s0, c, s1, kappa, shift, scatter = load_posterior(
        centre, mass, first, second, p, j, mask, mean_weight, prior_mean, PARENTS, DIMS
    )
    nu = DIMS - 1 + freedom + s0
    dshare = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    ddeterminant = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    dkappa = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    if HAS_LOGIT:
        dl = tl.load(grad_logit + parent, mask=mask, other=0.0)
        dshare += dl
        ddeterminant += 0.5 * dl
        dkappa += dl * (0.5 * DIMS) / kappa / kappa
    if HAS_SHARE:
        dshare += tl.load(grad_share + parent, mask=mask, other=0.0)
    if HAS_DETERMINANT:
        ddeterminant += tl.load(grad_determinant + parent, mask=mask, other=0.0)
    dnu = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    for d in range(DIMS):
        dnu += trigamma(0.5 * (freedom + s0 + d))
    dnu = 0.5 * ddeterminant * dnu
    dmass = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    by_centre = ()
    by_first = ()
    by_second = ()
    for h in tl.static_range(DIMS):
        place = p[:, None] * (DIMS * PARENTS) + h * PARENTS + j[None, :]
        away = c[h] + shift[h] - prior_mean
        psi = scale + tl.maximum(scatter[h], 0.0) + mean_weight * away * away
        dpsi = -ddeterminant / psi
        if HAS_PRECISION:
            dq = tl.load(grad_precision + place, mask=mask, other=0.0) / psi
            dnu += dq
            dpsi -= dq * nu / psi
        dm = 2 * mean_weight * away * dpsi
        if HAS_MEAN:
            dm += tl.load(grad_mean + place, mask=mask, other=0.0)
        dshift = dm + 2 * dpsi * (s0 * shift[h] - s1[h])
        dkappa -= dshift * shift[h] / kappa
        dmass += dpsi * shift[h] * shift[h]
        by_centre += (dm - dshift * (mean_weight / kappa),)
        by_first += (dshift / kappa - 2 * shift[h] * dpsi,)
        by_second += (dpsi,)
    alpha = tl.where(mask, concentration + s0, 0.0)
    total = tl.maximum(tl.sum(alpha, 1), concentration)
    dalpha = dshare * trigamma(tl.where(mask, alpha, 1.0))
    dalpha -= (tl.sum(tl.where(mask, dshare, 0.0), 1) * trigamma(total))[:, None]
    tl.store(grad_mass + parent, dmass + dkappa + dnu + dalpha, mask=mask)
    store_tiles(grad_centre, by_centre, p, j, mask, DIMS, PARENTS)
    store_tiles(grad_first, by_first, p, j, mask, DIMS, PARENTS)
    store_tiles(grad_second, by_second, p, j, mask, DIMS, PARENTS)

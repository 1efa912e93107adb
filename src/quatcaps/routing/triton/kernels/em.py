"""EM's M-step: from the moments of a tile of [positions × parents] to its Gaussians, logits and activations."""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.tiles import load_tiles, store_tiles

LOG_TWO_PI = tl.constexpr(1.8378770664093453)
SMALLEST = tl.constexpr(1.1754943508222875e-38)
NORMALIZED, STANDARDIZED = tl.constexpr(1), tl.constexpr(2)
"""By their place in `quatcaps.routing.em.ACTIVATIONS`."""


@triton.jit
def m_step(
    centre,  # (p, h, j)
    mass,  # (p, j)
    first,  # (p, h, j)
    second,  # (p, h, j)
    beta_u,  # (j)
    beta_a,  # (j)
    mean,  # (p, h, j)
    precision,  # (p, h, j)
    logit,  # (p, j)
    activation,  # (p, j)
    positions,
    inverse_temperature,
    variance_floor,
    least_mass,
    contrast,
    least_variance,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    mask = (p < positions)[:, None] & (j < PARENTS)[None, :]
    parent = p[:, None] * PARENTS + j[None, :]
    m = load_tiles(centre, p, j, mask, DIMS, PARENTS)
    s1 = load_tiles(first, p, j, mask, DIMS, PARENTS)
    s2 = load_tiles(second, p, j, mask, DIMS, PARENTS)
    s0 = tl.load(mass + parent, mask=mask, other=0.0)
    bound = tl.maximum(s0, least_mass)
    log_variance = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    means = ()
    precisions = ()
    for h in tl.static_range(DIMS):
        shift = s1[h] / bound
        variance = tl.maximum(s2[h] / bound - shift * shift, 0.0) + variance_floor
        log_variance += tl.log(variance)
        means += (m[h] + shift,)
        precisions += (1.0 / variance,)
    logits, _, _ = activation_logit(
        s0,
        log_variance,
        beta_u,
        beta_a,
        j,
        mask,
        inverse_temperature,
        contrast,
        least_variance,
        PARENTS,
        DIMS,
        ACTIVATION,
    )
    store_tiles(mean, means, p, j, mask, DIMS, PARENTS)
    store_tiles(precision, precisions, p, j, mask, DIMS, PARENTS)
    tl.store(logit + parent, log_sigmoid(logits) - 0.5 * (log_variance + DIMS * LOG_TWO_PI), mask=mask)
    tl.store(activation + parent, tl.sigmoid(logits), mask=mask)


@triton.jit
def m_step_backward(
    grad_mean,  # (p, h, j)
    grad_precision,  # (p, h, j)
    grad_logit,  # (p, j)
    grad_activation,  # (p, j)
    mass,  # (p, j)
    first,  # (p, h, j)
    second,  # (p, h, j)
    beta_u,  # (j)
    beta_a,  # (j)
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    grad_betas,  # (program, [β_u, β_a], j)
    positions,
    inverse_temperature,
    variance_floor,
    least_mass,
    contrast,
    least_variance,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_MEAN: tl.constexpr,
    HAS_PRECISION: tl.constexpr,
    HAS_LOGIT: tl.constexpr,
    HAS_ACTIVATION: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    mask = (p < positions)[:, None] & (j < PARENTS)[None, :]
    parent = p[:, None] * PARENTS + j[None, :]
    s1 = load_tiles(first, p, j, mask, DIMS, PARENTS)
    s2 = load_tiles(second, p, j, mask, DIMS, PARENTS)
    s0 = tl.load(mass + parent, mask=mask, other=0.0)
    bound = tl.maximum(s0, least_mass)
    log_variance = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    for h in tl.static_range(DIMS):
        shift = s1[h] / bound
        log_variance += tl.log(tl.maximum(s2[h] / bound - shift * shift, 0.0) + variance_floor)
    logits, size, norm = activation_logit(
        s0,
        log_variance,
        beta_u,
        beta_a,
        j,
        mask,
        inverse_temperature,
        contrast,
        least_variance,
        PARENTS,
        DIMS,
        ACTIVATION,
    )
    dl = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    dlog = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    if HAS_LOGIT:
        dlog = tl.load(grad_logit + parent, mask=mask, other=0.0)
        dl += dlog * tl.sigmoid(-logits)
    if HAS_ACTIVATION:
        dl += tl.load(grad_activation + parent, mask=mask, other=0.0) * tl.sigmoid(logits) * tl.sigmoid(-logits)
    if ACTIVATION == NORMALIZED:
        # Of logits = contrast · L / ‖L‖, along the parents; where L = 0, the gradient passes through.
        unit = logits / contrast
        dl -= tl.where(size > 0, unit * tl.sum(unit * dl, 1)[:, None], 0.0)
        dl = contrast * (dl / norm / tl.where(size > 0, size, 1.0))
    if ACTIVATION == STANDARDIZED:
        dl = tl.where(mask, dl, 0.0)
        unit = logits / contrast
        dl = tl.where(mask, dl - unit * (tl.sum(unit * dl, 1)[:, None] / PARENTS), 0.0)
        dl = contrast * ((dl - tl.sum(dl, 1)[:, None] / PARENTS) / norm / size)
    dcost = tl.where(mask, -inverse_temperature * dl, 0.0)  # of β_a, −dcost: both stand in λ (β_a − cost)
    u = tl.load(beta_u + j, mask=j < PARENTS, other=0.0)
    betas = grad_betas + tl.program_id(0) * (2 * PARENTS) + j
    tl.store(betas, DIMS * tl.sum(dcost * s0, 0), mask=j < PARENTS)
    tl.store(betas + PARENTS, -tl.sum(dcost, 0), mask=j < PARENTS)
    dlog_variance = 0.5 * (dcost * s0 - dlog)
    dbound = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    by_first = ()
    by_second = ()
    for h in tl.static_range(DIMS):
        shift = s1[h] / bound
        spread = s2[h] / bound - shift * shift
        variance = tl.maximum(spread, 0.0) + variance_floor
        dvariance = dlog_variance / variance
        place = p[:, None] * (DIMS * PARENTS) + h * PARENTS + j[None, :]
        if HAS_PRECISION:
            dvariance -= tl.load(grad_precision + place, mask=mask, other=0.0) / variance / variance
        dspread = tl.where(spread >= 0, dvariance, 0.0)
        dshift = -2 * shift * dspread
        if HAS_MEAN:
            dshift += tl.load(grad_mean + place, mask=mask, other=0.0)
        by_first += (dshift / bound,)
        by_second += (dspread / bound,)
        dbound -= (dspread * (s2[h] / bound) + dshift * shift) / bound
    dmass = dcost * (DIMS * u[None, :] + 0.5 * log_variance) + tl.where(s0 >= least_mass, dbound, 0.0)
    tl.store(grad_mass + parent, dmass, mask=mask)
    store_tiles(grad_first, by_first, p, j, mask, DIMS, PARENTS)
    store_tiles(grad_second, by_second, p, j, mask, DIMS, PARENTS)


@triton.jit
def activation_logit(
    s0,
    log_variance,
    beta_u,
    beta_a,
    j,
    mask,
    inverse_temperature,
    contrast,
    least_variance,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """λ (β_a − Σ_h (β_u + log σ_h) S0), over the parents normalized or standardized if so wished, times the contrast;
    and what it was divided by, a magnitude and a length in units of that."""
    u = tl.load(beta_u + j, mask=j < PARENTS, other=0.0)[None, :]
    a = tl.load(beta_a + j, mask=j < PARENTS, other=0.0)[None, :]
    logits = tl.where(mask, a - (DIMS * u + 0.5 * log_variance) * s0, 0.0)
    if ACTIVATION == STANDARDIZED:
        # Before λ: a product less its own rounded sum would be fused, and leave the rounding to be blown up below.
        logits = tl.where(mask, logits - tl.sum(logits, 1)[:, None] / PARENTS, 0.0)
    logits *= inverse_temperature
    size = tl.max(tl.abs(logits), 1)[:, None]
    size = tl.where(size < SMALLEST, 0.0, size)
    norm = tl.zeros_like(size) + 1.0
    if ACTIVATION == NORMALIZED:
        scaled = logits / tl.where(size > 0, size, 1.0)
        norm = tl.where(size > 0, tl.sqrt(tl.sum(scaled * scaled, 1)[:, None]), 1.0)
        logits = contrast * (scaled / norm)
    if ACTIVATION == STANDARDIZED:
        size = tl.maximum(size, 1.0)
        scaled = logits / size
        norm = tl.sqrt(tl.sum(scaled * scaled, 1)[:, None] / PARENTS + least_variance / size / size)
        logits = contrast * (scaled / norm)
    return logits, size, norm


@triton.jit
def log_sigmoid(x):
    """−log(1 + e^−x), without overflow."""
    return tl.minimum(x, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(x)))

"""EM's M-step: from the moments of a tile of [positions × parents] to its Gaussians, logits and activations.

Letters as in `quatcaps.routing.em`; R is the mass, s the way from the moments' centre to the mean.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quatcaps.routing.triton.kernels.loads import load_tiles, store_tiles
from quatcaps.routing.triton.kernels.tiles import SMALLEST

LOG_TWO_PI = tl.constexpr(1.8378770664093453)
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
    settings,  # λ, variance floor, least mass, contrast, ε of standardized logits, mass factor, damping
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    DAMPED: tl.constexpr,
    ISOTROPIC: tl.constexpr,
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
    shifts, spreads, _ = gaussian(m, s0, s1, s2, settings, DIMS, DAMPED)
    variances, log_variance = floored(spreads, settings[1], DIMS, ISOTROPIC)
    logits, _, _ = activation_logit(s0, log_variance, beta_u, beta_a, j, mask, settings, PARENTS, DIMS, ACTIVATION)
    means = ()
    precisions = ()
    for h in tl.static_range(DIMS):
        means += (m[h] + shifts[h],)
        precisions += (1.0 / variances[h],)
    log_activation = log_sigmoid(logits)
    if DAMPED:
        log_activation = tl.log(tl.sigmoid(logits) + settings[6])
    store_tiles(mean, means, p, j, mask, DIMS, PARENTS)
    store_tiles(precision, precisions, p, j, mask, DIMS, PARENTS)
    tl.store(logit + parent, log_activation - 0.5 * (log_variance + DIMS * LOG_TWO_PI), mask=mask)
    tl.store(activation + parent, tl.sigmoid(logits), mask=mask)


@triton.jit
def m_step_backward(
    grad_mean,  # (p, h, j)
    grad_precision,  # (p, h, j)
    grad_logit,  # (p, j)
    grad_activation,  # (p, j)
    centre,  # (p, h, j)
    mass,  # (p, j)
    first,  # (p, h, j)
    second,  # (p, h, j)
    beta_u,  # (j)
    beta_a,  # (j)
    grad_centre,  # (p, h, j)   where damped; else it is the mean's
    grad_mass,  # (p, j)
    grad_first,  # (p, h, j)
    grad_second,  # (p, h, j)
    grad_betas,  # (program, [β_u, β_a], j)
    positions,
    settings,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    DAMPED: tl.constexpr,
    ISOTROPIC: tl.constexpr,
    HAS_MEAN: tl.constexpr,
    HAS_PRECISION: tl.constexpr,
    HAS_LOGIT: tl.constexpr,
    HAS_ACTIVATION: tl.constexpr,
    TILE: tl.constexpr,
    TILE_PARENTS: tl.constexpr,
):
    inverse_temperature, mass_factor, damping = settings[0], settings[5], settings[6]
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, TILE_PARENTS)
    mask = (p < positions)[:, None] & (j < PARENTS)[None, :]
    parent = p[:, None] * PARENTS + j[None, :]
    s1 = load_tiles(first, p, j, mask, DIMS, PARENTS)
    s2 = load_tiles(second, p, j, mask, DIMS, PARENTS)
    s0 = tl.load(mass + parent, mask=mask, other=0.0)
    m = s1
    if DAMPED:
        m = load_tiles(centre, p, j, mask, DIMS, PARENTS)
    shifts, spreads, divisor = gaussian(m, s0, s1, s2, settings, DIMS, DAMPED)
    variances, log_variance = floored(spreads, settings[1], DIMS, ISOTROPIC)
    logits, size, norm = activation_logit(
        s0, log_variance, beta_u, beta_a, j, mask, settings, PARENTS, DIMS, ACTIVATION
    )
    dl = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    dlog = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    if HAS_LOGIT:
        dlog = tl.load(grad_logit + parent, mask=mask, other=0.0)
        slope = tl.sigmoid(-logits)
        if DAMPED:
            slope *= tl.sigmoid(logits) / (tl.sigmoid(logits) + damping)
        dl += dlog * slope
    if HAS_ACTIVATION:
        dl += tl.load(grad_activation + parent, mask=mask, other=0.0) * tl.sigmoid(logits) * tl.sigmoid(-logits)
    dl = grad_before_contrast(dl, logits, size, norm, mask, settings[3], PARENTS, ACTIVATION)
    dcost = tl.where(mask, -inverse_temperature * dl, 0.0)  # of β_a, −dcost: both stand in λ (β_a − cost)
    u = tl.load(beta_u + j, mask=j < PARENTS, other=0.0)
    counted = mass_factor * s0
    betas = grad_betas + tl.program_id(0) * (2 * PARENTS) + j
    tl.store(betas, DIMS * tl.sum(dcost * counted, 0), mask=j < PARENTS)
    tl.store(betas + PARENTS, -tl.sum(dcost, 0), mask=j < PARENTS)
    dlog_variance = 0.5 * (dcost * counted - dlog)
    dspreads = ()
    total = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    for h in tl.static_range(DIMS):
        dvariance = dlog_variance / variances[h]
        if HAS_PRECISION:
            place = p[:, None] * (DIMS * PARENTS) + h * PARENTS + j[None, :]
            dvariance -= tl.load(grad_precision + place, mask=mask, other=0.0) / variances[h] / variances[h]
        dspreads += (dvariance,)
        total += dvariance
    dmass = tl.zeros([TILE, TILE_PARENTS], tl.float32)
    by_centre = ()
    by_first = ()
    by_second = ()
    for h in tl.static_range(DIMS):
        dspread = dspreads[h]
        if ISOTROPIC:
            dspread = total / DIMS
        dmean = tl.zeros([TILE, TILE_PARENTS], tl.float32)
        if HAS_MEAN:
            place = p[:, None] * (DIMS * PARENTS) + h * PARENTS + j[None, :]
            dmean = tl.load(grad_mean + place, mask=mask, other=0.0)
        shift = shifts[h]
        if DAMPED:
            # spread = (S2 − 2 s S1 + s² R) / (R + ε), s = (S1 − ε m) / (R + ε)
            dshift = dmean + 2 * dspread * ((shift * s0 - s1[h]) / divisor)
            by_first += (dshift / divisor - 2 * shift * (dspread / divisor),)
            by_centre += (dmean - damping / divisor * dshift,)
            dmass += (dspread * (shift * shift - spreads[h]) - dshift * shift) / divisor
        else:
            # spread = S2/R − s², s = S1/R, where R is no less than the least mass
            dshift = dmean - 2 * shift * dspread
            by_first += (dshift / divisor,)
            dmass -= (dspread * (s2[h] / divisor) + dshift * shift) / divisor
        by_second += (dspread / divisor,)
    if not DAMPED:
        dmass = tl.where(s0 >= settings[2], dmass, 0.0)
    dmass += mass_factor * dcost * (DIMS * u[None, :] + 0.5 * log_variance)
    tl.store(grad_mass + parent, dmass, mask=mask)
    store_tiles(grad_first, by_first, p, j, mask, DIMS, PARENTS)
    store_tiles(grad_second, by_second, p, j, mask, DIMS, PARENTS)
    if DAMPED:
        store_tiles(grad_centre, by_centre, p, j, mask, DIMS, PARENTS)


@triton.jit
def gaussian(m, s0, s1, s2, settings, DIMS: tl.constexpr, DAMPED: tl.constexpr):
    """s, the variance before it is bounded, for each dimension, and what they were divided by."""
    shifts = ()
    spreads = ()
    if DAMPED:
        divisor = s0 + settings[6]
        for h in tl.static_range(DIMS):
            shift = (s1[h] - settings[6] * m[h]) / divisor
            shifts += (shift,)
            spreads += ((s2[h] - shift * (2 * s1[h] - shift * s0)) / divisor,)
    else:
        divisor = tl.maximum(s0, settings[2])
        for h in tl.static_range(DIMS):
            shift = s1[h] / divisor
            shifts += (shift,)
            spreads += (s2[h] / divisor - shift * shift,)
    return shifts, spreads, divisor


@triton.jit
def floored(spreads, variance_floor, DIMS: tl.constexpr, ISOTROPIC: tl.constexpr):
    """Variances, and the sum of their logarithms. The gradient is that of what was not cut off: below 0 there is only
    rounding."""
    variances = ()
    if ISOTROPIC:
        variance = tl.maximum(spreads[0], 0.0)
        for h in tl.static_range(1, DIMS):
            variance += tl.maximum(spreads[h], 0.0)
        variance = variance / DIMS + variance_floor
        for _ in tl.static_range(DIMS):
            variances += (variance,)
        return variances, DIMS * tl.log(variance)
    else:
        variance = tl.maximum(spreads[0], 0.0) + variance_floor
        log_variance = tl.log(variance)
        variances += (variance,)
        for h in tl.static_range(1, DIMS):
            variance = tl.maximum(spreads[h], 0.0) + variance_floor
            log_variance += tl.log(variance)
            variances += (variance,)
        return variances, log_variance


@triton.jit
def activation_logit(
    s0,
    log_variance,
    beta_u,
    beta_a,
    j,
    mask,
    settings,
    PARENTS: tl.constexpr,
    DIMS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """λ (β_a − Σ_h (β_u + log σ_h) R), over the parents normalized or standardized if so wished, times the contrast;
    and what it was divided by, a magnitude and a length in units of that."""
    u = tl.load(beta_u + j, mask=j < PARENTS, other=0.0)[None, :]
    a = tl.load(beta_a + j, mask=j < PARENTS, other=0.0)[None, :]
    logits = tl.where(mask, a - (DIMS * u + 0.5 * log_variance) * (settings[5] * s0), 0.0)
    if ACTIVATION == STANDARDIZED:
        # Before λ: a product less its own rounded sum would be fused, and leave the rounding to be blown up below.
        logits = tl.where(mask, logits - tl.sum(logits, 1)[:, None] / PARENTS, 0.0)
    logits *= settings[0]
    size = tl.max(tl.abs(logits), 1)[:, None]
    size = tl.where(size < SMALLEST, 0.0, size)
    norm = tl.zeros_like(size) + 1.0
    if ACTIVATION == NORMALIZED:
        scaled = logits / tl.where(size > 0, size, 1.0)
        norm = tl.where(size > 0, tl.sqrt(tl.sum(scaled * scaled, 1)[:, None]), 1.0)
        logits = settings[3] * (scaled / norm)
    if ACTIVATION == STANDARDIZED:
        size = tl.maximum(size, 1.0)
        scaled = logits / size
        norm = tl.sqrt(tl.sum(scaled * scaled, 1)[:, None] / PARENTS + settings[4] / size / size)
        logits = settings[3] * (scaled / norm)
    return logits, size, norm


@triton.jit
def grad_before_contrast(dl, logits, size, norm, mask, contrast, PARENTS: tl.constexpr, ACTIVATION: tl.constexpr):
    """The gradient of the logits before `activation_logit` set them apart."""
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
    return dl


@triton.jit
def log_sigmoid(x):
    """−log(1 + e^−x), without overflow."""
    return tl.minimum(x, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(x)))

"""Batch normalisation around convolutions: moments from those of tiles, and gradients."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def lay(
    features,  # (n, c, y, x), in any order in memory
    out,  # (n, y, x, c)
    parts,  # (tile, 2, c): as `convolve` leaves them
    positions,
    strides,  # of features
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CHANNELS: tl.constexpr,
):
    """Features with channels last, and the moments of each tile."""
    position = tl.program_id(0) * TILE + tl.arange(0, TILE)
    c = tl.arange(0, TILE_CHANNELS)
    image, row, column = position // (HEIGHT * WIDTH), position // WIDTH % HEIGHT, position % WIDTH
    mask = (position < positions)[:, None] & (c < CHANNELS)[None, :]
    begin = image.to(tl.int64) * strides[0] + row * strides[2] + column * strides[3]
    values = tl.load(features + begin[:, None] + c[None, :] * strides[1], mask=mask, other=0.0).to(tl.float32)
    tl.store(out + position[:, None] * CHANNELS + c[None, :], values.to(out.dtype.element_ty), mask=mask)
    count = tl.minimum(positions - tl.program_id(0) * TILE, TILE)
    mean = tl.sum(values, 0) / count
    apart = tl.where(mask, values - mean[None, :], 0.0)
    part = parts + tl.program_id(0) * 2 * CHANNELS + c
    tl.store(part, mean, mask=c < CHANNELS)
    tl.store(part + CHANNELS, tl.sum(apart * apart, 0), mask=c < CHANNELS)


@triton.jit
def finish(
    parts,  # (tile, 2, c)
    weight,
    bias,
    affine,  # (2, c): what normalises: a factor, and what is added
    moments,  # (2, c): the mean, and one over the deviation
    running_mean,
    running_variance,
    batches,  # that were seen in training
    tiles,
    positions,
    in_tile,
    channels,
    settings,  # epsilon, momentum
    TILE: tl.constexpr,
    TILE_CHANNELS: tl.constexpr,
):
    """The moments of a batch from those of its tiles of `in_tile` positions; running averages follow them.

    Sums are about the mean of the first tile, p: with m_t and q_t a tile's mean and squares about it and n_t its
    positions, Σ x = N p + Σ n_t (m_t − p), and the squares about the mean m are Σ (q_t + n_t (m_t − p)²) − N (m − p)².
    """
    epsilon, momentum = settings[0], settings[1]
    c = tl.program_id(0) * TILE_CHANNELS + tl.arange(0, TILE_CHANNELS)
    known = c < channels
    pivot = tl.load(parts + c, mask=known, other=0.0)
    first = tl.zeros([TILE, TILE_CHANNELS], tl.float32)
    second = tl.zeros([TILE, TILE_CHANNELS], tl.float32)
    for start in range(0, tiles, TILE):
        t = start + tl.arange(0, TILE)
        mask = (t < tiles)[:, None] & known[None, :]
        part = parts + t[:, None] * 2 * channels + c[None, :]
        apart = tl.where(mask, tl.load(part, mask=mask, other=0.0) - pivot[None, :], 0.0)
        count = tl.minimum(positions - t * in_tile, in_tile).to(tl.float32)
        first += count[:, None] * apart
        second += tl.load(part + channels, mask=mask, other=0.0) + count[:, None] * apart * apart
    away = tl.sum(first, 0) / positions
    mean = pivot + away
    variance = tl.sum(second, 0) / positions - away * away
    variance = tl.maximum(variance, 0.0, propagate_nan=tl.PropagateNan.ALL)
    inverse = 1.0 / tl.sqrt(variance + epsilon)
    scale = inverse * tl.load(weight + c, mask=known, other=0.0)
    tl.store(affine + c, scale, mask=known)
    tl.store(affine + channels + c, tl.load(bias + c, mask=known, other=0.0) - mean * scale, mask=known)
    tl.store(moments + c, mean, mask=known)
    tl.store(moments + channels + c, inverse, mask=known)
    before = tl.load(running_mean + c, mask=known, other=0.0)
    tl.store(running_mean + c, before + momentum * (mean - before), mask=known)
    unbiased = variance * (positions / tl.maximum(positions - 1, 1).to(tl.float32))
    before = tl.load(running_variance + c, mask=known, other=0.0)
    tl.store(running_variance + c, before + momentum * (unbiased - before), mask=known)
    if tl.program_id(0) == 0:
        tl.store(batches, tl.load(batches) + 1)


@triton.jit
def finish_back(
    parts,  # (program, 2, c), as `convolve_back` leaves them
    grad_weight,
    grad_bias,
    programs,
    channels,
    TILE: tl.constexpr,
    TILE_CHANNELS: tl.constexpr,
):
    """The gradients of a normalisation's weight and bias."""
    c = tl.program_id(0) * TILE_CHANNELS + tl.arange(0, TILE_CHANNELS)
    first = tl.zeros([TILE, TILE_CHANNELS], tl.float32)
    second = tl.zeros([TILE, TILE_CHANNELS], tl.float32)
    for start in range(0, programs, TILE):
        t = start + tl.arange(0, TILE)
        mask = (t < programs)[:, None] & (c < channels)[None, :]
        part = parts + t[:, None] * 2 * channels + c[None, :]
        first += tl.load(part, mask=mask, other=0.0)
        second += tl.load(part + channels, mask=mask, other=0.0)
    tl.store(grad_bias + c, tl.sum(first, 0), mask=c < channels)
    tl.store(grad_weight + c, tl.sum(second, 0), mask=c < channels)


@triton.jit
def recall(
    weight,
    bias,
    running_mean,
    running_variance,
    affine,  # (2, c)
    channels,
    epsilon,
    TILE: tl.constexpr,
):
    """What normalises in evaluation: by the running averages."""
    c = tl.program_id(0) * TILE + tl.arange(0, TILE)
    known = c < channels
    variance = tl.load(running_variance + c, mask=known, other=1.0)
    scale = tl.load(weight + c, mask=known, other=0.0) / tl.sqrt(variance + epsilon)
    mean = tl.load(running_mean + c, mask=known, other=0.0)
    tl.store(affine + c, scale, mask=known)
    tl.store(affine + channels + c, tl.load(bias + c, mask=known, other=0.0) - mean * scale, mask=known)


@triton.jit
def normalise_back(
    grad,  # (n, y, x, c), of the normalised source; becomes that of the source
    source,  # (n, y, x, c)
    shortcut,  # (n, y, x, c): what the shortcut adds, if the input itself is it
    affine,
    moments,
    grad_weight,
    grad_bias,
    positions,
    channels,
    SHORTCUT: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CHANNELS: tl.constexpr,
):
    """g → scale · (g − Σg/N − x̂ Σ(g x̂)/N), for x̂ the standardised source."""
    position = tl.program_id(0) * TILE + tl.arange(0, TILE)
    c = tl.arange(0, TILE_CHANNELS)
    known = c < channels
    mask = (position < positions)[:, None] & known[None, :]
    e = position[:, None] * channels + c[None, :]
    values = tl.load(source + e, mask=mask, other=0.0).to(tl.float32)
    mean = tl.load(moments + c, mask=known, other=0.0)
    inverse = tl.load(moments + channels + c, mask=known, other=0.0)
    constant = tl.load(grad_bias + c, mask=known, other=0.0) / positions
    slope = tl.load(grad_weight + c, mask=known, other=0.0) / positions
    standard = (values - mean[None, :]) * inverse[None, :]
    g = tl.load(grad + e, mask=mask, other=0.0).to(tl.float32) - constant[None, :] - standard * slope[None, :]
    g = g * tl.load(affine + c, mask=known, other=0.0)[None, :]
    if SHORTCUT:
        g += tl.load(shortcut + e, mask=mask, other=0.0).to(tl.float32)
    tl.store(grad + e, g.to(grad.dtype.element_ty), mask=mask)


@triton.jit
def places(positions, AREA: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr, TILE_CHANNELS: tl.constexpr):
    """Of a program's tile: its channels, what of it there is, and where it lies with channels last and first."""
    position = tl.program_id(0) * TILE + tl.arange(0, TILE)
    c = tl.program_id(1) * TILE_CHANNELS + tl.arange(0, TILE_CHANNELS)
    mask = (position < positions)[:, None] & (c < CHANNELS)[None, :]
    last = position[:, None] * CHANNELS + c[None, :]
    first = (position // AREA * (CHANNELS * AREA) + position % AREA)[:, None] + c[None, :] * AREA
    return c, mask, last, first


@triton.jit
def normalise(
    source,  # (n, y, x, c)
    affine,  # (2, c)
    out,  # (n, c, y, x)
    positions,
    AREA: tl.constexpr,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CHANNELS: tl.constexpr,
):
    """Normalised features, channels first."""
    c, mask, where, at = places(positions, AREA, CHANNELS, TILE, TILE_CHANNELS)
    known = c < CHANNELS
    values = tl.load(source + where, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(affine + c, mask=known, other=0.0)
    shift = tl.load(affine + CHANNELS + c, mask=known, other=0.0)
    tl.store(out + at, values * scale[None, :] + shift[None, :], mask=mask)


@triton.jit
def lay_back(
    grad,  # (n, c, y, x), of what was normalised
    source,  # (n, y, x, c)
    moments,  # (2, c)
    out,  # (n, y, x, c): the same gradient
    parts,  # (tile, 2, c), as `convolve_back` leaves them
    positions,
    AREA: tl.constexpr,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    TILE_CHANNELS: tl.constexpr,
):
    """A gradient with channels last, and its sums over each tile."""
    c, mask, where, at = places(positions, AREA, CHANNELS, TILE, TILE_CHANNELS)
    known = c < CHANNELS
    g = tl.load(grad + at, mask=mask, other=0.0)
    tl.store(out + where, g.to(out.dtype.element_ty), mask=mask)
    mean = tl.load(moments + c, mask=known, other=0.0)
    inverse = tl.load(moments + CHANNELS + c, mask=known, other=0.0)
    standard = (tl.load(source + where, mask=mask, other=0.0).to(tl.float32) - mean[None, :]) * inverse[None, :]
    part = parts + tl.program_id(0) * 2 * CHANNELS + c
    tl.store(part, tl.sum(g, 0), mask=known)
    tl.store(part + CHANNELS, tl.sum(g * standard, 0), mask=known)


@triton.jit
def add_one(
    parts,  # (split, ky × kx × c, o)
    out,  # (o, c, ky, kx)
    splits,
    area,
    channels_in,
    channels_out,
    TILE: tl.constexpr,
    TILE_SPLITS: tl.constexpr,
):
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mask = e < area * channels_in * channels_out
    total = tl.zeros([TILE_SPLITS, TILE], tl.float32)
    if tl.program_id(0) * TILE < area * channels_in * channels_out:
        for start in range(0, splits, TILE_SPLITS):
            s = start + tl.arange(0, TILE_SPLITS)
            at = s[:, None] * (area * channels_in * channels_out) + e[None, :]
            total += tl.load(parts + at, mask=(s < splits)[:, None] & mask[None, :], other=0.0)
    o, c, k = e % channels_out, e // channels_out % channels_in, e // (channels_out * channels_in)
    tl.store(out + (o * channels_in + c) * area + k, tl.sum(total, 0), mask=mask)


@triton.jit
def add_weights(
    given,  # of each convolution: parts, out, splits, and the sizes of its kernel, channels in and out
    TILE: tl.constexpr,
    TILE_SPLITS: tl.constexpr,
):
    """The gradients of weights from those of all splits, in their own order, for up to three convolutions."""
    which = tl.program_id(1)
    for i in tl.static_range(len(given)):
        if which == i:
            each = given[i]
            add_one(each[0], each[1], each[2], each[3], each[4], each[5], TILE, TILE_SPLITS)


@triton.jit
def lay_one(weight, out, area, channels_in, channels_out, TILE: tl.constexpr):
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mask = e < area * channels_in * channels_out
    o, c, k = e % channels_out, e // channels_out % channels_in, e // (channels_out * channels_in)
    tl.store(out + e, tl.load(weight + (o * channels_in + c) * area + k, mask=mask), mask=mask)


@triton.jit
def lay_weights(
    given,  # of each convolution: weights (o, c, ky, kx), room for (ky, kx, c, o), and its sizes
    TILE: tl.constexpr,
):
    """The weights of up to three convolutions as the kernels read them."""
    which = tl.program_id(1)
    for i in tl.static_range(len(given)):
        if which == i:
            each = given[i]
            lay_one(each[0], each[1], each[2], each[3], each[4], TILE)

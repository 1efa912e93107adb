"""Which kernel gets what. Features are (image, row, column, channel) here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from quatcaps.layers.fused.plan import (
    ALONG,
    TILE,
    TILE_CHANNELS,
    TILE_PARTS,
    TILE_SPLITS,
    TILE_WEIGHTS,
    Sizes,
    chunk_of,
    power_of_two,
    split_of,
    stages_of,
    tile_of,
)


class Features(NamedTuple):
    """parts: (tiles, 2, C), the mean of each tile of positions and the sum of squares about it."""

    values: Tensor
    parts: Tensor


class Running(NamedTuple):
    """What a normalisation remembers of batches, changed in place, and its settings."""

    mean: Tensor
    variance: Tensor
    batches: Tensor
    epsilon: float
    momentum: float


class Normalisation(NamedTuple):
    """Of a batch, (2, C) each: a factor and what is added; the mean and one over the deviation."""

    affine: Tensor
    moments: Tensor


class Shortcut(NamedTuple):
    """Forward: what it comes from, its normalisation and its weights. Backward: the gradient of what it leads to."""

    values: Tensor
    affine: Tensor
    weights: Tensor


def lay(features: Tensor, dtype: torch.dtype) -> Features:
    """(N, C, H, W) in any order in memory, with channels last, and their moments."""
    from quatcaps.layers.fused.kernels import normalisation

    images, channels, height, width = features.shape
    positions = images * height * width
    tile = tile_of(positions)
    tiles = math.ceil(positions / tile)
    out = features.new_empty(images, height, width, channels, dtype=dtype)
    parts = features.new_empty(tiles, 2, channels, dtype=torch.float32)
    normalisation.lay[(tiles,)](
        features,
        out,
        parts,
        positions,
        features.stride(),
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=channels,
        TILE=tile,
        TILE_CHANNELS=1 << (channels - 1).bit_length(),
    )
    return Features(out, parts)


def lay_weights(weights: Sequence[Tensor]) -> list[Tensor]:
    """(O, C, K, K) each → (K, K, C, O), as the kernels read them."""
    from quatcaps.layers.fused.kernels import normalisation

    laid = [each.new_empty(*each.shape[2:], each.shape[1], each.shape[0]) for each in weights]
    most = max(each.numel() for each in weights)
    normalisation.lay_weights[(math.ceil(most / TILE), len(weights))](
        tuple(
            (each.contiguous(), room, each.shape[2] * each.shape[3], each.shape[1], each.shape[0])
            for each, room in zip(weights, laid, strict=True)
        ),
        TILE=TILE,
    )
    return laid


def finish(parts: Tensor, positions: int, weight: Tensor, bias: Tensor, running: Running) -> Normalisation:
    """The normalisation of a batch from the moments of its tiles."""
    from quatcaps.layers.fused.kernels import normalisation

    channels = len(weight)
    affine, moments = parts.new_empty(2, channels), parts.new_empty(2, channels)
    normalisation.finish[(math.ceil(channels / TILE_CHANNELS),)](
        parts,
        weight,
        bias,
        affine,
        moments,
        *running[:3],
        len(parts),
        positions,
        tile_of(positions),
        channels,
        (running.epsilon, running.momentum),
        TILE=TILE_PARTS,
        TILE_CHANNELS=TILE_CHANNELS,
    )
    return Normalisation(affine, moments)


def recall(weight: Tensor, bias: Tensor, running: Running) -> Tensor:
    """What normalises in evaluation: a factor and what is added, (2, C)."""
    from quatcaps.layers.fused.kernels import normalisation

    channels = len(weight)
    affine = weight.new_empty(2, channels)
    normalisation.recall[(math.ceil(channels / TILE),)](
        weight, bias, running.mean, running.variance, affine, channels, running.epsilon, TILE=TILE
    )
    return affine


def convolve(
    source: Tensor,
    affine: Tensor,
    weight: Tensor,
    sizes: Sizes,
    precision: str,
    shortcut: Shortcut | None = None,
    bias: Tensor | None = None,
    measured: bool = True,
) -> Features:
    """Of a normalised, rectified source. measured: with parts."""
    from quatcaps.layers.fused.kernels import convolution

    images = len(source)
    positions = images * sizes.OUT_HEIGHT * sizes.OUT_WIDTH
    tile, chunk = tile_of(positions), chunk_of(sizes.length)
    tiles = math.ceil(positions / tile)
    out = source.new_empty(images, sizes.OUT_HEIGHT, sizes.OUT_WIDTH, sizes.OUT)
    parts = affine.new_empty(tiles if measured else 0, 2, sizes.OUT)
    convolution.convolve[(tiles,)](
        source,
        affine,
        weight,
        *(shortcut or Shortcut(source, affine, weight)),
        affine if bias is None else bias,
        out,
        parts,
        positions,
        SIZES=sizes,
        TILE=tile,
        TILE_OUT=power_of_two(sizes.OUT),
        STEPS=sizes.steps(chunk),
        MEASURED=measured,
        CHUNK=chunk,
        CHUNK_BESIDE=chunk_of(sizes.BESIDE),
        PRECISION=precision,
        num_stages=stages_of(tile),
    )
    return Features(out, parts)


def convolve_back(
    grad: Tensor,
    weight: Tensor,
    source: Tensor,
    norm: Normalisation,
    sizes: Sizes,
    precision: str,
    shortcut: tuple[Tensor, Tensor] | None = None,
    keep: bool = True,
) -> Features:
    """The gradient of the normalised source, if it is to be kept, and its sums by program. shortcut: the gradient of
    what it leads to, and its weights."""
    from quatcaps.layers.fused.kernels import convolution

    images = len(source)
    of_class = images * math.ceil(sizes.HEIGHT / sizes.STRIDE) * math.ceil(sizes.WIDTH / sizes.STRIDE)
    classes = sizes.STRIDE * sizes.STRIDE
    tile = tile_of(of_class * classes)
    grid = (math.ceil(of_class / tile), classes)
    out = torch.empty_like(source) if keep else source
    parts = norm.affine.new_empty(grid[0] * classes, 2, sizes.IN)
    convolution.convolve_back[grid](
        grad,
        weight,
        *(shortcut or (grad, weight)),
        source,
        *norm,
        out,
        parts,
        images,
        SIZES=sizes,
        TILE=tile,
        TILE_IN=power_of_two(sizes.IN),
        CHUNK=chunk_of(sizes.OUT),
        CHUNK_BESIDE=chunk_of(sizes.BESIDE),
        KEEP=keep,
        PRECISION=precision,
    )
    return Features(out, parts)


def finish_back(parts: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a normalisation's weight and bias."""
    from quatcaps.layers.fused.kernels import normalisation

    channels = parts.shape[2]
    weight, bias = parts.new_empty(channels), parts.new_empty(channels)
    normalisation.finish_back[(math.ceil(channels / TILE_CHANNELS),)](
        parts, weight, bias, len(parts), channels, TILE=TILE_PARTS, TILE_CHANNELS=TILE_CHANNELS
    )
    return weight, bias


def normalise(source: Tensor, affine: Tensor) -> Tensor:
    """(N, H, W, C) → (N, C, H, W), float32, normalised."""
    from quatcaps.layers.fused.kernels import normalisation

    images, height, width, channels = source.shape
    out = affine.new_empty(images, channels, height, width)
    grid, tiles = across(source)
    normalisation.normalise[grid](
        source, affine, out, images * height * width, AREA=height * width, CHANNELS=channels, **tiles
    )
    return out


def lay_back(grad: Tensor, source: Tensor, moments: Tensor) -> Features:
    """(N, C, H, W), the gradient of the normalised source → with channels last, and its sums by tile."""
    from quatcaps.layers.fused.kernels import normalisation

    images, height, width, channels = source.shape
    grid, tiles = across(source)
    out, parts = torch.empty_like(source), moments.new_empty(grid[0], 2, channels)
    positions, area = images * height * width, height * width
    normalisation.lay_back[grid](
        grad.contiguous(), source, moments, out, parts, positions, AREA=area, CHANNELS=channels, **tiles
    )
    return Features(out, parts)


def across(source: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """Tiles of positions and channels, whose order is exchanged."""
    tile, tile_channels = 32, 32
    positions, channels = source.numel() // source.shape[3], source.shape[3]
    grid = (math.ceil(positions / tile), math.ceil(channels / tile_channels))
    return grid, {"TILE": tile, "TILE_CHANNELS": tile_channels}


def normalise_back(
    grad: Tensor, source: Tensor, norm: Normalisation, weight: Tensor, bias: Tensor, shortcut: Tensor | None = None
) -> Tensor:
    """In place: from the gradient of what was normalised to that of the source, given those of weight and bias, and
    plus that of what a shortcut leads to unchanged."""
    from quatcaps.layers.fused.kernels import normalisation

    channels = source.shape[3]
    positions, tile_channels = grad.numel() // channels, power_of_two(channels)
    tile = max(1, TILE // tile_channels)
    normalisation.normalise_back[(math.ceil(positions / tile),)](
        grad,
        source,
        grad if shortcut is None else shortcut,
        *norm,
        weight,
        bias,
        positions,
        channels,
        SHORTCUT=shortcut is not None,
        TILE=tile,
        TILE_CHANNELS=tile_channels,
    )
    return grad


class Summed(NamedTuple):
    """The gradient of weights, by splits of the positions."""

    parts: Tensor
    sizes: Sizes


def sum_weights(source: Tensor, affine: Tensor, grad: Tensor, sizes: Sizes, precision: str) -> Summed:
    from quatcaps.layers.fused.kernels import convolution

    positions = grad.numel() // sizes.OUT
    cut = split_of(sizes, positions)
    parts = affine.new_empty(cut.splits, sizes.weights)
    convolution.sum_weights[(cut.splits, cut.chunks)](
        source,
        affine,
        grad,
        parts,
        positions,
        cut.per_program,
        SIZES=sizes,
        TILE=ALONG,
        TILE_OUT=power_of_two(sizes.OUT),
        CHUNK=cut.chunk,
        PRECISION=precision,
        num_stages=1,
    )
    return Summed(parts, sizes)


def add_weights(summed: Sequence[Summed]) -> list[Tensor]:
    """The gradients of weights, (O, C, K, K) each."""
    from quatcaps.layers.fused.kernels import normalisation

    found = [parts.new_empty(sizes.OUT, sizes.IN, sizes.KERNEL, sizes.KERNEL) for parts, sizes in summed]
    most = max(each.numel() for each in found)
    normalisation.add_weights[(math.ceil(most / TILE_WEIGHTS), len(found))](
        tuple(
            (parts, room, len(parts), sizes.KERNEL**2, sizes.IN, sizes.OUT)
            for (parts, sizes), room in zip(summed, found, strict=True)
        ),
        TILE=TILE_WEIGHTS,
        TILE_SPLITS=TILE_SPLITS,
    )
    return found

"""Bytes of images as numbers about 0: by the mean and deviation of each view, of each image, or of a dataset."""

from __future__ import annotations

import functools

import torch
from jaxtyping import Float
from torch import Tensor

from quatcaps.pipelines import Pipeline

SMALLEST_DEVIATION = 1e-3
"""Of the bytes of a view; a flat image is divided by this, and becomes 0."""


def standardised(pipeline: Pipeline, images: Tensor, stored: Tensor) -> Tensor:
    """Images (N, C, H, W) that are seen of the `stored` ones, standardised."""
    source = stored if pipeline.standardise_from == "whole" else images
    if pipeline.standardise == "view":
        return standardise_views(images, source)
    if pipeline.standardise == "image":
        return standardise_images(images, source)
    if pipeline.standardise == "none":
        return images.float() / 255
    return standardise_channels(
        images, constants(pipeline.mean, images.device), constants(pipeline.deviation, images.device)
    )


def standardise_views(images: Tensor, source: Tensor | None = None) -> Float[Tensor, "N C H W"]:
    """Every channel of every image by its own mean and deviation, or by those of `source`, in float32; a flat image
    becomes 0."""
    return standardise_over(images, (2, 3), source)


def standardise_images(images: Tensor, source: Tensor | None = None) -> Float[Tensor, "N C H W"]:
    """Every image by one mean and one deviation of all its channels, so that stereo views keep what sets them apart."""
    return standardise_over(images, (1, 2, 3), source)


def standardise_over(images: Tensor, dims: tuple[int, ...], source: Tensor | None = None) -> Float[Tensor, "N C H W"]:
    """By mean and deviation over some dimensions of the images, or of what they are windows of."""
    values = images.float()
    whole = values if source is None or source is images else source.float()
    variance, mean = torch.var_mean(whole, dims, keepdim=True, correction=0)
    return (values - mean) / variance.sqrt().clamp(min=SMALLEST_DEVIATION)


def standardise_channels(images: Tensor, mean: Tensor, deviation: Tensor) -> Float[Tensor, "N C H W"]:
    """Bytes as parts of 255, then every channel by a fixed mean and deviation (C,)."""
    return torch.addcmul(-(mean / deviation)[:, None, None], images.float(), (1 / (255 * deviation))[:, None, None])


@functools.lru_cache(maxsize=64)
def constants(values: tuple[float, ...], device: torch.device) -> Tensor:
    """(n,) float32 on a device, copied there once: a copy for every batch would make a GPU wait."""
    return torch.tensor(values, device=device)

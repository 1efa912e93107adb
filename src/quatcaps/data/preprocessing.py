"""From stored bytes to what a network sees, as a `Pipeline` says: whole batches, on whatever device the images are.

Chance is drawn apart from its use: `draws` makes the numbers of many images at once from the generator that is passed
in, and everything else is a function of images and numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from quatcaps.counter_based import STEP, bell, mixed
from quatcaps.data.standardising import standardised
from quatcaps.data.windows import bends, centre_crop, mirror, mirror_image, spread_crops, warped_windows, windows
from quatcaps.errors import QuatcapsError
from quatcaps.pipelines import Pipeline


class Draws(NamedTuple):
    """What chance decides for each of N images."""

    top: Tensor  # (N,) int64: where its window begins, in the padded image
    left: Tensor
    mirrored: Tensor  # (N,) bool
    angle: Tensor  # (N,) float32, radians, counter-clockwise as seen
    zoom: Tensor  # (N,) float32: above 1 the image appears larger
    brightness: Tensor  # (N,) float32, added, as a part of the full range or in deviations
    contrast: Tensor  # (N,) float32, a factor
    stretch: Tensor  # (N,) float32: above 1 the image appears wider
    blot_top: Tensor  # (N,) float32: where its blot lies, as a part of the ways it can
    blot_left: Tensor
    patched: Tensor  # (N,) bool
    patch_top: Tensor  # (N,) float32, as of its blot
    patch_left: Tensor
    noise: Tensor  # (N,) float32: the deviation of what is added to each pixel
    grain: Tensor  # (N,) int64: the key of what that is, and of how the image is bent

    def at(self, chosen: slice) -> Draws:
        return Draws(*(column[chosen] for column in self))

    def to(self, device: torch.device) -> Draws:
        return Draws(*(column.to(device) for column in self))


def draws(pipeline: Pipeline, count: int, size: tuple[int, int], generator: torch.Generator) -> Draws:
    """What chance decides for `count` training images of height and width `size`.

    Every image takes the same share of the generator's numbers whatever the pipeline asks for, so that one more
    augmentation leaves the crops as they were. The largest zoom is 1 + `scale`, the smallest its inverse, and so for
    `stretch`.
    """
    share = torch.rand(10, count, generator=generator)
    more = torch.rand(4, count, generator=generator)
    even = 2 * share - 1  # in [−1, 1)
    down, across = (side + 2 * pipeline.pad - pipeline.crop + 1 if pipeline.crop else 1 for side in size)
    return Draws(
        top=(share[0] * down).long().clamp(max=down - 1),
        left=(share[1] * across).long().clamp(max=across - 1),
        mirrored=(share[2] < 0.5) if pipeline.flip else torch.zeros(count, dtype=torch.bool),
        angle=even[3] * math.radians(pipeline.rotation),
        zoom=(even[4] * math.log1p(pipeline.scale)).exp(),
        brightness=even[5] * pipeline.brightness,
        contrast=1 + even[6] * pipeline.contrast,
        stretch=(even[7] * math.log1p(pipeline.stretch)).exp(),
        blot_top=share[8],
        blot_left=share[9],
        patched=more[0] < 0.5,
        patch_top=more[1],
        patch_left=more[2],
        noise=more[3] * pipeline.noise,
        grain=torch.randint(2**62, (count,), generator=generator),
    )


def for_training(pipeline: Pipeline, images: Tensor, chance: Draws) -> Tensor:
    """(N, C, H, W) uint8 → (N, C, crop, crop) float32: cropped, turned, bent, mirrored, standardised and lit
    otherwise in either order, patched, with noise, blotted.

    To be patched, N images come with N others behind them, from which the patches are taken.
    """
    seen: Tensor = images
    if pipeline.warps:
        if not pipeline.crop and images.shape[2] != images.shape[3]:
            raise QuatcapsError(
                f"images of {images.shape[2]}×{images.shape[3]} cannot be turned, scaled or bent whole: give a --crop"
            )
        size = pipeline.crop or images.shape[2]
        moved = pipeline.elastic * size * bends(chance.grain, size) if pipeline.elastic else None
        warp = (chance.angle, chance.zoom, chance.stretch, moved)
        seen = warped_windows(images, chance.top, chance.left, size, *warp, pad=pipeline.pad)
    elif pipeline.crop and (pipeline.pad or images.shape[2:] != (pipeline.crop, pipeline.crop)):
        seen = windows(images, chance.top, chance.left, pipeline.crop, pad=pipeline.pad)
    if pipeline.flip:
        seen = mirror(seen, chance.mirrored)
    if pipeline.jitters and pipeline.lighting == "pixels":
        seen = jitter(seen.float(), chance.brightness, chance.contrast)
    mirrored_too = pipeline.flip and pipeline.standardise_from == "whole"
    seen = standardised(pipeline, seen, mirror(images, chance.mirrored) if mirrored_too else images)
    if pipeline.jitters and pipeline.lighting == "standardised":
        seen = relit(seen, chance.brightness, chance.contrast)
    if pipeline.patch:
        own = slice(len(seen) // 2)
        seen, others, chance = seen[own], seen[own.stop :], chance.at(own)
        seen = patch(seen, others, chance.patched, chance.patch_top, chance.patch_left, pipeline.patch)
    if pipeline.noise:
        seen = grainy(seen, chance.noise, chance.grain)
    return blot(seen, chance.blot_top, chance.blot_left, pipeline.erase) if pipeline.erase else seen


def views_for_evaluation(pipeline: Pipeline, images: Tensor) -> list[Tensor]:
    """What the network sees of test images: the middle alone, or several windows; then, if so wished, the mirror image
    of each. All are standardised as by `for_evaluation`."""
    if pipeline.test_crops == 1:
        views = [for_evaluation(pipeline, images)]
    else:
        crops = spread_crops(images, pipeline.crop, pipeline.test_crops, pad=pipeline.pad)
        views = [standardised(pipeline, crop, images) for crop in crops]
    return [*views, *map(mirror_image, views)] if pipeline.test_mirrored else views


def for_evaluation(pipeline: Pipeline, images: Tensor) -> Tensor:
    """(N, C, H, W) uint8 → (N, C, crop, crop) float32: the middle, standardised."""
    return standardised(pipeline, centre_crop(images, pipeline.crop) if pipeline.crop else images, images)


def jitter(values: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    """Brightness and contrast of images in 0 … 255, cut off at the ends of the range."""
    return relit(values, 255 * brightness, contrast).clamp(0, 255)


def relit(values: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    """Images (N, C, H, W) with a factor (N,) about the mean of each, and a shift (N,)."""
    mean = values.mean((1, 2, 3), keepdim=True)
    return (values - mean) * contrast[:, None, None, None] + mean + brightness[:, None, None, None]


def patch(values: Tensor, others: Tensor, patched: Tensor, top: Tensor, left: Tensor, part: float) -> Tensor:
    """A square of each of the chosen images (N,) is taken from another image, where it has the same place."""
    return torch.where(square(values, top, left, part) & patched[:, None, None, None], others, values)


def blot(values: Tensor, top: Tensor, left: Tensor, part: float) -> Tensor:
    """A square of each image (N, C, H, W) becomes 0, placed as `square` says."""
    return values.masked_fill(square(values, top, left, part), 0.0)


def square(values: Tensor, top: Tensor, left: Tensor, part: float) -> Tensor:
    """(N, 1, H, W) bool: a square of side `part` · H in each image. top, left: (N,) in 0 … 1, from border to border."""
    height, width = values.shape[2:]
    side = round(part * height)
    first_row, first_column = (
        (share * (extent - side + 1)).floor() for share, extent in ((top, height), (left, width))
    )
    rows = torch.arange(height, device=values.device) - first_row[:, None]  # (N, H)
    columns = torch.arange(width, device=values.device) - first_column[:, None]
    inside = ((rows >= 0) & (rows < side))[:, :, None] & ((columns >= 0) & (columns < side))[:, None, :]
    return inside[:, None]


def grainy(values: Tensor, deviation: Tensor, grain: Tensor) -> Tensor:
    """Noise on every pixel of images (N, C, H, W), of a deviation (N,) for each, from its key (N,)."""
    places = torch.arange(values[0].numel(), device=values.device).view(1, *values.shape[1:])
    noise = bell(mixed(grain)[:, None, None, None] + places * STEP)
    return torch.addcmul(values, noise, deviation[:, None, None, None])

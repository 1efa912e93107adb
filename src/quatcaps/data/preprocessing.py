"""How stored images become what a network sees, as a `Pipeline` says."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from quatcaps.data.augment import (
    Draws,
    bends,
    blot,
    centre_crop,
    draw,
    grainy,
    jitter,
    mirror,
    patch,
    spread_crops,
    standardise_channels,
    standardise_views,
    warped_windows,
    windows,
)
from quatcaps.errors import QuatcapsError
from quatcaps.pipelines import Pipeline


def draws(pipeline: Pipeline, count: int, size: tuple[int, int], generator: torch.Generator) -> Draws:
    """What chance decides for `count` training images of height and width `size`."""
    height, width = (side + 2 * pipeline.pad for side in size)
    down, across = (height - pipeline.crop + 1, width - pipeline.crop + 1) if pipeline.crop else (1, 1)
    return draw(
        count,
        (down, across),
        generator,
        mirror=pipeline.flip,
        rotation=pipeline.rotation,
        scale=pipeline.scale,
        brightness=pipeline.brightness,
        contrast=pipeline.contrast,
        stretch=pipeline.stretch,
        noise=pipeline.noise,
    )


def for_training(pipeline: Pipeline, images: Tensor, chance: Draws) -> Tensor:
    """(N, C, H, W) uint8 → (N, C, crop, crop) float32: cropped, turned, bent, mirrored, jittered, standardised,
    patched, with noise, blotted.

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
    if pipeline.jitters:
        seen = jitter(seen.float(), chance.brightness, chance.contrast)
    seen = standardised(pipeline, seen)
    if pipeline.patch:
        own = slice(len(seen) // 2)
        seen, others, chance = seen[own], seen[own.stop :], chance.at(own)
        seen = patch(seen, others, chance.patched, chance.patch_top, chance.patch_left, pipeline.patch)
    if pipeline.noise:
        seen = grainy(seen, chance.noise, chance.grain)
    return blot(seen, chance.blot_top, chance.blot_left, pipeline.erase) if pipeline.erase else seen


def views_for_evaluation(pipeline: Pipeline, images: Tensor) -> list[Tensor]:
    """What the network sees of test images: the middle alone, or several windows; each as `for_evaluation` gives it."""
    if pipeline.test_crops == 1:
        return [for_evaluation(pipeline, images)]
    views = spread_crops(images, pipeline.crop, pipeline.test_crops, pad=pipeline.pad)
    return [standardised(pipeline, view) for view in views]


def for_evaluation(pipeline: Pipeline, images: Tensor) -> Tensor:
    """(N, C, H, W) uint8 → (N, C, crop, crop) float32: the middle, standardised."""
    return standardised(pipeline, centre_crop(images, pipeline.crop) if pipeline.crop else images)


def standardised(pipeline: Pipeline, images: Tensor) -> Tensor:
    if pipeline.standardise == "view":
        return standardise_views(images)
    if pipeline.standardise == "none":
        return images.float() / 255
    return standardise_channels(
        images, constants(pipeline.mean, images.device), constants(pipeline.deviation, images.device)
    )


@functools.lru_cache(maxsize=64)
def constants(values: tuple[float, ...], device: torch.device) -> Tensor:
    """(n,) float32 on a device, copied there once: a copy for every batch would make a GPU wait."""
    return torch.tensor(values, device=device)

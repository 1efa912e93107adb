"""Digits moved, turned, scaled and sheared in affNIST's ranges, for networks that were trained on digits as they are.

affNIST (Tieleman 2013) changes every test digit of MNIST: it is turned by up to 20° either way, sheared by up to 0.2,
scaled by 0.8 to 1.2 in both directions independently, and put anywhere in a frame of 40×40 where all of it fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from quatcaps.accelerator import current
from quatcaps.data.batches import mix
from quatcaps.data.imageset import ImageSet
from quatcaps.data.standardising import standardised
from quatcaps.data.windows import windows
from quatcaps.errors import QuatcapsError
from quatcaps.robustness.victims import Victim, under_attack
from quatcaps.training.measure import Rate
from quatcaps.training.predictions import evaluation_batch
from quatcaps.training.trained import Trained

DARK = 2 / 255
"""Pixels up to this are background."""
DARK_BORDERS = 0.9
"""The share of border pixels that must be background for an image to be something on a dark ground."""
LARGEST_FRAME = 512
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AffineRanges:
    """Within which bounds chance draws."""

    rotation: float = 20.0  # degrees, either way
    shear: float = 0.2  # either way: x moves by so much of y
    smallest: float = 0.8  # of the scale, in each direction independently
    largest: float = 1.2
    moved: bool = True  # anywhere in the frame where all of it fits


AFFNIST = AffineRanges()
"""The ranges of affNIST."""
STILL = AffineRanges(0.0, 0.0, 1.0, 1.0, moved=False)
PARTS = {
    "as they are": STILL,
    "moved": replace(STILL, moved=True),
    "turned": replace(STILL, rotation=AFFNIST.rotation),
    "scaled": replace(STILL, smallest=AFFNIST.smallest, largest=AFFNIST.largest),
    "sheared": replace(STILL, shear=AFFNIST.shear),
    "all": AFFNIST,
}
"""What is measured: every change alone, and all together, as affNIST has them."""


@dataclass(frozen=True)
class Affine:
    """The errors of one network on changed images."""

    name: str
    model: str
    parameters: int
    images: str
    frame: int
    errors: dict[str, Rate]  # by `PARTS`
    checkpoint: str = ""  # best, last or average, where a run keeps more than one

    def to_json(self) -> dict[str, Any]:
        rates = {
            name: {"error_percent": rate.percent, "errors": rate.errors, "images": rate.images}
            for name, rate in self.errors.items()
        }
        return {**vars(self), "errors": rates, "checkpoint": self.checkpoint or None}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Affine:
        """What `to_json` wrote."""
        errors = {name: Rate(rate["errors"], rate["images"]) for name, rate in value["errors"].items()}
        return Affine(**{**value, "errors": errors, "checkpoint": value.get("checkpoint") or ""})


class Shares(NamedTuple):
    """What chance decides for each of N images, in [0, 1)."""

    rotation: Tensor
    shear: Tensor
    height: Tensor
    width: Tensor
    down: Tensor
    across: Tensor


def changed(images: Tensor, ranges: AffineRanges, frame: int, shares: Tensor) -> Tensor:
    """Images (N, C, H, W) of a dark ground, each changed by chance, on a frame (N, C, frame, frame).

    shares: (6, N) in [0, 1), what chance decides: rotation, shear, height, width, down, across. Between pixels by
    bilinear interpolation, about the middle of the image; then moved by whole pixels.
    """
    chance = Shares(*(2 * shares - 1))
    angle = chance.rotation * math.radians(ranges.rotation)
    shear = chance.shear * ranges.shear
    middle, half = (ranges.largest + ranges.smallest) / 2, (ranges.largest - ranges.smallest) / 2
    tall, wide = middle + half * chance.height, middle + half * chance.width
    cosine, sine = angle.cos(), angle.sin()
    # Where a pixel of the result comes from: the rotation undone, then the shear, then the scale; rows are x and y.
    turned = torch.stack([torch.stack([cosine, sine], 1), torch.stack([-sine, cosine], 1)], 1)
    one, zero = torch.ones_like(shear), torch.zeros_like(shear)
    unsheared = torch.stack([torch.stack([one, -shear], 1), torch.stack([zero, one], 1)], 1)
    unscaled = torch.diag_embed(torch.stack([1 / wide, 1 / tall], 1))
    back = unscaled @ unsheared @ turned  # (N, 2, 2), in pixels from the middle
    height, width = images.shape[2:]
    # As even or odd as the image, so that its middle lies on a pixel, or between two, in both.
    down, across = (2 * max(frame, height, width) + each % 2 for each in (height, width))
    rows, columns = (
        torch.arange(side, device=images.device, dtype=images.dtype) - (side - 1) / 2 for side in (down, across)
    )
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1).view(1, -1, 2) @ back.transpose(1, 2)
    grid = grid.view(-1, down, across, 2) * 2 / images.new_tensor([width, height])
    canvas = functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    top, left = (torch.full((len(images),), (side - frame) // 2, device=images.device) for side in (down, across))
    if ranges.moved:
        ink = canvas.amax(1) > DARK
        top, left = (fitting(ink.any(axis), frame, share[:]) for axis, share in ((2, shares[4]), (1, shares[5])))
    return windows(canvas, top, left, frame)


def fitting(inked: Tensor, frame: int, share: Tensor) -> Tensor:
    """(N,) where a window of `frame` begins that holds all that is inked (N, side); anywhere it can, by a share."""
    side = inked.shape[1]
    numbers = torch.arange(side, device=inked.device)
    first = torch.where(inked, numbers, side).amin(1)
    last = torch.where(inked, numbers, -1).amax(1)
    empty = last < 0
    first, last = first.masked_fill(empty, (side - frame) // 2), last.masked_fill(empty, (side + frame) // 2 - 1)
    earliest, latest = last - frame + 1, first  # the other way round where it is larger than the frame
    low, high = torch.minimum(earliest, latest), torch.maximum(earliest, latest)
    drawn = low + (share * (high - low + 1)).long()
    return torch.where(earliest <= latest, drawn, (low + high) // 2).clamp(0, side - frame)


def affine(
    trained: Trained,
    images: ImageSet,
    device: torch.device,
    *,
    frame: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Affine:
    """The error of a network on images that are moved, turned, scaled and sheared as in affNIST.

    frame: side of the changed images; without, that of the images themselves. affNIST has 40: networks that take images
    of any size can be shown it.
    """
    trained.check_fit(images)
    side = max(images.size) if frame is None else frame
    check_frame(images, side)
    victim = Victim(trained)
    network = trained.network.to(device)
    batch = evaluation_batch(network, (2 * side, 2 * side))
    generator = torch.Generator().manual_seed(mix(seed, 1))
    shares = torch.rand(6, len(images), generator=generator)
    errors, done = {}, 0
    with under_attack(victim):
        for name, ranges in PARTS.items():
            wrong = 0
            for start in range(0, len(images), batch):
                part = slice(start, start + batch)
                pixels = images.at(part).to(device).float() / 255
                shown = changed(pixels, ranges, side, shares[:, part].to(device))
                classes = victim(shown).argmax(1) if images.size == (side, side) else named(victim, shown)
                wrong += int((classes.cpu() != images.labels[part]).sum())
                done += len(pixels)
                if progress is not None:
                    progress(done, len(PARTS) * len(images))
            errors[name] = Rate(wrong, len(images))
    parameters = sum(weight.numel() for weight in network.parameters())
    what = f"{images.name}, {len(images):,} images"
    return Affine(trained.name, trained.config.model, parameters, what, side, errors, trained.checkpoint)


def named(victim: Victim, pixels: Tensor) -> Tensor:
    """(N,) the classes that a network names for whole images, whatever their size."""
    trained = victim.trained
    try:
        with current(pixels.device):
            shown = 255 * pixels
            return trained.network(standardised(victim.pipeline, shown, shown)).scores.argmax(1)
    except QuatcapsError as error:
        side = pixels.shape[2]
        raise QuatcapsError(f"{trained.name} cannot be shown a frame of {side}×{side}: {error}") from error


def check_frame(images: ImageSet, frame: int) -> None:
    """Raises where images do not stand on a dark ground, or a frame cannot hold them."""
    height, width = images.size
    if not max(height, width) <= frame <= LARGEST_FRAME:
        raise QuatcapsError(
            f"a frame of {frame}: it must be from {max(height, width)}, the side of the images, to {LARGEST_FRAME}"
        )
    some = images.at(slice(0, 1000)).float() / 255
    border = torch.cat([some[:, :, [0, -1]].flatten(1), some[:, :, :, [0, -1]].flatten(1)], 1)
    share = float((border <= DARK).float().mean())
    if share < DARK_BORDERS:
        raise QuatcapsError(
            f"{images.name}: {100 * share:.0f}% of its border pixels are black; affine changes are for what stands on "
            "a black ground, such as mnist"
        )

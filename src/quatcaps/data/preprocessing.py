"""From stored bytes to what a network sees, as a `Pipeline` says: whole batches, on whatever device the images are.

Chance is drawn apart from its use: `draws` makes the numbers of many images at once from the generator that is passed
in, and everything else is a function of images and numbers.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from quatcaps.counter_based import STEP, bell, mixed
from quatcaps.errors import QuatcapsError
from quatcaps.pipelines import Pipeline

SMALLEST_DEVIATION = 1e-3
"""Of the bytes of a view; a flat image is divided by this, and becomes 0."""

CELLS = 4
"""Across a window, of the grid whose points are moved to bend it."""
BENT = 0x2545F4914F6CDD1D
"""Sets the keys of bends apart from those of noise."""


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


@functools.lru_cache(maxsize=64)
def constants(values: tuple[float, ...], device: torch.device) -> Tensor:
    """(n,) float32 on a device, copied there once: a copy for every batch would make a GPU wait."""
    return torch.tensor(values, device=device)


def windows(images: Tensor, top: Tensor, left: Tensor, size: int, *, pad: int = 0) -> Tensor:
    """(N, C, H, W) → (N, C, size, size): a window for each image, the same in all its channels.

    top, left: (N,) in the image padded by `pad` zeros on each side.
    """
    height, width = images.shape[2:]
    check_crop(height + 2 * pad, width + 2 * pad, size)
    span = torch.arange(size, device=images.device) - pad
    rows, columns = top[:, None] + span, left[:, None] + span
    return _grid(images, rows[:, :, None], columns[:, None, :], zero_outside=pad > 0)


def warped_windows(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    size: int,
    angle: Tensor,
    zoom: Tensor,
    stretch: Tensor | None = None,
    moved: Tensor | None = None,
    *,
    pad: int = 0,
) -> Float[Tensor, "N C S S"]:
    """The same windows, each stretched, turned and zoomed about its middle, between pixels by bilinear interpolation.

    moved: (2, N, size, size), by how many pixels further down and across each pixel is taken from. What comes in at the
    border is the image around the window; outside the image it is 0 where `pad` says that it is, and else the nearest
    pixel.
    """
    height, width = images.shape[2:]
    check_crop(height + 2 * pad, width + 2 * pad, size)
    middle = (size - 1) / 2
    span = torch.arange(size, device=images.device) - middle
    cosine, sine = (f(angle)[:, None, None] / zoom[:, None, None] for f in (torch.cos, torch.sin))
    y, x = span[:, None], span[None, :]
    narrower = torch.ones_like(zoom) if stretch is None else stretch.rsqrt()
    narrower = narrower[:, None, None]
    # The picture is turned after it is stretched, so what is seen is turned back before it is.
    rows = (top - pad + middle)[:, None, None] + (cosine * y + sine * x) / narrower  # (N, size, size)
    columns = (left - pad + middle)[:, None, None] + (cosine * x - sine * y) * narrower
    if moved is not None:
        rows, columns = rows + moved[0], columns + moved[1]
    above, before = rows.floor(), columns.floor()
    down, across = (rows - above)[:, None], (columns - before)[:, None]
    values, first_row, first_column = images.float(), above.long(), before.long()

    def row(number: Tensor) -> Tensor:
        first, second = (_grid(values, number, first_column + i, pad > 0) for i in (0, 1))
        return torch.lerp(first, second, across)

    return torch.lerp(row(first_row), row(first_row + 1), down)


def bends(grain: Tensor, size: int) -> Tensor:
    """(2, N, size, size) float32: a smooth way down and across for every pixel of a window, from the image's key (N,).

    Each is of mean 0 and deviation 1: a spline over a grid of points that are moved at random.
    """
    basis, places = splines(size, grain.device), CELLS + 3
    points = torch.arange(2 * places**2, device=grain.device).view(2, 1, places, places)
    moved = bell(mixed(grain ^ BENT)[:, None, None] + points * STEP)  # (2, N, places, places)
    rows, pixels = (moved.new_zeros(2, len(grain), size, across) for across in (places, size))
    # A product of matrices may round otherwise in a batch of another size; these sums have the same bits in each.
    for place in range(places):
        rows += basis[:, place, None] * moved[:, :, place, None, :]
    for place in range(places):
        pixels += rows[..., place, None] * basis[:, place]
    return pixels


@functools.lru_cache(maxsize=64)
def splines(size: int, device: torch.device) -> Tensor:
    """(size, CELLS + 3) float32: what each point of the grid adds to each of `size` pixels in a row, by cubic splines.

    Squares add up to 1, so that independent points of deviation 1 make pixels of deviation 1.
    """
    pixels = torch.arange(size, dtype=torch.float64) * (CELLS / max(size - 1, 1))
    points = torch.arange(-1, CELLS + 2, dtype=torch.float64)
    far = (pixels[:, None] - points).abs()
    near = 2 / 3 - far**2 + far**3 / 2
    basis = torch.where(far < 1, near, (2 - far).clamp(min=0) ** 3 / 6)
    return functional.normalize(basis, dim=1).float().to(device)


def mirror(images: Tensor, mirrored: Tensor) -> Tensor:
    """Left and right of the chosen images (N,) change places; of a stereo pair, two channels, so do the views."""
    return torch.where(mirrored[:, None, None, None], mirror_image(images), images)


def mirror_image(images: Tensor) -> Tensor:
    return images.flip((1, 3) if images.shape[1] == 2 else 3)


def jitter(values: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    """Brightness and contrast of images in 0 … 255, cut off at the ends of the range."""
    return relit(values, 255 * brightness, contrast).clamp(0, 255)


def relit(values: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    """Images (N, C, H, W) with a factor (N,) about the mean of each, and a shift (N,)."""
    mean = values.mean((1, 2, 3), keepdim=True)
    return (values - mean) * contrast[:, None, None, None] + mean + brightness[:, None, None, None]


def blot(values: Tensor, top: Tensor, left: Tensor, part: float) -> Tensor:
    """A square of each image (N, C, H, W) becomes 0, placed as `square` says."""
    return values.masked_fill(square(values, top, left, part), 0.0)


def patch(values: Tensor, others: Tensor, patched: Tensor, top: Tensor, left: Tensor, part: float) -> Tensor:
    """A square of each of the chosen images (N,) is taken from another image, where it has the same place."""
    return torch.where(square(values, top, left, part) & patched[:, None, None, None], others, values)


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


def spread_crops(images: Tensor, size: int, count: int, *, pad: int = 0) -> list[Tensor]:
    """`count` × `count` windows of every image, evenly spread from border to border; one alone is the middle.

    With `pad`, the borders are those of the image with so many zeros on each side.
    """
    if count == 1:
        return [centre_crop(images, size)]
    images = functional.pad(images, (pad,) * 4)
    height, width = images.shape[2:]
    check_crop(height, width, size)
    starts = [[round(number * (side - size) / (count - 1)) for number in range(count)] for side in (height, width)]
    return [images[:, :, top : top + size, left : left + size] for top in starts[0] for left in starts[1]]


def centre_crop(images: Tensor, size: int) -> Tensor:
    """(N, C, H, W) → (N, C, size, size): the middle; of an odd margin the smaller half above and to the left."""
    height, width = images.shape[2:]
    check_crop(height, width, size)
    top, left = (height - size) // 2, (width - size) // 2
    return images[:, :, top : top + size, left : left + size]


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


def check_crop(height: int, width: int, size: int) -> None:
    if not 1 <= size <= min(height, width):
        raise QuatcapsError(
            f"a crop of {size}×{size} from images of {height}×{width}: it must be between 1 and {min(height, width)}"
        )


def _grid(images: Tensor, rows: Tensor, columns: Tensor, zero_outside: bool) -> Tensor:
    """(N, C, h, w): the pixels at rows and columns that broadcast to (N, h, w); outside, 0 or the nearest one."""
    count, channels, height, width = images.shape
    near = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    grid = near.shape[1:]
    taken = images.flatten(2).gather(2, near.view(count, 1, -1).expand(-1, channels, -1)).view(count, channels, *grid)
    if not zero_outside:
        return taken
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    return taken * inside[:, None]

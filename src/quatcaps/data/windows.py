"""What part of an image is seen, and how it lies: windows, also stretched, turned, bent or mirrored."""

from __future__ import annotations

import functools

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from quatcaps.counter_based import STEP, bell, mixed
from quatcaps.errors import QuatcapsError

CELLS = 4
"""Across a window, of the grid whose points are moved to bend it."""
BENT = 0x2545F4914F6CDD1D
"""Sets the keys of bends apart from those of noise."""


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


def check_crop(height: int, width: int, size: int) -> None:
    if not 1 <= size <= min(height, width):
        raise QuatcapsError(
            f"a crop of {size}×{size} from images of {height}×{width}: it must be between 1 and {min(height, width)}"
        )


def mirror(images: Tensor, mirrored: Tensor) -> Tensor:
    """Left and right of the chosen images (N,) change places; of a stereo pair, two channels, so do the views."""
    return torch.where(mirrored[:, None, None, None], mirror_image(images), images)


def mirror_image(images: Tensor) -> Tensor:
    return images.flip((1, 3) if images.shape[1] == 2 else 3)


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

"""From stored bytes to what a network sees, in whole batches, on whatever device the images are.

Random numbers come from the generator that is passed in; there is no other source of chance.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from quatcaps.errors import QuatcapsError


def random_crop(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """(N, C, H, W) → (N, C, size, size): a window of its own for each image, the same in all its channels.

    The offsets are drawn on the generator's device, so that a run depends on the seed alone.
    """
    count, channels, height, width = images.shape
    check_crop(height, width, size)
    drawn_on = generator.device
    top = torch.randint(height - size + 1, (count, 1), generator=generator, device=drawn_on)
    left = torch.randint(width - size + 1, (count, 1), generator=generator, device=drawn_on)
    top, left = top.to(images.device), left.to(images.device)
    span = torch.arange(size, device=images.device)
    pixels = (top + span)[:, :, None] * width + (left + span)[:, None, :]
    chosen = pixels.view(count, 1, -1).expand(-1, channels, -1)
    return images.flatten(2).gather(2, chosen).view(count, channels, size, size)


def centre_crop(images: Tensor, size: int) -> Tensor:
    """(N, C, H, W) → (N, C, size, size): the middle; of an odd margin the smaller half above and to the left."""
    height, width = images.shape[2:]
    check_crop(height, width, size)
    top, left = (height - size) // 2, (width - size) // 2
    return images[:, :, top : top + size, left : left + size]


def standardise(images: Tensor) -> Float[Tensor, "N C H W"]:
    """Every channel of every image by its own mean and deviation, in float32; a flat image becomes 0."""
    values = images.float()
    mean = values.mean((2, 3), keepdim=True)
    deviation = values.std((2, 3), keepdim=True, correction=0)
    return (values - mean) / deviation.clamp(min=1e-3)


def check_crop(height: int, width: int, size: int) -> None:
    if not 1 <= size <= min(height, width):
        raise QuatcapsError(
            f"a crop of {size}×{size} from images of {height}×{width}: it must be between 1 and {min(height, width)}"
        )

"""Mixup (Zhang et al. 2018): every image is mixed with another of its batch, and so is what is wanted of it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from quatcaps.counter_based import uniform

MIXED = 0x1B873593CC9E2D51
"""Sets the keys of parts apart from those of noise and bends."""


class Mixed(NamedTuple):
    """What N images of a batch were mixed with."""

    labels: Int[Tensor, " N"]  # of the other image
    parts: Float[Tensor, " N"]  # that it has in the mixture


def mix_up(
    images: Float[Tensor, "N C H W"], labels: Int[Tensor, " N"], keys: Int[Tensor, " N"], most: float
) -> tuple[Float[Tensor, "N C H W"], Mixed]:
    """(1 − p) x + p x′ for every image x, x′ its neighbour in the batch and p from its key, uniform in [0, `most`)."""
    parts = most * uniform(keys ^ MIXED)
    other = neighbours(len(images), images.device)
    return torch.lerp(images, images[other], parts[:, None, None, None]), Mixed(labels[other], parts)


def neighbours(count: int, device: torch.device | None = None) -> Int[Tensor, " count"]:
    """The first and the second change places, the third and the fourth, and so on; the last of an odd number stays.

    >>> neighbours(5).tolist()
    [1, 0, 3, 2, 4]
    """
    return (torch.arange(count, device=device) ^ 1).clamp(max=count - 1)

"""Batches for training and evaluation, in an order that depends on the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from quatcaps.data.augment import centre_crop, random_crop, standardise
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError


class Batch(NamedTuple):
    images: Tensor  # (N, C, crop, crop) float32, standardised
    labels: Tensor  # (N,) int64


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of `count` images in one epoch: a permutation, int64."""
    generator = torch.Generator().manual_seed(mix(seed, epoch))
    return torch.randperm(count, generator=generator)


def mix(seed: int, stream: int) -> int:
    """A seed for one of many independent streams (64 bits, by splitmix64's finisher)."""
    value = (seed * 0x9E3779B97F4A7C15 + (stream + 1) * 0xD1B54A32D192ED03) & (2**64 - 1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = ((value ^ (value >> shift)) * factor) & (2**64 - 1)
    return (value ^ (value >> 31)) & (2**63 - 1)


class TrainingBatches:
    """One epoch after another of cropped, standardised batches; the last, smaller batch of an epoch is left out.

    The images are moved to `device` once, as bytes. `generator` draws the crops, on the CPU.
    """

    def __init__(
        self,
        images: ImageSet,
        batch: int,
        crop: int,
        seed: int,
        device: torch.device,
        generator: torch.Generator,
    ) -> None:
        check_batch(batch, len(images))
        self.images = images.images.to(device)
        self.labels = images.labels.to(device)
        self.batch, self.crop, self.seed, self.generator = batch, crop, seed, generator

    @property
    def per_epoch(self) -> int:
        return len(self.images) // self.batch

    def epoch(self, epoch: int, position: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `position` on."""
        order = epoch_order(len(self.images), self.seed, epoch).to(self.images.device)
        for index in range(position, self.per_epoch):
            chosen = order[index * self.batch : (index + 1) * self.batch]
            cropped = random_crop(self.images[chosen], self.crop, self.generator)
            yield Batch(standardise(cropped), self.labels[chosen])


def check_batch(batch: int, images: int) -> None:
    """Raises unless a batch of that size can be taken from so many images."""
    if not 1 <= batch <= images:
        raise QuatcapsError(f"a batch of {batch} from {images} training images: choose 1 to {images}")


def evaluation_batches(images: ImageSet, batch: int, crop: int, device: torch.device) -> Iterator[Batch]:
    """All images once, in order, centre crops."""
    for start in range(0, len(images), batch):
        part = slice(start, start + batch)
        pixels = centre_crop(images.images[part], crop).to(device)
        yield Batch(standardise(pixels), images.labels[part].to(device))

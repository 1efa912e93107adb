"""A network on trial: the images it is attacked on, and what an attack makes of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quatcaps.data.batches import mix
from quatcaps.data.imageset import ImageSet
from quatcaps.data.preprocessing import centre_crop
from quatcaps.errors import at_least_one
from quatcaps.robustness.attacks import WITHIN, Effort
from quatcaps.robustness.balls import Radius
from quatcaps.robustness.objectives import misclassified
from quatcaps.robustness.victims import Victim

BATCH = 128
"""Images that are attacked at once. Chance is drawn by batch, so that another number would draw other starts."""

Made = Callable[[Victim, Tensor, Tensor, Radius, torch.Generator], Tensor]
"""Makes adversarial images for a victim."""
Progress = Callable[[int, int], None]


class Counter:
    """Adds up the images that attacks have done, and tells it."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total, self.progress = 0, max(total, 1), progress

    def add(self, images: int) -> None:
        self.tell(self.done + images)

    def finish(self) -> None:
        self.tell(self.total)

    def tell(self, done: int) -> None:
        self.done = min(done, self.total)
        if self.progress is not None:
            self.progress(self.done, self.total)


@dataclass(frozen=True)
class Trial:
    """A network and the images it is attacked on; chance follows from the seed, the attack and the batch."""

    victim: Victim
    pixels: Tensor  # (N, C, H, W) in [0, 1], on the device
    labels: Tensor  # (N,), on the device
    seed: int = 0
    normalised: bool = False
    counter: Counter | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def wrong(self, pixels: Tensor | None = None) -> Tensor:
        """(N,) bool on the CPU: which images are misclassified as they are, or as others show them."""
        shown = self.pixels if pixels is None else pixels
        parts = zip(shown.split(BATCH), self.labels.split(BATCH), strict=True)
        return torch.cat([misclassified(self.victim(images), labels).cpu() for images, labels in parts])

    def made(self, name: str, attack: Made, epsilon: float, where: Tensor | None = None) -> Tensor:
        """Adversarial images of all images, or of those `where` a mask (N,) says; the others stay as they are."""
        found = self.pixels.clone()
        chosen = torch.arange(len(self)) if where is None else where.nonzero().flatten()
        parts = chosen.to(self.pixels.device).split(BATCH) if len(chosen) else ()
        for number, rows in enumerate(parts):
            chance = torch.Generator().manual_seed(mix(mix(self.seed, zlib.crc32(name.encode())), number))
            pixels = self.pixels[rows]
            found[rows] = attack(self.victim, pixels, self.labels[rows], self.radius(epsilon, pixels), chance)
            if self.counter is not None:
                self.counter.add(len(rows))
        return found

    def broken(self, name: str, attack: Made, epsilon: float, where: Tensor | None = None) -> Tensor:
        """(N,) bool on the CPU: which images are misclassified, attacked or as they are."""
        return self.wrong() | self.wrong(self.made(name, attack, epsilon, where))

    def radius(self, epsilon: float, pixels: Tensor) -> Radius:
        """ε in pixels; given in units of the network's input, for each image and channel."""
        if not self.normalised:
            return epsilon
        return (epsilon * self.victim.deviations(pixels)).clamp(max=1).expand(len(pixels), -1, 1, 1)


def some_images(images: ImageSet, count: int, seed: int = 0) -> ImageSet:
    """`count` images chosen by chance, as many of each class as can be; all of them where there are no more."""
    at_least_one("images", count)
    generator = torch.Generator().manual_seed(mix(seed, 0))
    order = torch.randperm(len(images), generator=generator)
    labels = images.labels[order]
    turn = torch.empty_like(labels)
    for label in labels.unique():
        here = labels == label
        turn[here] = torch.arange(int(here.sum()))  # the first of every class come before the second of any
    chosen = order[turn.argsort(stable=True)[:count]]
    return images.select(chosen.sort().values, images.name)


def pixels_of(images: ImageSet, victims: Sequence[Victim], device: torch.device) -> Tensor:
    """(N, C, H, W) in [0, 1]: what the victims see before it is standardised. Victims of different crops share the
    whole image."""
    sides = {victim.pipeline.crop for victim in victims}
    stored = images.images
    if len(sides) == 1 and (side := sides.pop()):
        stored = centre_crop(stored, side)
    return stored.to(device).float() / 255


def with_effort(name: str, effort: Effort) -> Made:
    """An attack by name that may do so much."""
    return lambda victim, images, labels, epsilon, chance: WITHIN[name](victim, images, labels, epsilon, effort, chance)

"""A network on trial: the images it is attacked on, and what an attack makes of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quatcaps.data.batches import mix
from quatcaps.data.imageset import ImageSet
from quatcaps.data.windows import centre_crop
from quatcaps.errors import at_least_one
from quatcaps.robustness.attacks import WITHIN, Effort
from quatcaps.robustness.balls import Radius
from quatcaps.robustness.chance import Chance, Randomness
from quatcaps.robustness.objectives import misclassified
from quatcaps.robustness.unfinished import Unfinished
from quatcaps.robustness.victims import Victim

BATCH = 128
"""Images that share a generator: another number would draw other starts. A CPU attacks so many at once."""
BATCHES = 16
"""That a GPU attacks at once, those of several ε among them: one leaves it idle. Fewer where memory ends."""

Made = Callable[[Victim, Tensor, Tensor, Radius, Randomness], Tensor]
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


def batches_at_once(device: torch.device) -> int:
    return BATCHES if device.type == "cuda" else 1


class Part(NamedTuple):
    """Images that share a generator, to be attacked within one ε."""

    epsilon: int  # its place among those asked for
    number: int
    rows: Tensor  # (n,) the numbers of the images


@dataclass(frozen=True)
class Trial:
    """A network and the images it is attacked on; chance follows from the seed, the attack and the batch."""

    victim: Victim
    pixels: Tensor  # (N, C, H, W) in [0, 1], on the device
    labels: Tensor  # (N,), on the device
    seed: int = 0
    normalised: bool = False
    counter: Counter | None = None
    earlier: Unfinished | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def wrong(self, pixels: Tensor | None = None) -> Tensor:
        """(N,) bool on the CPU: which images are misclassified as they are, or as others show them."""
        shown = self.pixels if pixels is None else pixels
        parts = zip(shown.split(BATCH), self.labels.split(BATCH), strict=True)
        return torch.cat([misclassified(self.victim(images), labels).cpu() for images, labels in parts])

    def made(self, name: str, attack: Made, epsilons: Sequence[float], where: Tensor | None = None) -> Sequence[Tensor]:
        """By ε, adversarial images of all images, or of those `where` a mask (N,) says; the others stay as they are."""
        found = [self.pixels.clone() for _ in epsilons]
        chosen = torch.arange(len(self)) if where is None else where.nonzero().flatten()
        rows = chosen.to(self.pixels.device).split(BATCH) if len(chosen) else ()
        waiting = [Part(k, number, each) for k in range(len(epsilons)) for number, each in enumerate(rows)]
        at_once = batches_at_once(self.pixels.device)
        while waiting:
            parts, later = waiting[:at_once], waiting[at_once:]
            try:
                made = self.made_together(name, attack, epsilons, parts)
            except torch.OutOfMemoryError:
                if len(parts) == 1:
                    raise
                at_once = len(parts) // 2
                continue
            for part, images in zip(parts, made.split([len(part.rows) for part in parts]), strict=True):
                found[part.epsilon][part.rows] = images
            if self.counter is not None:
                self.counter.add(len(made))
            waiting = later
        return found

    def made_together(self, name: str, attack: Made, epsilons: Sequence[float], parts: Sequence[Part]) -> Tensor:
        """Adversarial images of some parts, one after the other."""
        seed = mix(self.seed, zlib.crc32(name.encode()))
        generators = [torch.Generator().manual_seed(mix(seed, part.number)) for part in parts]
        chance = Chance(generators, [len(part.rows) for part in parts])
        rows = torch.cat([part.rows for part in parts])
        radii = [self.radius(epsilons[part.epsilon], self.pixels[part.rows]) for part in parts]
        return attack(self.victim, self.pixels[rows], self.labels[rows], torch.cat(radii), chance)

    def broken(self, name: str, attack: Made, epsilons: Sequence[float], where: Tensor | None = None) -> list[Tensor]:
        """By ε, (N,) bool on the CPU: which images are misclassified, attacked or as they are."""

        def numbers() -> list[list[int]]:
            before, made = self.wrong(), self.made(name, attack, epsilons, where)
            return [(before | self.wrong(images)).nonzero().flatten().tolist() for images in made]

        images = len(self) if where is None else int(where.sum())
        found = self.once(f"{name}, ε = {', '.join(map(str, epsilons))}", numbers, images * len(epsilons))
        return [
            torch.zeros(len(self), dtype=torch.bool).index_fill(0, torch.tensor(each).long(), True) for each in found
        ]

    def once(self, what: str, find: Callable[[], Any], images: int) -> Any:
        """What was found before the attack was stopped, or is found now. images: that are attacked for it."""
        if self.earlier is None:
            return find()
        if what in self.earlier and self.counter is not None:
            self.counter.add(images)
        return self.earlier.once(what, find)

    def radius(self, epsilon: float, pixels: Tensor) -> Tensor:
        """(N, 1 or channels, 1, 1) ε in pixels; given in units of the network's input, by image and channel."""
        if not self.normalised:
            return pixels.new_full((len(pixels), 1, 1, 1), epsilon)
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
    whole image, and one that is standardised by it has it alone."""
    sides = {victim.pipeline.reads for victim in victims}
    stored = images.images
    if len(sides) == 1 and (side := sides.pop()):
        stored = centre_crop(stored, side)
    return stored.to(device).float() / 255


def with_effort(name: str, effort: Effort) -> Made:
    """An attack by name that may do so much."""
    return lambda victim, images, labels, epsilon, chance: WITHIN[name](victim, images, labels, epsilon, effort, chance)

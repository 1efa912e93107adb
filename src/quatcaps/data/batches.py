"""Batches for training and evaluation, in an order that depends on the seed and the epoch alone.

Training reads an endless stream: the images in one order, then all of them in another, and so on. A batch is the next
piece of it, so that all batches have one size, and every image comes once in each pass whatever the batch; the batch
that begins in one pass may end in the next. Several processes each take their part of every batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from quatcaps.data.imageset import VIEW, VIEWPOINT_FIELDS, ImageSet
from quatcaps.data.mixing import Mixed, mix_up
from quatcaps.data.placement import Plan, hold
from quatcaps.data.preprocessing import Draws, draws, for_training, views_for_evaluation
from quatcaps.data.viewpoints import Views, as_seen, views_of
from quatcaps.errors import QuatcapsError
from quatcaps.pipelines import Pipeline

ORDER, CHANCE = 0, 1  # of the two streams of chance in an epoch
OTHERS = -1  # and of the images that others are patched with, a stream within the second


TOGETHER, LARGEST_GROUP = 16, 2**26
"""On a GPU so many batches are made at once, or as many as take that many bytes: one alone is dozens of kernels that
are over before they have begun."""


class Batch(NamedTuple):
    images: Tensor  # (N, C, crop, crop) float32, standardised
    labels: Tensor  # (N,) int64
    views: Views | None = None  # where they are asked for
    mixed: Mixed | None = None  # as above


@dataclass(frozen=True)
class Share:
    """Which of several processes this is; each takes an equal, contiguous part of every batch."""

    rank: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.processes:
            raise QuatcapsError(
                f"process {self.rank} of {self.processes}: ranks run from 0 to one below the number of processes"
            )

    @staticmethod
    def of_this_process() -> Share:
        """As torchrun says in RANK and WORLD_SIZE; alone where it says nothing."""
        rank, processes = (os.environ.get(name, default) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
        if not (rank.isdecimal() and processes.isdecimal()):
            raise QuatcapsError(f"RANK = {rank!r}, WORLD_SIZE = {processes!r}: both must be whole numbers, or unset")
        return Share(int(rank), int(processes))

    def of(self, batch: int, mixup: float = 0.0) -> slice:
        """The places of a batch that are this process's; with mixup, no pair of images is torn."""
        if batch % self.processes:
            raise QuatcapsError(
                f"a batch of {batch} cannot be shared by {self.processes} processes: give a multiple of them"
            )
        if mixup and self.processes > 1 and batch % (2 * self.processes):
            raise QuatcapsError(
                f"a batch of {batch} cannot be shared by {self.processes} processes: mixup = {mixup:g} mixes images in "
                f"pairs; give a multiple of {2 * self.processes}"
            )
        part = batch // self.processes
        return slice(self.rank * part, (self.rank + 1) * part)


def mix(seed: int, stream: int) -> int:
    """A seed for one of many independent streams (64 bits, by splitmix64's finisher)."""
    value = (seed * 0x9E3779B97F4A7C15 + (stream + 1) * 0xD1B54A32D192ED03) & (2**64 - 1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = ((value ^ (value >> shift)) * factor) & (2**64 - 1)
    return (value ^ (value >> 31)) & (2**63 - 1)


def epoch_generator(seed: int, epoch: int, stream: int) -> torch.Generator:
    return torch.Generator().manual_seed(mix(seed, 2 * epoch + stream))


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of `count` images in one epoch: a permutation, int64."""
    return torch.randperm(count, generator=epoch_generator(seed, epoch, ORDER))


def groups_for_patches(pipeline: Pipeline, images: ImageSet) -> Tensor:
    """(N,) int64: images of one number may be patched with each other."""
    if pipeline.patch_from == "class":
        return images.labels.cpu()
    fields = (*VIEWPOINT_FIELDS, VIEW)
    viewpoint = [images.info[name] for name in fields if name in images.info and name != "instance"]
    return torch.stack([images.labels, *viewpoint]).cpu().unique(dim=1, return_inverse=True)[1]


def others_of_group(groups: Tensor, generator: torch.Generator) -> Tensor:
    """(N,) int64: for each image one of its group, any of them."""
    by_group = groups.argsort(stable=True)
    counts = groups.bincount()
    before = counts.cumsum(0) - counts
    share = torch.rand(len(groups), generator=generator, dtype=torch.float64)
    return by_group[before[groups] + (share * counts[groups]).long()]


class TrainingBatches:
    """The stream of batches of one run; any of them can be had at any time, from the seed alone."""

    def __init__(
        self,
        images: ImageSet,
        batch: int,
        pipeline: Pipeline,
        seed: int,
        device: torch.device,
        *,
        share: Share | None = None,
        placement: str = "auto",
        together: int | None = None,
        views: bool = False,
        mixup: float = 0.0,
    ) -> None:
        """together: how many batches are made at once; they are the same. views: tell from where each image shows its
        toy. mixup: the largest part that another image has in one; 0: none."""
        check_batch(batch, len(images))
        pipeline.check(images.channels, images.size, viewpoints=images.has_viewpoints)
        self.count, self.size = len(images), images.size
        self.batch, self.pipeline, self.seed, self.device, self.mixup = batch, pipeline, seed, device, mixup
        self.share = (share or Share()).of(batch, mixup)
        self.pixels = hold(images, device, placement)
        self.together = together or batches_together(batch, pipeline, images, device)
        self.labels = images.labels.to(device)
        self.views = Views(*(values.to(device) for values in views_of(images))) if views else None
        self._groups = groups_for_patches(pipeline, images) if pipeline.patch else None
        self._held: dict[int, list[Plan]] = {}  # the passes in hand, by epoch

    def first(self, epoch: int) -> int:
        """The number of the first batch that lies in an epoch from its beginning on, counted over the whole run."""
        return -(-epoch * self.count // self.batch)

    def epoch(self, epoch: int, position: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `position` on: this process's part of each."""
        # Groups begin where the epoch does, so that a batch is made in the same company wherever reading begins.
        skipped = position % self.together
        numbers = range(self.first(epoch) + position - skipped, self.first(epoch + 1))
        for plan, pixels in self.pixels.following(self._plans(numbers)):
            seen = for_training(self.pipeline, pixels, plan.chance)
            rows, chance = plan.rows[: len(seen)], plan.chance.at(slice(len(seen)))
            labels, views = self.labels[rows], self.views and Views(*(values[rows] for values in self.views))
            views = views and as_seen(views, chance.angle, chance.mirrored)
            size = len(range(self.batch)[self.share])
            for start in range(skipped * size, len(seen), size):
                part = slice(start, start + size)
                seen_from = views and Views(*(values[part] for values in views))
                if self.mixup:
                    images, mixed = mix_up(seen[part], labels[part], chance.grain[part], self.mixup)
                    yield Batch(images, labels[part], seen_from, mixed)
                else:
                    yield Batch(seen[part], labels[part], seen_from)
            skipped = 0

    def _plans(self, numbers: range) -> Iterator[Plan]:
        for first in range(numbers.start, numbers.stop, self.together):
            starts = [number * self.batch for number in numbers[first - numbers.start :][: self.together]]
            yield self._between([(start + self.share.start, start + self.share.stop) for start in starts])

    def _between(self, spans: Sequence[tuple[int, int]]) -> Plan:
        """The places of the stream in all spans, from starts up to stops; behind them, those that they are patched
        with."""
        pieces: list[list[Plan]] = []
        for start, stop in merged(spans):
            while start < stop:
                epoch, place = divmod(start, self.count)
                until = min(place + stop - start, self.count)
                piece = slice(place, until)
                pieces.append([Plan(w.numbers[piece], w.rows[piece], w.chance.at(piece)) for w in self._pass(epoch)])
                start += until - place
        in_turn = [plan for plans in zip(*pieces, strict=True) for plan in plans]
        return in_turn[0] if len(in_turn) == 1 else joined(in_turn)

    def _pass(self, epoch: int) -> list[Plan]:
        """All images in the order of one epoch; and, if patches are wanted, the others that they come from."""
        if epoch not in self._held:
            order = epoch_order(self.count, self.seed, epoch)
            chance = self._chance(epoch_generator(self.seed, epoch, CHANCE))
            plans = [Plan(order, order.to(self.device), chance)]
            if self._groups is not None:
                generator = torch.Generator().manual_seed(mix(mix(self.seed, 2 * epoch + CHANCE), OTHERS))
                others = others_of_group(self._groups, generator)[order]
                chance = chance if self.pipeline.patch_from == "viewpoint" else self._chance(generator)
                plans.append(Plan(others, others.to(self.device), chance))
            self._held = {number: kept for number, kept in self._held.items() if number == epoch - 1}
            self._held[epoch] = plans
        return self._held[epoch]

    def _chance(self, generator: torch.Generator) -> Draws:
        return draws(self.pipeline, self.count, self.size, generator).to(self.device)


def merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same places, spans that follow each other as one."""
    found = [spans[0]]
    for start, stop in spans[1:]:
        if start == found[-1][1]:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def joined(pieces: list[Plan]) -> Plan:
    """One plan after the other."""
    columns = zip(*(piece.chance for piece in pieces), strict=True)
    return Plan(
        torch.cat([piece.numbers for piece in pieces]),
        torch.cat([piece.rows for piece in pieces]),
        Draws(*(torch.cat(column) for column in columns)),
    )


def batches_together(batch: int, pipeline: Pipeline, images: ImageSet, device: torch.device) -> int:
    """How many batches to make at once: on a CPU one, as nothing is gained."""
    if device.type == "cpu":
        return 1
    height, width = pipeline.seen(images.size)
    return max(1, min(TOGETHER, LARGEST_GROUP // (4 * batch * images.channels * height * width)))


def check_batch(batch: int, images: int) -> None:
    """Raises unless a batch of that size can be taken from so many images."""
    if not 1 <= batch <= images:
        raise QuatcapsError(f"a batch of {batch} from {images} training images: choose 1 to {images}")


def evaluation_batches(
    images: ImageSet, batch: int, pipeline: Pipeline, device: torch.device
) -> Iterator[list[Tensor]]:
    """All images once, in order: every view that the pipeline has of some of them, the middle alone or several
    windows."""
    pipeline.check(images.channels, images.size)
    for start in range(0, len(images), batch):
        yield views_for_evaluation(pipeline, images.at(slice(start, start + batch)).to(device))

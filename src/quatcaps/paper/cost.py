"""How long the runs that are left will take, by the runs that there are.

A run's time is the images that it sees times the seconds that its network needs for one. Both are read from records:
the images of an experiment from any run of it, the seconds from the runs of the same network on that dataset, or, where
it has none, from those of all networks there.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quatcaps.paper.collection import Entry
from quatcaps.paper.work import DONE, Job, Place, state
from quatcaps.training.config import TrainingConfig

Network = tuple[str, str, int]
Images = tuple[str, str, str, str, float, str]


class Told(NamedTuple):
    """The minutes of a run's training. guessed: by other networks."""

    minutes: float
    guessed: bool


@dataclass(frozen=True)
class Cost:
    """Of runs that are left: the minutes of those that can be told, how many of them by other networks' times, and how
    many cannot."""

    left: int
    minutes: float = 0.0
    guessed: int = 0
    untold: int = 0

    def __str__(self) -> str:
        words = f"{self.left} {'run' if self.left == 1 else 'runs'} left"
        if self.left > self.untold:
            words += f", about {self.minutes:,.0f} min of training one after the other by the times on record"
            words += f" ({self.guessed} of them by those of other networks)" if self.guessed else ""
        if self.untold:
            words += f"; {self.untold} of which no record tells the time"
        return words


def network_of(config: TrainingConfig) -> Network:
    """What decides the time for one image."""
    return config.model, json.dumps(config.model_settings, sort_keys=True), config.batch


def images_of(config: TrainingConfig) -> Images:
    """What decides how many images an epoch has."""
    protocol = config.protocol if config.viewpoints != "all" else ""
    held_out = (config.validation, config.validation_by if config.validation else "")
    return config.dataset, config.stereo_views, config.viewpoints, protocol, *held_out


def whole_of(config: TrainingConfig) -> TrainingConfig:
    """With nothing held out."""
    return config.changed({"validation": 0.0, "test": True, "keep_best": False, "patience": 0})


class Times:
    """What the records of any table tell."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        seconds: dict[tuple[str, Network], list[float]] = {}
        self.images: dict[Images, float] = {}
        for entry in entries:
            for record in entry.records:
                seen = record.last.get("step", 0) * record.config.batch
                if seen:
                    place = (record.config.dataset, network_of(record.config))
                    seconds.setdefault(place, []).append(record.seconds / seen)
                    self.images[images_of(record.config)] = seen / record.config.epochs
        self.seconds = {place: statistics.median(found) for place, found in seconds.items()}

    def of_run(self, config: TrainingConfig) -> Told | None:
        """The time of one run; None where no record tells."""
        known = self.seconds.get((config.dataset, network_of(config)))
        others = [seconds for (dataset, _), seconds in self.seconds.items() if dataset == config.dataset]
        images = self.images.get(images_of(config))
        if images is None and (whole := self.images.get(images_of(whole_of(config)))):
            images = (1 - config.validation) * whole
        if images is None or not others:
            return None
        for_one = statistics.median(others) if known is None else known
        return Told(for_one * images * config.epochs / 60, known is None)


def cost_of(jobs: Sequence[Job], place: Place, times: Times) -> Cost:
    """Of the jobs that are not done."""
    left = [job for job in jobs if state(job, place) != DONE]
    told = [found for job in left if (found := times.of_run(job.row.config(job.seed))) is not None]
    guessed = sum(each.guessed for each in told)
    return Cost(len(left), sum(each.minutes for each in told), guessed, len(left) - len(told))

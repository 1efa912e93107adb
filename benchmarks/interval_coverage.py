"""How often intervals of `quatcaps reproduce evidence` cover the truth: simulated seeds and toys.

    python benchmarks/interval_coverage.py [--trials 1000] [--output benchmarks/results/interval-coverage.json]
    python benchmarks/interval_coverage.py --as-drawn --output benchmarks/results/interval-coverage-as-drawn.json

Draws errors of two systems on 25 toys of five classes, for three, five and ten seeds, and counts how often the 95%
intervals of a mean and of a difference have the true value in them. Errors deviate by seed, by toy (both systems find
the same toys hard, and each some others), and by cell: what a seed does on a toy that neither tells alone. Where a few
toys make most errors, they are those of a beta distribution, and where all or none of a toy's images are misclassified
nothing else deviates. Where images show no toys, each has a chance to be misclassified, of which both systems share one
part; easy images, as digits are, have nearly none. --as-drawn: what changes with seed and toy at once counts three
times, as resampling both has it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quatcaps.console import standard_output
from quatcaps.files import write_json
from quatcaps.paper import evidence_statistics
from quatcaps.paper.evidence_statistics import Estimate, Numbers, Sample, difference_of, mean_of
from quatcaps.report.tables import Table

TOYS = tuple(f"{name} {number}" for name in ("animal", "human", "airplane", "truck", "car") for number in range(5))
IMAGES = np.full(len(TOYS), 648.0)
MEAN = 20.0
"""Of all errors, in %."""
BETA = (0.3, 1.2)
"""A mean of 20%; a toy in four has less than 0.5%, one in ten more than 60."""
RESULTS = Path(__file__).parent / "results/interval-coverage.json"


@dataclass(frozen=True)
class Chance:
    """Deviations in points. toys: of both systems alike; own: of each; few: a few toys make most errors."""

    seeds: float
    toys: float
    own: float
    cells: float
    few: bool = False
    mean: float = MEAN

    def drawn(self, seeds: int, random: np.random.Generator) -> tuple[Sample, Sample]:
        """The errors of two systems that are equally good."""
        count = len(TOYS)
        hard = 100 * random.beta(*BETA, count) if self.few else MEAN + random.normal(0, self.toys, count)
        room = np.sqrt(hard * (100 - hard) / (MEAN * (100 - MEAN))) if self.few else np.ones(count)
        systems = []
        for _ in range(2):
            own = random.normal(0, self.own, count)
            cells = random.normal(0, self.cells, (seeds, count))
            by_seed = random.normal(0, self.seeds, (seeds, 1))
            systems.append(Sample((hard + room * (own + cells + by_seed)) / 100 * IMAGES, IMAGES, TOYS))
        return systems[0], systems[1]


@dataclass(frozen=True)
class OfImages:
    """Chances between 0.3 and 0.7 that both systems share, more or less `own` and `seeds`."""

    own: float
    seeds: float
    images: int = 1000
    mean: float = 42.0

    def drawn(self, seeds: int, random: np.random.Generator) -> tuple[Sample, Sample]:
        """The errors of two systems that are equally good."""
        hard = self.shared(random)
        systems = []
        for _ in range(2):
            chances = self.changed(hard, random.uniform(-self.own, self.own, self.images))
            by_seed = self.changed(chances, random.uniform(-self.seeds, self.seeds, (seeds, 1)))
            wrong = random.random((seeds, self.images)) < by_seed
            systems.append(Sample(wrong.astype(float), np.ones(self.images), ("images",), by_image=True))
        return systems[0], systems[1]

    def shared(self, random: np.random.Generator) -> Numbers:
        return 0.3 + 0.4 * random.beta(0.3, 0.7, self.images)

    def changed(self, chances: Numbers, by: Numbers) -> Numbers:
        return chances + by


@dataclass(frozen=True)
class OfEasyImages(OfImages):
    """As digits are: nearly all chances are nearly 0, a few up to one half, more or less a part of themselves."""

    images: int = 10_000
    mean: float = 50 * 0.01 / 1.01

    def shared(self, random: np.random.Generator) -> Numbers:
        return 0.5 * random.beta(0.01, 1, self.images)

    def changed(self, chances: Numbers, by: Numbers) -> Numbers:
        return chances * (1 + by)


WORLDS: Mapping[str, Chance | OfImages] = {
    "mostly seeds": Chance(2.0, 2.0, 0.5, 0.5),
    "mostly toys": Chance(0.5, 10.0, 3.0, 1.0),
    "mostly cells": Chance(1.0, 10.0, 0.0, 5.0),
    "all alike": Chance(1.0, 10.0, 2.0, 5.0),
    "a few toys": Chance(1.0, 0.0, 2.0, 5.0, few=True),
    "images, mostly seeds": OfImages(0.02, 0.04),
    "images, mostly cells": OfImages(0.02, 0.005),
    "images, all alike": OfImages(0.28, 0.02),
    "easy images": OfEasyImages(0.5, 0.1),
}
SEEDS = (3, 5, 10)


def measured(number: int, world: Chance | OfImages, seeds: int, trials: int) -> dict[str, Any]:
    """Of `trials` worlds: how often intervals cover, in %, and half of their width in points."""
    random = np.random.default_rng([number, seeds])
    means, differences = list[Estimate](), list[Estimate]()
    for _ in range(trials):
        first, second = world.drawn(seeds, random)
        means.append(mean_of(first))
        differences.append(difference_of(first, second))
    of_both = (("mean", means, world.mean), ("difference", differences, 0.0))
    return {
        "seeds": seeds,
        **{
            name: {"covered_percent": covered(found, truth), "half_width": half_width(found)}
            for name, found, truth in of_both
        },
    }


def covered(found: Sequence[Estimate], truth: float) -> float:
    inside = [each.low <= truth <= each.high for each in found if each.low is not None and each.high is not None]
    return round(100 * statistics.fmean(inside), 1)


def half_width(found: Sequence[Estimate]) -> float:
    widths = [each.high - each.low for each in found if each.low is not None and each.high is not None]
    return round(statistics.fmean(widths) / 2, 3)


def table_of(value: Mapping[str, Any]) -> Table:
    rows = []
    for name, found in value["worlds"].items():
        for each in found:
            cells = (each[of][key] for of in ("mean", "difference") for key in ("covered_percent", "half_width"))
            rows.append((name, str(each["seeds"]), *(f"{cell:g}" for cell in cells)))
    columns = ("chance", "seeds", "means covered (%)", "± mean", "differences covered (%)", "± difference")
    return Table(f"95% intervals in {value['trials']:,} simulated worlds", columns, tuple(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--as-drawn", action="store_true")
    options = parser.parse_args()
    if options.as_drawn:
        evidence_statistics.variance_of_cells = lambda sample: 0.0  # none of it is taken away again
    worlds = {
        name: [measured(number, world, seeds, options.trials) for seeds in SEEDS]
        for number, (name, world) in enumerate(WORLDS.items())
    }
    value = {"trials": options.trials, "worlds": worlds}
    write_json(options.output, value)
    console = standard_output()
    console.print(table_of(value).rich(console.width))


if __name__ == "__main__":
    main()

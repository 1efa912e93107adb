"""Means and differences of errors with intervals of 95%, over seeds and toys (a two-level bootstrap) or images.

Errors have two sources of chance: another seed trains another network, and other toys of the same classes are easier or
harder. The seeds and toys of a table are crossed: every seed is measured on every toy. So a resample draws seeds and,
independently, toys of each class, and takes the error over what it drew.

Four details:

- Of n seeds it draws n − 1, with replacement, and of the n toys of a class n − 1: then the variance of the resampled
  mean is s²/n. Drawing n would give (n − 1)/n of that: a tenth too narrow an interval with five toys a class.
- What changes with seed and toy at once is counted three times by such draws: with the seeds, with the toys, and with
  both (A. B. Owen, The pigeonhole bootstrap, 2007). Two of these are taken away again. Most of a paired difference is
  such, and its interval would be a fifth too wide.
- The interval is the mean ± t deviations of the resampled means, with Student's t: of seeds alone it is Student's
  interval, and Welch's of a difference. Its degrees of freedom are those of the seeds and of the toys within their
  classes, by how much each varies (Welch and Satterthwaite). Quantiles of the resamples would be too near: those of
  three seeds never leave their range, and cover the truth in 75% of cases.
- The difference of two systems is paired by toy: both are measured on the toys that a resample draws. Seeds are drawn
  for each by itself: networks of the same seed see images in the same order, and have nothing else in common. Should
  that make them alike, the interval is too wide, not too narrow.

Images that show no toys are crossed with seeds in the same way, and so many that nothing need be resampled: the
variance of a mean is S²/n over the means of n seeds, plus s²/m over the means of m images, less what changes with both
at once, which both of these count (J. Cornfield and J. W. Tukey, 1956).

`benchmarks/interval_coverage.py` simulates how often intervals cover the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quatcaps.paper.record import RunRecord
from quatcaps.report.intervals import FEWEST, chance, quantile

RESAMPLES = 10_000
SEED = 30
"""Of all resampling. The raw bits of PCG64 are the same in every version of NumPy, and so are tables."""
TOYS = 0
"""A stream of chance of its own; those of the seeds of samples are 1, 2, …"""
ROUNDING = 1e-9
"""In points: what is smaller comes from rounding, not from errors."""
WHOLE = "all images"
"""Where images show no toys and nobody knows which ones were misclassified, all of them count as one."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """The errors of one system, seed by seed and toy by toy, or `by_image`."""

    errors: Numbers  # (seeds, toys or images), counts
    images: Numbers  # (toys or images,), counts
    toys: tuple[str, ...]  # as `class number`; by image the digest of all; of seeds alone `WHOLE`
    by_image: bool = False

    @property
    def percents(self) -> Numbers:
        """(seeds,): the error over all images."""
        return 100 * self.errors.sum(1) / self.images.sum()

    @property
    def seeds_alone(self) -> bool:
        return self.toys == (WHOLE,)

    @property
    def has_toys(self) -> bool:
        return not (self.seeds_alone or self.by_image)

    @property
    def classes(self) -> NDArray[np.intp]:
        """(toys or images,): numbers of the classes within which they are drawn."""
        if self.by_image:
            return np.zeros(len(self.images), dtype=np.intp)
        names = [class_of(toy) for toy in self.toys]
        return np.array([names.index(name) for name in names], dtype=np.intp)


@dataclass(frozen=True)
class Estimate:
    """A mean in %, or a difference in percentage points, with its interval where seeds are enough and differ. chance:
    that a mean of 0 would be so far from it, as Student's t has it. seeds_alone: the interval says nothing of other
    toys or images."""

    mean: float
    low: float | None
    high: float | None
    toys: int = 0
    chance: float = 1.0
    seeds_alone: bool = False

    @property
    def sign(self) -> int:
        """1 or −1 where the interval lies above or below 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


def sample_of(records: Sequence[RunRecord], name: str) -> Sample | None:
    """The errors of some seeds on `test` or `novel` images; None where there are none.

    Toys count where every record has the same ones, and single images where every record says which were misclassified.
    Records that say neither are left out where enough others do: with one of them all would be compared by seeds alone,
    which are far too sure of themselves.
    """
    records = [record for record in records if name in record.final]
    if not records:
        return None
    telling = [record for record in records if record.tells(name)]
    records = telling if len(telling) >= FEWEST else records
    by_toy = [record.by_toy.get(name, {}) for record in records]
    images = [{toy: rate.images for toy, rate in found.items()} for found in by_toy]
    if not images[0] or any(each != images[0] for each in images):
        return sample_by_image(records, name) or of_percents([record.final[name].percent for record in records])
    toys = tuple(images[0])
    counts = [[found[toy].errors for toy in toys] for found in by_toy]
    return Sample(np.array(counts, dtype=float), np.array([images[0][toy] for toy in toys], dtype=float), toys)


def sample_by_image(records: Sequence[RunRecord], name: str) -> Sample | None:
    """The same image by image; None unless every record has that, of the same images."""
    (digest, count), *others = {(record.digests.get(name, ""), record.final[name].images) for record in records}
    if others or not all(record.tells(name) for record in records):
        return None
    errors = np.zeros((len(records), count))
    for row, record in zip(errors, records, strict=True):
        row[list(record.missed.get(name, ()))] = 1
    return Sample(errors, np.ones(count), (digest,), by_image=True)


def of_percents(percents: Sequence[float]) -> Sample:
    """Errors in % of seeds alone."""
    return Sample(np.array(percents, dtype=float)[:, None] / 100, np.ones(1), (WHOLE,))


def mean_of(sample: Sample) -> Estimate:
    """The mean error over seeds, in %."""
    found = estimate((sample,))
    return found if found.low is None else replace(found, low=max(0.0, found.low))


def difference_of(first: Sample, second: Sample) -> Estimate:
    """The mean of the first less that of the second, in percentage points; paired by toy where both have the same."""
    return difference_of_means([first], [second])


def difference_of_means(ones: Sequence[Sample], others: Sequence[Sample]) -> Estimate:
    """The same of one system's mean over several experiments less another's. Toys are drawn once for all experiments,
    where all show the same; seeds for each by itself, as their networks are others."""
    samples = (*ones, *others)
    if not all(each.toys == ones[0].toys and np.array_equal(each.images, ones[0].images) for each in samples):
        samples = tuple(of_percents(each.percents.tolist()) for each in samples)
    return estimate(samples, (*[1 / len(ones)] * len(ones), *[-1 / len(others)] * len(others)))


def estimate(samples: Sequence[Sample], weights: Sequence[float] = (1.0,)) -> Estimate:
    """Of the sum of their means times these weights; no interval where one has fewer than `FEWEST` seeds, or where all
    happen to have as many errors, of which nothing follows."""
    weighted = tuple(zip(weights, samples, strict=True))
    mean = sum(weight * float(each.percents.mean()) for weight, each in weighted)
    mean = 0.0 if abs(mean) < ROUNDING else mean
    seeds, classes = [len(each.errors) for each in samples], samples[0].classes
    unsure = Estimate(mean, None, None, len(classes) if samples[0].has_toys else 0, seeds_alone=samples[0].seeds_alone)
    if min(seeds) < FEWEST:
        return unsure
    cells = sum(weight**2 * variance_of_cells(each) for weight, each in weighted)
    of_seeds = [weight**2 * float(each.percents.var(ddof=1)) / len(each.errors) for weight, each in weighted]
    if samples[0].by_image:
        of_toys = max(0.0, variance_of_images(weighted) - cells)
        variance = sum(of_seeds) + of_toys
    else:
        of_both, of_toys_and_cells = resampled_variances(weighted)
        of_toys = max(0.0, of_toys_and_cells - cells)
        variance = max(of_both - 2 * cells, sum(of_seeds))
    if variance <= ROUNDING**2:
        return unsure
    freedoms = [*(seed - 1 for seed in seeds), len(classes) - len(np.unique(classes))]
    deviation, free = math.sqrt(variance), freedom([*of_seeds, of_toys], freedoms)
    half = quantile(free) * deviation
    return replace(unsure, low=mean - half, high=mean + half, chance=chance(mean / deviation, free))


def resampled_variances(weighted: Sequence[tuple[float, Sample]]) -> tuple[float, float]:
    """Of the sum of some weighted means, in points²: drawing seeds and toys, and toys alone."""
    toys = toy_weights(weighted[0][1].toys)
    drawn = sum(
        weight * resampled(each, seed_weights(len(each.errors), stream), toys)
        for stream, (weight, each) in enumerate(weighted, 1)
    )
    by_toy = sum(weight * resampled(each, np.ones((1, len(each.errors))), toys) for weight, each in weighted)
    return float(np.var(drawn)), float(np.var(by_toy))


def variance_of_images(weighted: Sequence[tuple[float, Sample]]) -> float:
    """Of the sum of some weighted means, in points², by which images there are: s²/m of what each of m images adds."""
    by_image: Numbers = sum((weight * 100 * each.errors.mean(0) for weight, each in weighted), np.zeros(1))
    return float(by_image.var(ddof=1)) / len(by_image)


def variance_of_cells(sample: Sample) -> float:
    """Of the mean over seeds, in points², by what changes with seed and toy at once: what seeds and the toys of a
    class, added up, leave unexplained."""
    parts, seeds = 100 * sample.errors / sample.images.sum(), len(sample.errors)
    classes, variance = sample.classes, 0.0
    for number in np.unique(classes):
        cells = parts[:, classes == number]
        toys = cells.shape[1]
        if toys > 1:
            left = cells - cells.mean(0) - cells.mean(1, keepdims=True) + cells.mean()
            variance += toys / seeds * float((left**2).sum()) / ((seeds - 1) * (toys - 1))
    return variance


def freedom(variances: Sequence[float], freedoms: Sequence[int]) -> int:
    """The degrees of freedom of a sum of independent variances, by Welch and Satterthwaite, rounded down.

    >>> freedom([2.0], [9]), freedom([1.0, 1.0], [9, 9]), freedom([0.0, 3.0], [9, 20])
    (9, 18, 20)
    """
    known = [(variance, each) for variance, each in zip(variances, freedoms, strict=True) if variance > 0 and each]
    if not known:
        return min(each for each in freedoms if each)
    total = sum(variance for variance, _ in known)
    return int(total**2 / sum(variance**2 / each for variance, each in known) + 1e-9)


def resampled(sample: Sample, seeds: Numbers, toys: Numbers) -> Numbers:
    """(resamples,): the error in % under weights of seeds (resamples, seeds) and of toys (resamples, toys)."""
    errors = ((seeds @ sample.errors) * toys).sum(1)
    return 100 * errors / (seeds.sum(1) * (toys @ sample.images))


@lru_cache(maxsize=32)
def seed_weights(count: int, stream: int) -> Numbers:
    """(resamples, count): how often each seed was drawn."""
    return drawn_counts(count, np.random.PCG64([SEED, stream]))


def class_of(toy: str) -> str:
    """
    >>> class_of("toy car 3")
    'toy car'
    """
    return toy.rsplit(" ", 1)[0]


@lru_cache(maxsize=4)
def toy_weights(toys: tuple[str, ...]) -> Numbers:
    """(resamples, toys): how often each toy was drawn; the toys of a class are drawn among themselves, so that every
    class keeps its share."""
    classes = [class_of(toy) for toy in toys]
    bits, weights = np.random.PCG64([SEED, TOYS]), np.zeros((RESAMPLES, len(toys)))
    for name in dict.fromkeys(classes):
        members = [index for index, each in enumerate(classes) if each == name]
        share = len(members) / max(1, len(members) - 1)
        weights[:, members] = share * drawn_counts(len(members), bits)
    return weights


def drawn_counts(count: int, bits: np.random.PCG64) -> Numbers:
    """(resamples, count): how often each of `count` things was drawn, in one draw fewer, but at least one."""
    draws = max(1, count - 1)
    chosen = (np.asarray(bits.random_raw(RESAMPLES * draws)) % np.uint64(count)).astype(np.int64)
    places = chosen + count * np.repeat(np.arange(RESAMPLES), draws)
    return np.bincount(places, minlength=RESAMPLES * count).reshape(RESAMPLES, count).astype(float)

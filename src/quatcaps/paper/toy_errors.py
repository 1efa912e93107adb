"""Settings compared on held-out toys: the mean over all of them, and over those that are not hopeless."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence

from quatcaps.paper.collection import Entry
from quatcaps.paper.comparison import Difference, error_of_mean
from quatcaps.paper.record import RunRecord

REFERENCE = "ablation/best"
"""What the others are compared with."""
HARDEST = 5
"""So many toys are set aside: whole toys that every setting takes for another class drown what settings differ in."""


def by_toy(entry: Entry) -> dict[str, float]:
    """The error on each held-out toy in %, the mean over the seeds that held it out."""
    return _means(entry.records)


def by_fold(entry: Entry) -> dict[int, dict[str, float]]:
    """The same by fold, which is what the data seed holds out; several seeds of one fold are one fold."""
    folds = dict.fromkeys(record.config.data_seed for record in entry.records)
    return {fold: _means([record for record in entry.records if record.config.data_seed == fold]) for fold in folds}


def _means(records: Iterable[RunRecord]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for record in records:
        for toy, rate in record.toys.items():
            found.setdefault(toy, []).append(rate.percent)
    return {toy: statistics.mean(errors) for toy, errors in found.items()}


def hardest(entries: Sequence[Entry]) -> list[str]:
    """The toys with the largest errors over all settings, the hardest first."""
    found: dict[str, list[float]] = {}
    for entry in entries:
        for toy, error in by_toy(entry).items():
            found.setdefault(toy, []).append(error)
    return sorted(found, key=lambda toy: (-statistics.mean(found[toy]), toy))[:HARDEST]


def complete(entries: Sequence[Entry]) -> list[Entry]:
    """Those that were measured on every toy that any was measured on: only their means can be compared."""
    every = {toy for entry in entries for toy in by_toy(entry)}
    return [entry for entry in entries if entry.records and by_toy(entry).keys() == every]


def against_best(entry: Entry, entries: Sequence[Entry]) -> Difference | None:
    """How much larger the error is than that of `REFERENCE`, on the toys that both were measured on.

    Toys of one fold were held out of the same run, and its luck is common to them: the standard error is that of the
    folds' mean differences, s / √folds, not that of single toys.
    """
    best = next((each for each in entries if each.row.key == REFERENCE), None)
    if best is None or entry.row.key == REFERENCE:
        return None
    reference, found = by_fold(best), by_fold(entry)
    differing = [
        [error - reference[fold][toy] for toy, error in toys.items() if toy in reference[fold]]
        for fold, toys in found.items()
        if fold in reference
    ]
    means = [statistics.mean(of_fold) for of_fold in differing if of_fold]
    if not means:
        return None
    return Difference(statistics.mean(each for of_fold in differing for each in of_fold), error_of_mean(means))


def fold_errors(entry: Entry, without: Collection[str] = ()) -> list[float]:
    """The mean error over the toys that each run held out, in %; runs of which no toy is left are passed over."""
    return [
        statistics.mean(left)
        for record in entry.records
        if (left := [rate.percent for toy, rate in record.toys.items() if toy not in without])
    ]


def mean_error(entry: Entry, without: Collection[str] = ()) -> float | None:
    """The mean error over all held-out toys, in %."""
    left = [error for toy, error in by_toy(entry).items() if toy not in without]
    return statistics.mean(left) if left else None

"""The learning rate of every system of `evidence`, chosen on held-out images: what is tried, and what was chosen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    from quatcaps.paper.collection import Entry

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Of a system's default rate. Neighbours of the best are tried until it has been held against both."""
CHOSEN: Mapping[str, float] = {
    "azimuth-strict/qcn/best": 8.0,
    "azimuth-strict/qcn-rotor": 1.0,
    "azimuth-strict/resnet-153k": 4.0,
    "azimuth-strict/resnet-272k": 4.0,
    "azimuth-strict/cnn": 1.0,
    "azimuth-strict/em": 0.5,
    "azimuth-pooled/qcn/best": 0.5,
    "azimuth-pooled/qcn-rotor": 1.0,
    "azimuth-pooled/resnet-153k": 16.0,
    "azimuth-pooled/resnet-272k": 2.0,
    "azimuth-pooled/cnn": 0.5,
    "cifar10/qcn/best": 1.0,
    "cifar10/qcn-rotor": 1.0,
    "cifar10/resnet-153k": 4.0,
    "cifar10/resnet-272k": 8.0,
    "cifar10/cnn": 0.5,
}
"""The factor by `EXPERIMENT/SYSTEM`: the one that `choice` finds in the records of
`runs/rates-EXPERIMENT/SYSTEM/`. A system that is not listed has its default rate, and no search has chosen
it."""
DEFAULT = "default"
"""In the place of an experiment whose rates another one has: every system has its default."""
SHARED: Mapping[str, str] = {
    **dict.fromkeys(("elevation-strict", "elevation-pooled", "smallnorb"), "azimuth-strict"),
    **dict.fromkeys(("azimuth-long", "elevation-long"), "azimuth-strict"),
    **dict.fromkeys(("mnist", "fashionmnist", "svhn"), "cifar10"),
    **dict.fromkeys(("azimuth-default", "elevation-default"), DEFAULT),
}
"""Experiments that have the rates of another one: their recipes differ in augmentation and epochs alone, and the rate
of `best` was chosen on CIFAR-10 too. And those that ask what the default rate does."""
WHOLE, BEGUN_WITH = "qcn/best", "-pretrained"
"""QCN without one of its parts, such as `qcn/free`, has the rate of the whole; a system that is pretrained, that of the
same without."""


def factor(experiment: str, system: str) -> float:
    """What a system's default rate is multiplied by in an experiment."""
    searched = WHOLE if system.startswith("qcn/") else system.removesuffix(BEGUN_WITH)
    return CHOSEN.get(f"{SHARED.get(experiment, experiment)}/{searched}", 1.0)


def rate_name(factor: float) -> str:
    """The last part of a search row's key.

    >>> rate_name(0.5), rate_name(4.0)
    ('x0.5', 'x4')
    """
    return f"x{factor:g}"


def held_out_error(entry: Entry) -> float | None:
    """The mean error on held-out images over a search row's folds, in %; None while a fold is missing."""
    errors = entry.errors("validation")
    return statistics.fmean(errors) if len(errors) >= entry.row.wanted else None


def held_out_errors(searched: Sequence[Entry]) -> list[float | None]:
    """The errors of one system in one experiment, in the order of `FACTORS`."""
    errors = {entry.row.key.rsplit("/", 1)[1]: held_out_error(entry) for entry in searched}
    return [errors.get(rate_name(factor)) for factor in FACTORS]


def standard_error(searched: Sequence[Entry]) -> float | None:
    """Of the mean errors of one system in one experiment, in points: what folds and rates, added up, leave unexplained
    of its errors by fold and rate. None where there are not two of both."""
    complete = [entry for entry in searched if held_out_error(entry) is not None]
    folds = len(complete[0].row.folds) if complete else 0
    if min(len(complete), folds) < 2:
        return None
    cells = numpy.array([[fold_error(entry, fold) for fold in range(folds)] for entry in complete])
    left = cells - cells.mean(0) - cells.mean(1, keepdims=True) + cells.mean()
    freedom = (len(complete) - 1) * (folds - 1)
    return math.sqrt(float((left**2).sum()) / freedom / folds)


def fold_error(entry: Entry, fold: int) -> float:
    """The mean over the runs that hold out the same toys: seeds go through the folds in turn."""
    runs = zip(entry.records, entry.errors("validation"), strict=True)
    return statistics.fmean(error for record, error in runs if record.seed % len(entry.row.folds) == fold)


def choice(searched: Sequence[Entry]) -> float | None:
    """The factor with the lowest held-out error, the smaller one of two; None while a neighbour of it, or a fold, is
    missing.

    searched: the rows of one system in one experiment.
    """
    errors = held_out_errors(searched)
    tried = [(error, place) for place, error in enumerate(errors) if error is not None]
    if not tried:
        return None
    _, best = min(tried)
    bracketed = all(error is not None for error in errors[max(0, best - 1) : best + 2])
    return FACTORS[best] if bracketed else None

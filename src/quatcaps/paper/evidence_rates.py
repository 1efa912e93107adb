"""The learning rate of every system of `evidence`, chosen on held-out images: what is tried, and what was chosen."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quatcaps.paper.collection import Entry

FACTORS = (0.5, 1.0, 2.0, 4.0)
"""Of a system's default rate; every one of them is tried."""
CHOSEN: Mapping[str, float] = {}
"""The factor by `EXPERIMENT/SYSTEM`: the one that `choice` finds in the records of
`runs/rates-EXPERIMENT/SYSTEM/`. A system that is not listed has its default rate, and no search has chosen
it."""
SHARED: Mapping[str, str] = dict.fromkeys(("elevation-strict", "elevation-pooled", "smallnorb"), "azimuth-strict")
"""Experiments that have the rates of another one: their recipes differ in augmentation and epochs alone."""
WHOLE = "qcn/best"
"""QCN without one of its parts, such as `qcn/free`, has the rate of the whole."""


def factor(experiment: str, system: str) -> float:
    """What a system's default rate is multiplied by in an experiment."""
    searched = WHOLE if system.startswith("qcn/") else system
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


def choice(searched: Sequence[Entry]) -> float | None:
    """The factor with the lowest held-out error, the smaller one of two; None while a rate or a fold is missing.

    searched: the rows of one system in one experiment, in the order of `FACTORS`.
    """
    errors = [held_out_error(entry) for entry in searched]
    known = [error for error in errors if error is not None]
    if len(known) < len(FACTORS):
        return None
    return FACTORS[known.index(min(known))]

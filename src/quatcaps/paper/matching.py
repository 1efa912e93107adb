"""Table I compares systems where they are equally good from familiar viewpoints: the moment in a run, and its errors.

The rule, strict protocol: the first epoch after which the error on familiar test images is at or below the reference;
the novel error is interpolated linearly between that epoch and the one before. The error swings from epoch to epoch, so
that "the first" is a choice; it is the one that never looks at the novel error. Pooled protocol: there are no familiar
test images; the first epoch whose training error is at or below the reference, as it is. A run that never comes so low
reports its lowest familiar (or training) error with the novel error of that epoch, and is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from quatcaps.errors import QuatcapsError
from quatcaps.training.log import Record

REFERENCES = {
    ("azimuth", "strict"): 3.7,
    ("elevation", "strict"): 4.3,
    ("azimuth", "pooled"): 3.7,
    ("elevation", "pooled"): 4.4,
}
"""Table I: the error in % at which systems are compared, by viewpoints and protocol."""


@dataclass(frozen=True)
class Match:
    """Errors in % at one moment of a run; `epoch` counts from 1. reached: the familiar error came to the reference."""

    familiar: float
    novel: float
    epoch: int
    reached: bool


def curve(epochs: Sequence[Record], familiar: str) -> list[Match]:
    """The errors after every epoch that has both; `familiar` names the one to match."""
    return [
        Match(100.0 * entry[familiar], 100.0 * entry["novel_error"], entry["epoch"] + 1, False)
        for entry in epochs
        if entry.get(familiar) is not None and entry.get("novel_error") is not None
    ]


def trend(points: Sequence[Match], parts: int = 8, fewest: int = 5) -> list[tuple[float, float]]:
    """How the novel error goes with the familiar one over the epochs of all runs: medians of neighbours by familiar
    error, in up to `parts` parts of as many epochs, none of fewer than `fewest`."""
    ordered = sorted(points, key=lambda point: point.familiar)
    count = min(parts, len(ordered) // fewest)
    cuts = [number * len(ordered) // count for number in range(count + 1)] if count else []
    groups = [ordered[start:stop] for start, stop in pairwise(cuts)]
    return [(median(p.familiar for p in group), median(p.novel for p in group)) for group in groups]


def match_familiar(epochs: Sequence[Record], reference: float) -> Match:
    """Strict protocol: where the familiar test error first crosses `reference` (in %).

    >>> before = {"epoch": 0, "test_error": 0.05, "novel_error": 0.12}
    >>> after = {"epoch": 1, "test_error": 0.03, "novel_error": 0.08}
    >>> match_familiar([before, after], 4.0)
    Match(familiar=4.0, novel=10.0, epoch=2, reached=True)
    """
    found = _measured(epochs, "test_error")
    for number, point in enumerate(found):
        if point.familiar > reference:
            continue
        if number == 0:
            return Match(point.familiar, point.novel, point.epoch, True)
        before = found[number - 1]
        way = (before.familiar - reference) / (before.familiar - point.familiar)
        return Match(reference, before.novel + way * (point.novel - before.novel), point.epoch, True)
    return min(found, key=lambda point: point.familiar)


def match_training(epochs: Sequence[Record], reference: float) -> Match:
    """Pooled protocol: the first epoch whose training error is at or below `reference` (in %)."""
    found = _measured(epochs, "error")
    for point in found:
        if point.familiar <= reference:
            return Match(point.familiar, point.novel, point.epoch, True)
    return min(found, key=lambda point: point.familiar)


def match(epochs: Sequence[Record], protocol: str, reference: float) -> Match:
    """The moment of a run at which it is compared."""
    return (match_training if protocol == "pooled" else match_familiar)(epochs, reference)


def _measured(epochs: Sequence[Record], familiar: str) -> list[Match]:
    found = curve(epochs, familiar)
    if not found:
        raise QuatcapsError(f"no epoch has a {familiar} and a novel_error: measure after every epoch")
    return found

"""`settings`, from entries to cells: novel errors on rendered toys and on smallNORB, and whether both rank alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quatcaps.paper.collection import Entry, columns, spread
from quatcaps.paper.setting_rows import DRAWS, RENDERED, SETTINGS, VIEWPOINTS, known_key
from quatcaps.paper.toy_errors import Difference
from quatcaps.report.tables import NOTHING, Table

REFERENCE = "rotors"
FEWEST = 3
"""Settings that a correlation of ranks needs."""
NOTES = (
    "Novel errors in % at the end of training under the strict protocol, mean ± deviation (number of runs). On "
    f"rendered toys every one of {DRAWS} runs draws toys of its own, five of each class to train on and five others to "
    "measure. On smallNORB runs differ in their seeds alone; QCN, rotors, ResNet and CNN have there what `evidence` "
    "has. Less rotors: the mean difference over both experiments, in points ± its standard error; runs that are "
    "compared have drawn the same toys.",
    "Rank correlation: Spearman's, of the mean errors of settings that were measured on both.",
)


@dataclass(frozen=True)
class Measured:
    """Novel errors of a setting in %, by viewpoints and by seed, on rendered toys and on smallNORB."""

    words: str
    rendered: Mapping[str, Mapping[int, float]]
    photographed: Mapping[str, Mapping[int, float]]


def measured(entries: Sequence[Entry]) -> dict[str, Measured]:
    """By setting, in their order; empty where nothing was run."""
    by_key = {entry.row.key: novel_errors(entry) for entry in entries}
    return {
        key: Measured(
            tried.words,
            {viewpoints: by_key.get(f"settings-{RENDERED}-{viewpoints}/{key}", {}) for viewpoints in VIEWPOINTS},
            {
                viewpoints: by_key.get(known_key(viewpoints, tried) or f"settings-{viewpoints}/{key}", {})
                for viewpoints in VIEWPOINTS
            },
        )
        for key, tried in SETTINGS.items()
    }


def novel_errors(entry: Entry) -> dict[int, float]:
    """In %, by seed."""
    return {record.seed: record.final["novel"].percent for record in entry.records if "novel" in record.final}


def of_both(rendered: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """The mean error over both experiments, by seed, of the seeds that both have."""
    first, second = (rendered[viewpoints] for viewpoints in VIEWPOINTS)
    return {seed: (first[seed] + second[seed]) / 2 for seed in first if seed in second}


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """What the first has more than the second with the same seeds, which draw the same toys: the mean, and its standard
    error."""
    differences = [first[seed] - second[seed] for seed in first if seed in second]
    return Difference(statistics.fmean(differences), _error_of(differences)) if differences else None


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """The same of runs that share nothing but what they are measured on."""
    if not first or not second:
        return None
    one, other = _error_of(list(first.values())), _error_of(list(second.values()))
    apart = None if one is None or other is None else math.hypot(one, other)
    return Difference(statistics.fmean(first.values()) - statistics.fmean(second.values()), apart)


def _error_of(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def setting_tables(entries: Sequence[Entry]) -> tuple[Table, ...]:
    """What was measured, and how well rendered toys foretell smallNORB."""
    found = measured(entries)
    return _errors(found), _agreement(found)


def _errors(found: Mapping[str, Measured]) -> Table:
    rotors = found[REFERENCE]
    rows = []
    for key, each in found.items():
        against = None if key == REFERENCE else paired(of_both(each.rendered), of_both(rotors.rendered))
        rendered = (spread(list(each.rendered[viewpoints].values())) for viewpoints in VIEWPOINTS)
        photographed = (spread(list(each.photographed[viewpoints].values())) for viewpoints in VIEWPOINTS)
        rows.append((each.words, *rendered, NOTHING if against is None else str(against), *photographed))
    names = (f"{where}, {viewpoints}s" for where in ("toys", "smallNORB") for viewpoints in VIEWPOINTS)
    first, second, third, fourth = names
    return Table("Novel error (%)", ("settings", first, second, "toys, less rotors", third, fourth), tuple(rows))


def _agreement(found: Mapping[str, Measured]) -> Table:
    rows = []
    for viewpoints in VIEWPOINTS:
        both = [(each.rendered[viewpoints], each.photographed[viewpoints]) for each in found.values()]
        pairs = [
            (statistics.fmean(first.values()), statistics.fmean(second.values()))
            for first, second in both
            if first and second
        ]
        correlation = rank_correlation(pairs)
        rows.append((f"{viewpoints}s", str(len(pairs)), NOTHING if correlation is None else f"{correlation:+.2f}"))
    return Table("Rendered toys and smallNORB", ("novel", "settings", "rank correlation"), tuple(rows))


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's; equal numbers share their mean rank. None of too few, or where all are equal.

    >>> rank_correlation([(1.0, 10.0), (2.0, 30.0), (3.0, 20.0)])
    0.5
    """
    if len(pairs) < FEWEST:
        return None
    first, second = (_ranks(values) for values in zip(*pairs, strict=True))
    if len(set(first)) == 1 or len(set(second)) == 1:
        return None
    return statistics.correlation(first, second)


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def setting_numbers(entries: Sequence[Entry]) -> Table:
    """For programs: a line for each row that has runs."""
    rows = [
        (entry.row.key, entry.row.system, entry.row.dataset, entry.row.viewpoints, *columns(entry.errors("novel")))
        for entry in entries
        if entry.records
    ]
    return Table("", ("key", "settings", "dataset", "viewpoints", "novel_error", "deviation", "runs"), tuple(rows))

"""`settings`, from entries to cells: novel errors on rendered toys and on smallNORB, and whether both rank alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import correlation as pearson
from statistics import fmean

from quatcaps.paper.collection import Entry, columns, spread
from quatcaps.paper.comparison import paired, unpaired
from quatcaps.paper.setting_rows import DRAWS, RENDERED, SETTINGS, SMALLNORB, TABLE, VIEWPOINTS, known_key
from quatcaps.report.tables import NOTHING, Table

REFERENCE = "rotors"
FEWEST = 3
"""Settings that a correlation of ranks needs."""
NOTES = (
    "Novel errors in % at the end of training under the strict protocol, mean ± deviation (number of runs). On "
    f"rendered toys every one of {DRAWS} runs draws toys of its own, five of each class to train on and five others to "
    "measure. On smallNORB runs differ in their seeds alone; QCN, rotors, ResNet and CNN have there what `evidence` "
    "has. Less rotors: the mean difference over both experiments, in points ± its standard error; runs that are "
    "compared have drawn the same toys. The last columns: the same on smallNORB, for each by itself.",
    "Rank correlation: Spearman's, of the mean errors of settings that were measured on both.",
)


BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Measured:
    """Novel errors of a setting in %, by dataset and viewpoints and by seed."""

    words: str
    errors: Mapping[tuple[str, str], BySeed]

    def has_runs(self, dataset: str) -> bool:
        return any(self.errors[dataset, viewpoints] for viewpoints in VIEWPOINTS)


def measured(entries: Sequence[Entry]) -> dict[str, Measured]:
    """By setting, in their order; empty where nothing was run."""
    by_key = {entry.row.key: novel_errors(entry) for entry in entries}
    found = {}
    for key, tried in SETTINGS.items():
        errors: dict[tuple[str, str], BySeed] = {}
        for viewpoints in VIEWPOINTS:
            there = known_key(viewpoints, tried) or f"{TABLE}-{viewpoints}/{key}"
            errors[RENDERED, viewpoints] = by_key.get(f"{TABLE}-{RENDERED}-{viewpoints}/{key}", {})
            errors[SMALLNORB, viewpoints] = by_key.get(there, {})
        found[key] = Measured(tried.words, errors)
    return found


def novel_errors(entry: Entry) -> dict[int, float]:
    """In %, by seed."""
    return {record.seed: record.final["novel"].percent for record in entry.records if "novel" in record.final}


def on_toys(setting: Measured) -> dict[int, float]:
    """The mean error over both experiments on rendered toys, by seed, of the seeds that both have."""
    first, second = (setting.errors[RENDERED, viewpoints] for viewpoints in VIEWPOINTS)
    return {seed: (first[seed] + second[seed]) / 2 for seed in first if seed in second}


def setting_tables(entries: Sequence[Entry]) -> tuple[Table, ...]:
    """What was measured, and how well rendered toys foretell smallNORB."""
    found = measured(entries)
    return _errors(found), _agreement(found)


def _errors(found: Mapping[str, Measured]) -> Table:
    rows = []
    for key, setting in found.items():
        against = None if key == REFERENCE else paired(on_toys(setting), on_toys(found[REFERENCE]))
        toys, smallnorb = (
            [spread(list(setting.errors[dataset, viewpoints].values())) for viewpoints in VIEWPOINTS]
            for dataset in (RENDERED, SMALLNORB)
        )
        apart = [less_rotors(found, key, viewpoints) for viewpoints in VIEWPOINTS]
        rows.append((setting.words, *toys, NOTHING if against is None else str(against), *smallnorb, *apart))
    names = [f"{where}, {viewpoints}s" for where in ("toys", "smallNORB") for viewpoints in VIEWPOINTS]
    less = (f"smallNORB {viewpoints}s, less rotors" for viewpoints in VIEWPOINTS)
    names = ["settings", *names[:2], "toys, less rotors", *names[2:], *less]
    return Table("Novel error (%)", tuple(names), tuple(rows))


def less_rotors(found: Mapping[str, Measured], key: str, viewpoints: str) -> str:
    """The difference on smallNORB."""
    mine, rotors = (found[each].errors[SMALLNORB, viewpoints] for each in (key, REFERENCE))
    apart = None if key == REFERENCE else unpaired(mine, rotors)
    return NOTHING if apart is None else str(apart)


def _agreement(found: Mapping[str, Measured]) -> Table:
    rows = []
    for viewpoints in VIEWPOINTS:
        both = [[each.errors[dataset, viewpoints] for dataset in (RENDERED, SMALLNORB)] for each in found.values()]
        means = [(fmean(first.values()), fmean(second.values())) for first, second in both if first and second]
        correlation = rank_correlation(means)
        rows.append((f"{viewpoints}s", str(len(means)), NOTHING if correlation is None else f"{correlation:+.2f}"))
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
    return pearson(first, second)


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

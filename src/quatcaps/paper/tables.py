"""The tables, from entries to cells: what was published beside what was measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quatcaps.paper.collection import LATE, Entry, columns, spread
from quatcaps.paper.evidence_lines import compared
from quatcaps.paper.evidence_tables import evidence_notes, evidence_numbers, evidence_tables
from quatcaps.paper.held_out import held_out_notes, held_out_numbers, held_out_table
from quatcaps.paper.matching import REFERENCES
from quatcaps.paper.pose_tables import NOTES, pose_numbers, pose_tables
from quatcaps.paper.row import Quoted, Row
from quatcaps.paper.rows import DATASETS, QUOTED, TABLES
from quatcaps.paper.setting_tables import NOTES as SETTINGS
from quatcaps.paper.setting_tables import setting_numbers, setting_tables
from quatcaps.paper.viewpoint_tables import MARKED, POOLED, STRICT, viewpoint_numbers, viewpoint_table
from quatcaps.report.tables import NOTHING, Table
from quatcaps.training.statistics import BATCHES

NAMES = {
    "smallnorb": "smallNORB",
    "mnist": "MNIST",
    "fashionmnist": "FashionMNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
}
SPREAD = (
    "Errors in %, those measured here as mean ± sample deviation (number of seeds). The test error is that of the last "
    "epoch; no epoch is chosen by it. `paper`: the paper's settings (VB has its authors' loss, rate and batches); "
    "`best`: others, with no more parameters, chosen on images held out of the training images, for smallNORB not on "
    "them alone (docs/reproduction.md); "
    "`control`: systems that the paper does not train, in Table II under what `best` has for the dataset."
)
LOWEST = (
    "Lowest epoch: the lowest of those at which all test images were measured. They choose it themselves, so it is no "
    "result; the paper's public code keeps its best epoch in this way."
)
PUBLIC_CODE = (
    "`public code`: network, loss, optimiser and batches of the public code of each system, as far as this library can "
    "have them (docs/models.md)."
)
CHOSEN = (
    "Chosen epoch: the test error of the epoch with the lowest error on validation images, in rows that hold some out "
    "of the training images and keep that checkpoint."
)
NEW_STATISTICS = (
    f"New statistics: the test error of the last epoch if means and variances of batch normalisation are those of "
    f"{BATCHES} more training batches, with the weights as they are, in place of running ones."
)
AVERAGED = (
    "Averaged weights: the test error at the end of a running average of the weights that lay beside the run and "
    "changed nothing of it. No test image chooses it."
)
LATE_EPOCHS = (
    f"Late epochs: the median of the last {LATE} measurements of all images, where there are as many; where the rate "
    "hardly falls, the last epoch alone is a draw."
)


@dataclass(frozen=True)
class Page:
    """A table, ready to write: what to say first, tables to read, those that hold a run, one for programs."""

    title: str
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    measured: tuple[Table, ...]
    numbers: Table


def page(name: str, entries: Sequence[Entry], *, quoted: bool = True) -> Page:
    """Table `name` of `TABLES`; without `quoted`, the numbers of other papers are left out."""
    shown = [entry for entry in entries if name in entry.row.tables and entry.shown]
    others = [each for each in QUOTED if each.table == name] if quoted else []
    title = TABLES[name]
    if name == "table1":
        by_experiment = {experiment: viewpoint_table(shown, others, *experiment) for experiment in REFERENCES}
        trained = {(entry.row.viewpoints, entry.row.protocol) for entry in shown if entry.records}
        return Page(
            title,
            (f"{SPREAD} {STRICT}", POOLED, f"{MARKED} {LATE_EPOCHS}"),
            tuple(by_experiment.values()),
            tuple(table for experiment, table in by_experiment.items() if experiment in trained),
            viewpoint_numbers(shown),
        )
    measured = any(entry.records for entry in shown)
    extra = tuple(each.note for each in extra_columns(shown))
    public = (PUBLIC_CODE,) if any(entry.row.recipe.startswith("public code") for entry in shown) else ()
    notes = (" ".join((SPREAD, *public, LOWEST, *extra, LATE_EPOCHS)), *_windows(shown))
    if name == "table2":
        tables: tuple[Table, ...] = (_overview(shown, others), _details(shown))
        return Page(title, notes, tables, tables if measured else (), _numbers(shown))
    if name == "systems":
        tables = (_details(shown),)
        return Page(title, notes, tables, tables if measured else (), _numbers(shown))
    if name == "table3":
        tables = (_branching(shown),)
        return Page(title, notes, tables, tables if measured else (), _numbers(shown))
    if name == "poses":
        tables = pose_tables(shown)
        return Page(title, NOTES, tables, tables if measured else (), pose_numbers(shown))
    if name == "evidence":
        lines = compared(shown)
        tables = evidence_tables(lines, shown)
        return Page(title, evidence_notes(lines), tables, tables, evidence_numbers(lines))
    if name == "settings":
        tables = setting_tables(shown)
        return Page(title, SETTINGS, tables, tables if measured else (), setting_numbers(shown))
    tables = (held_out_table(shown),)
    return Page(title, held_out_notes(shown), tables, tables if measured else (), held_out_numbers(shown))


def _windows(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Which rows look at a test image more than once, if any do."""
    looked = {entry.row.key: {record.config.looked_at for record in entry.records} for entry in entries}
    several = [f"{key} ({each})" for key, found in looked.items() for each in sorted(found) if each]
    if not several:
        return ()
    return (
        "Mean activations of several looks at a test image name its class in "
        f"{', '.join(several)}; in every other row one does.",
    )


def _overview(entries: Sequence[Entry], others: Sequence[Quoted]) -> Table:
    """Systems down, datasets across, as in the paper."""
    lines: dict[str, dict[str, str]] = {}
    for system in dict.fromkeys(entry.row.system for entry in entries):
        rows = [entry for entry in entries if entry.row.system == system]
        for entry in rows:
            if entry.row.published is not None:
                label = f"{system}, published ({entry.row.published.source})"
                lines.setdefault(label, {})[entry.row.dataset] = _error(entry.row)
        for entry in rows:
            if entry.row.default or entry.records:
                label = f"{system}, here, {entry.row.recipe}"
                lines.setdefault(label, {})[entry.row.dataset] = spread(entry.errors("test"))
    for each in others:
        label = f"{each.system}, published ({each.published.source})"
        lines.setdefault(label, {})[each.dataset] = f"{each.published.error:g}"
    return Table(
        "Test error (%)",
        ("system", *(NAMES[dataset] for dataset in DATASETS)),
        tuple((label, *(found.get(dataset, NOTHING) for dataset in DATASETS)) for label, found in lines.items()),
    )


MEASURED = ("published (%)", "here (%)", "lowest epoch (%)", "late epochs (%)", "training (min)")


class Extra(NamedTuple):
    """A column that stands there if any entry has something in it."""

    title: str
    name: str  # for programs
    errors: Callable[[Entry], list[float]]
    note: str


EXTRA = (
    Extra("chosen epoch (%)", "chosen_epoch", Entry.chosen, CHOSEN),
    Extra("new statistics (%)", "new_statistics", Entry.renormalised, NEW_STATISTICS),
    Extra("averaged weights (%)", "averaged", Entry.averaged, AVERAGED),
)


def extra_columns(entries: Sequence[Entry]) -> list[Extra]:
    return [each for each in EXTRA if any(each.errors(entry) for entry in entries)]


def _measured(entry: Entry) -> tuple[str, ...]:
    """The cells under `MEASURED`."""
    errors = (entry.errors("test"), entry.lowest(), entry.late())
    return (_error(entry.row), *map(spread, errors), entry.minutes)


def _details(entries: Sequence[Entry]) -> Table:
    return Table(
        "The runs",
        (
            "row",
            "parameters",
            "published parameters",
            *MEASURED,
            *(each.title for each in extra_columns(entries)),
        ),
        tuple(
            (
                entry.row.key,
                entry.parameters,
                NOTHING if entry.row.published is None else entry.row.published.parameters or NOTHING,
                *_measured(entry),
                *(spread(each.errors(entry)) for each in extra_columns(entries)),
            )
            for entry in entries
        ),
    )


def _branching(entries: Sequence[Entry]) -> Table:
    return Table(
        "smallNORB, test error (%)",
        (
            "system",
            "recipe",
            "branched",
            "parameters",
            *MEASURED,
        ),
        tuple(
            (
                entry.row.system,
                entry.row.recipe,
                "yes" if entry.row.branched else "no",
                entry.parameters,
                *_measured(entry),
            )
            for entry in entries
        ),
    )


def _numbers(entries: Sequence[Entry]) -> Table:
    return Table(
        "",
        (
            *("key", "system", "recipe", "dataset", "published", "error", "deviation", "seeds"),
            *("lowest_epoch", "late_epochs", "parameters", "training_minutes"),
            *(each.name for each in extra_columns(entries)),
        ),
        tuple(
            (
                entry.row.key,
                entry.row.system,
                entry.row.recipe,
                entry.row.dataset,
                _error(entry.row),
                *columns(entry.errors("test")),
                columns(entry.lowest())[0],
                columns(entry.late())[0],
                entry.parameters,
                entry.minutes,
                *(columns(each.errors(entry))[0] for each in extra_columns(entries)),
            )
            for entry in entries
        ),
    )


def _error(row: Row) -> str:
    return NOTHING if row.published is None else f"{row.published.error:g}"

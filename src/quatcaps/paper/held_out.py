"""The ablation's table, from entries to cells: settings compared on held-out toys."""

from __future__ import annotations

from collections.abc import Sequence

from quatcaps.paper.collection import Entry
from quatcaps.paper.toy_errors import HARDEST, against_best, complete, hardest, mean_error
from quatcaps.report.tables import NOTHING, Table

EXPLAINED = (
    "Errors in % on toys that are held out of the training images of smallNORB: five runs hold out one toy of each "
    "class in turn, and every toy counts the same. No test image was looked at. Each line that begins with + has all "
    "changes above it; those with `best`, `… patches` or `… deeper branches` have what is changed up to there, and "
    "what they name. Where whole toys are taken for another class whatever the settings, what settings differ in shows "
    "better without them. Against best: how many percentage points more errors, the mean over the toys that both have "
    "seen ± its standard error over folds: toys that one run holds out share its luck, so each run gives one "
    "difference, the mean over its toys. A line with fewer than five runs has no other number, as it has not seen all "
    "toys."
)


def held_out_notes(entries: Sequence[Entry]) -> tuple[str, ...]:
    missing = [entry.row.system for entry in entries if not entry.records]
    notes = (EXPLAINED, f"The hardest toys: {', '.join(hardest(entries)) or NOTHING}.")
    return (*notes, f"Not measured yet: {'; '.join(missing)}.") if missing else notes


def held_out_table(entries: Sequence[Entry]) -> Table:
    means = _means(entries)
    return Table(
        "Held-out toys of smallNORB, error (%)",
        ("settings", "all toys", f"without the {HARDEST} hardest", "against best", "runs", "training (min)"),
        tuple(
            (
                entry.row.system,
                *means[entry.row.key],
                str(against_best(entry, entries) or NOTHING),
                str(len(entry.records)),
                entry.minutes,
            )
            for entry in entries
            if entry.records
        ),
    )


def held_out_numbers(entries: Sequence[Entry]) -> Table:
    lines, means = [], _means(entries)
    for entry in entries:
        difference = against_best(entry, entries)
        lines.append(
            (
                entry.row.key,
                entry.row.system,
                str(len(entry.records)),
                *means[entry.row.key],
                NOTHING if difference is None else f"{difference.mean:.4f}",
                NOTHING if difference is None or difference.uncertainty is None else f"{difference.uncertainty:.4f}",
                entry.minutes,
            )
        )
    names = ("key", "settings", "runs", "error", "error_without_hardest", "against_best", "standard_error")
    return Table("", (*names, "training_minutes"), tuple(lines))


def _means(entries: Sequence[Entry]) -> dict[str, tuple[str, str]]:
    """By row the mean error over all toys, and without the hardest, if it has seen all that any has."""
    without = hardest(entries)
    means = {entry.row.key: (NOTHING, NOTHING) for entry in entries}
    for entry in complete(entries):
        means[entry.row.key] = (percent(mean_error(entry)), percent(mean_error(entry, without)))
    return means


def percent(error: float | None) -> str:
    """
    >>> percent(2.345), percent(None)
    ('2.35', '–')
    """
    return NOTHING if error is None else f"{error:.2f}"

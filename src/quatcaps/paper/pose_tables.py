"""What poses know, from entries to cells: means over seeds, and differences with their intervals."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from quatcaps.inspection.inspection import CLASSES
from quatcaps.paper.collection import Entry, columns, spread
from quatcaps.paper.pose_rows import QCN
from quatcaps.report.tables import NOTHING, Table
from quatcaps.training.poses import NEAR

TURN = 40
RESAMPLED = 10_000
NOVEL_AND_FAMILIAR = {"test": "{}, familiar", "novel": "{}, novel"}
NOTES = (
    "Mean ± sample deviation (number of seeds), at the end of training; no epoch is chosen. `best`: classes alone; "
    "`poses`: with a pose objective beside them, `poses-2` with less weight on it (2 in place of 5); `pretrained`: "
    "`best`, every seed begun with one network, that of seed 0 of `poses-2` on many kinds of toys. Toys: 20 kinds a "
    "category that were not trained on, 20,000 stereo pairs. Residual: of class poses after "
    "a rotation of all primary poses (chance 1.4). A turn of 40°: the rotation "
    "that it makes of the poses of some toys, on other toys; the error in parts of that of shuffled pairs (chance 1). "
    "R²: what a ridge regression reads of the azimuth, within a toy from other lightings, across toys from other toys "
    "(chance 0). Orientation: of the true class's pose against that of the toy (chance 132°); on smallNORB, of the "
    "turn between two views of a toy. `quatcaps inspect` measures all of it for any run.",
    "Novel viewpoints: strict protocol, error in % at the end of training, familiar → novel. Differences: of the means "
    f"over seeds, with the interval that holds 95% of {RESAMPLED:,} means of seeds drawn again.",
)


def pose_tables(entries: Sequence[Entry]) -> tuple[Table, ...]:
    """Orientations and behaviour of poses, for each experiment that is inspected; what each layer knows; novel
    viewpoints."""
    inspected = [entry for entry in entries if entry.row.inspected]
    tables = []
    for dataset, title in (("toys-many", "kinds of toys that were not trained on"), ("smallnorb", "smallNORB")):
        members = [entry for entry in inspected if entry.row.dataset == dataset]
        tables += [orientation_table(f"Errors, {title}", members), behaviour_table(f"Poses, {title}", members)]
    viewpoints = [entry for entry in entries if not entry.row.inspected]
    return (*tables, layer_table(inspected), viewpoint_table(viewpoints), difference_table(entries))


def orientation_table(title: str, entries: Sequence[Entry]) -> Table:
    """The errors of the classes, and of the orientations where they were trained."""
    lines = [
        (
            entry.row.system,
            entry.row.recipe,
            entry.parameters,
            spread(entry.errors("test")),
            *(spread(values(entry, of)) for of in (median, *map(share, NEAR))),
            entry.minutes,
        )
        for entry in entries
    ]
    shares = (f"within {near}° (%)" for near in NEAR)
    names = ("system", "recipe", "parameters", "class error (%)", "orientation (°)", *shares, "training (min)")
    return Table(title, names, tuple(lines))


def behaviour_table(title: str, entries: Sequence[Entry]) -> Table:
    """Whether class poses turn with primary poses and with toys."""
    lines = [
        (
            entry.row.system,
            entry.row.recipe,
            small(values(entry, residual)),
            *(spread(values(entry, of)) for of in (turn_ratio, within, across)),
        )
        for entry in entries
    ]
    return Table(title, ("system", "recipe", "residual", "40° turn", "R² within", "R² across"), tuple(lines))


def layer_table(entries: Sequence[Entry]) -> Table:
    """R² of the azimuth within a toy, layer by layer."""
    layers = [name for name in layers_in(entries) if name != CLASSES] + [CLASSES]
    lines = [
        (
            entry.row.key,
            *(spread(values(entry, partial(r2, how="within", layer=layer))) for layer in layers),
        )
        for entry in entries
    ]
    return Table("R² of the azimuth within a toy, by layer", ("row", *layers), tuple(lines))


def layers_in(entries: Sequence[Entry]) -> list[str]:
    """The names of all layers, in the order in which they come."""
    return list(
        dict.fromkeys(name for entry in entries for record in entry.records for name in record.poses.get("within", {}))
    )


def viewpoint_table(entries: Sequence[Entry]) -> Table:
    lines = [
        (
            entry.row.viewpoints,
            f"{entry.row.system}, {entry.row.recipe}",
            entry.parameters,
            spread(entry.errors("test")),
            spread(entry.errors("novel")),
            entry.minutes,
        )
        for entry in entries
    ]
    names = ("viewpoints", "system", "parameters", "familiar (%)", "novel (%)", "training (min)")
    return Table("smallNORB, novel viewpoints", names, tuple(lines))


def difference_table(entries: Sequence[Entry]) -> Table:
    """The class errors of other systems of an experiment less QCN's."""
    lines = []
    for experiment in dict.fromkeys(experiment_of(entry) for entry in entries):
        members = [entry for entry in entries if experiment_of(entry) == experiment]
        (second,) = (entry for entry in members if entry.row.system == QCN)
        names = {"test": experiment} if second.row.inspected else NOVEL_AND_FAMILIAR
        for first in members:
            for name, words in names.items() if first is not second else ():
                told = difference(first.errors(name), second.errors(name))
                systems = f"{first.row.system}, {first.row.recipe}, less {second.row.system}"
                lines.append((words.format(experiment), systems, told))
    return Table("Differences of errors", ("experiment", "systems", "difference (points)"), tuple(lines))


def experiment_of(entry: Entry) -> str:
    return entry.row.dataset if entry.row.inspected else entry.row.viewpoints


def difference(first: Sequence[float], second: Sequence[float]) -> str:
    """Of means, with its interval.

    >>> difference([2.0, 2.0], [1.0, 1.0])
    '+1.00 [+1.00, +1.00]'
    """
    if len(first) < 2 or len(second) < 2:
        return NOTHING
    draw = random.Random(0)
    drawn = sorted(
        statistics.fmean(draw.choices(first, k=len(first))) - statistics.fmean(draw.choices(second, k=len(second)))
        for _ in range(RESAMPLED)
    )
    low, high = drawn[RESAMPLED // 40], drawn[-1 - RESAMPLED // 40]
    return f"{statistics.fmean(first) - statistics.fmean(second):+.2f} [{low:+.2f}, {high:+.2f}]"


def values(entry: Entry, of: Callable[[dict[str, Any]], float | None]) -> list[float]:
    """A number of each seed that has it."""
    found = [of(record.poses) for record in entry.records if record.poses]
    return [value for value in found if value is not None]


def residual(found: dict[str, Any]) -> float | None:
    return found["residual"] and found["residual"]["poses"]


def turn_ratio(found: dict[str, Any]) -> float | None:
    return next((each["ratio"] for each in found["transfer"] if each["turn"] == TURN), None)


def r2(found: dict[str, Any], how: str, layer: str) -> float | None:
    return found[how][layer]["azimuth_r2"] if layer in found[how] else None


def within(found: dict[str, Any]) -> float | None:
    return r2(found, "within", CLASSES)


def across(found: dict[str, Any]) -> float | None:
    return r2(found, "across", CLASSES)


def median(found: dict[str, Any]) -> float | None:
    return found["orientation"] and found["orientation"]["median_degrees"]


def share(near: int) -> Callable[[dict[str, Any]], float | None]:
    return lambda found: found["orientation"] and 100 * found["orientation"][f"within_{near}"]


def small(found: Sequence[float]) -> str:
    """The largest of numbers that may be tiny."""
    return f"{max(found):.1e}" if found else NOTHING


def pose_numbers(entries: Sequence[Entry]) -> Table:
    """For programs."""
    measured: dict[str, Callable[[Entry], Sequence[float]]] = {
        "error": lambda entry: entry.errors("test"),
        "novel_error": lambda entry: entry.errors("novel"),
        "residual": lambda entry: values(entry, residual),
        "turn_ratio": lambda entry: values(entry, turn_ratio),
        "r2_within": lambda entry: values(entry, within),
        "r2_across": lambda entry: values(entry, across),
        "orientation_degrees": lambda entry: values(entry, median),
    }
    names = [(name, f"{name}_deviation") for name in measured]
    return Table(
        "",
        ("key", "seeds", "parameters", *(name for pair in names for name in pair)),
        tuple(
            (
                entry.row.key,
                str(len(entry.records)),
                entry.parameters,
                *(cell for of in measured.values() for cell in columns(of(entry))[:2]),
            )
            for entry in entries
        ),
    )

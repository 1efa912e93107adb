"""The tables, from entries to cells: what was published beside what was measured here."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from quatcaps.recipes.rows import Published, Quoted, Row
from quatcaps.recipes.tables import DATASETS, QUOTED, REFERENCES, TABLES
from quatcaps.report.tables import NOTHING, Table
from quatcaps.reproduction.collection import LATE, Entry, columns, spread
from quatcaps.reproduction.held_out import held_out_notes, held_out_numbers, held_out_table

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
LATE_EPOCHS = (
    f"Late epochs: the median of the last {LATE} measurements of all images, where there are as many; where the rate "
    "hardly falls, the last epoch alone is a draw."
)
STRICT = (
    "Strict protocol (Hinton et al. 2018): trained on the training toys from familiar viewpoints, measured on the test "
    "toys. At the match: the first epoch at which the familiar test error is at or below the reference, the novel "
    "error interpolated linearly between that epoch and the one before."
)
POOLED = (
    "Pooled protocol (the public code of the QCN paper): toys of both files on both sides, no familiar test images. At "
    "the match: the first epoch whose training error (of images as augmented, while the weights change) is at or below "
    "the reference. Not to be compared with the strict protocol."
)
MARKED = (
    "Marked *: no seed came to the reference; its lowest familiar error, and the novel error of that epoch. Where only "
    "some seeds came to it, the mean is over these, and their number stands in the brackets. In the picture: a dot for "
    "every epoch of every run, lines through the medians of neighbouring dots, and a larger mark where each run is "
    "compared."
)


@dataclass(frozen=True)
class Page:
    """A table, ready to write: what to say first, tables to read, one for programs."""

    title: str
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    numbers: Table


def page(name: str, entries: Sequence[Entry], *, quoted: bool = True) -> Page:
    """Table `name` of `TABLES`; without `quoted`, the numbers of other papers are left out."""
    shown = [entry for entry in entries if name in entry.row.tables and entry.shown]
    others = [each for each in QUOTED if each.table == name] if quoted else []
    title = TABLES[name]
    if name == "table1":
        return Page(
            title,
            (f"{SPREAD} {STRICT}", POOLED, f"{MARKED} {LATE_EPOCHS}"),
            tuple(_viewpoints(shown, others, *experiment) for experiment in REFERENCES),
            _viewpoint_numbers(shown),
        )
    notes = (f"{SPREAD} {LOWEST} {LATE_EPOCHS}", *_windows(shown))
    if name == "table2":
        return Page(title, notes, (_overview(shown, others), _details(shown)), _numbers(shown))
    if name == "table3":
        return Page(title, notes, (_branching(shown),), _numbers(shown))
    return Page(title, held_out_notes(shown), (held_out_table(shown),), held_out_numbers(shown))


def pair(published: Published | None) -> str:
    """A published familiar and novel error.

    >>> pair(Published(7.5, familiar=3.7))
    '3.7 → 7.5'
    """
    return NOTHING if published is None else f"{published.familiar:.1f} → {published.error:.1f}"


def _windows(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Which rows look at a test image more than once, if any do."""
    crops = {entry.row.key: {record.config.test_crops for record in entry.records} for entry in entries}
    several = [f"{key} ({each}×{each})" for key, found in crops.items() for each in sorted(found) if each > 1]
    if not several:
        return ()
    return (
        "Mean activations of several windows of a test image name its class in "
        f"{', '.join(several)}; in every other row one window does.",
    )


def _viewpoints(entries: Sequence[Entry], others: Sequence[Quoted], viewpoints: str, protocol: str) -> Table:
    of_table = (viewpoints, protocol)
    familiar = "familiar" if protocol == "strict" else "training"
    lines = []
    for entry in entries:
        if (entry.row.viewpoints, entry.row.protocol) != of_table:
            continue
        row, matches = entry.row, entry.matches()
        mark = "" if all(match.reached for match in matches) else " *"
        matched = _pairs([match.familiar for match in matches], [match.novel for match in matches])
        last = _pairs(entry.errors("test"), entry.errors("novel"))
        start = (row.system, row.recipe, entry.parameters, pair(row.published))
        late = _pairs(entry.late("test"), entry.late("novel"))
        lines.append((*start, f"{matched}{mark}", last, late, entry.minutes))
    nothing = (NOTHING,) * 4
    for each in others:
        if (each.viewpoints, each.protocol) == of_table:
            system, parameters = f"{each.system} ({each.published.source})", each.published.parameters or NOTHING
            lines.append((system, "quoted", parameters, pair(each.published), *nothing))
    title = f"{viewpoints.capitalize()}, {protocol} protocol: {familiar} → novel error (%), matched at "
    errors = ("published", "at the match", "at the end", "late epochs")
    names = ("system", "recipe", "parameters", *errors, "training (min)")
    return Table(f"{title}{REFERENCES[of_table]}%", names, tuple(lines))


def _pairs(familiar: Sequence[float], novel: Sequence[float]) -> str:
    """The mean familiar error, where there is one, and the novel error with its deviation."""
    return f"{statistics.mean(familiar):.2f} → {spread(novel)}" if familiar else spread(novel)


def _viewpoint_numbers(entries: Sequence[Entry]) -> Table:
    lines = []
    for entry in entries:
        row, matches = entry.row, entry.matches()
        published = row.published
        lines.append(
            (
                row.key,
                row.system,
                row.recipe,
                row.viewpoints,
                row.protocol,
                str(REFERENCES[row.viewpoints, row.protocol]),
                NOTHING if published is None else str(published.familiar),
                NOTHING if published is None else str(published.error),
                str(sum(match.reached for match in matches)),
                columns([match.familiar for match in matches])[0],
                *columns([match.novel for match in matches]),
                *columns(entry.errors("test"))[:2],
                *columns(entry.errors("novel")),
                columns(entry.late("test"))[0],
                *columns(entry.late("novel"))[:2],
                entry.parameters,
                entry.minutes,
            )
        )
    return Table(
        "",
        (
            *(
                "key",
                "system",
                "recipe",
                "viewpoints",
                "protocol",
                "reference",
                "published_familiar",
                "published_novel",
            ),
            *("seeds_matched", "matched_familiar", "matched_novel", "matched_novel_deviation", "seeds_compared"),
            *(
                "final_familiar",
                "final_familiar_deviation",
                "final_novel",
                "final_novel_deviation",
                "seeds",
                "late_familiar",
                "late_novel",
                "late_novel_deviation",
                "parameters",
                "training_minutes",
            ),
        ),
        tuple(lines),
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


def _details(entries: Sequence[Entry]) -> Table:
    return Table(
        "The runs",
        (
            "row",
            "parameters",
            "published parameters",
            "published (%)",
            "here (%)",
            "lowest epoch (%)",
            "late epochs (%)",
            "training (min)",
        ),
        tuple(
            (
                entry.row.key,
                entry.parameters,
                NOTHING if entry.row.published is None else entry.row.published.parameters or NOTHING,
                _error(entry.row),
                spread(entry.errors("test")),
                spread(entry.lowest()),
                spread(entry.late()),
                entry.minutes,
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
            "published (%)",
            "here (%)",
            "lowest epoch (%)",
            "late epochs (%)",
            "training (min)",
        ),
        tuple(
            (
                entry.row.system,
                entry.row.recipe,
                "yes" if entry.row.branched else "no",
                entry.parameters,
                _error(entry.row),
                spread(entry.errors("test")),
                spread(entry.lowest()),
                spread(entry.late()),
                entry.minutes,
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
            )
            for entry in entries
        ),
    )


def _error(row: Row) -> str:
    return NOTHING if row.published is None else f"{row.published.error:g}"

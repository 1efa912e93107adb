"""Table I, from entries to cells: errors from familiar and novel viewpoints, by experiment and protocol."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from quatcaps.paper.collection import Entry, columns, spread
from quatcaps.paper.matching import REFERENCES, Match
from quatcaps.paper.row import Published, Quoted
from quatcaps.report.tables import NOTHING, Table

MEASURED = {"azimuth": "two", "elevation": "seven"}
"""Settings of `best` with a pooled record: the row's, and those in `results/tried`."""
STRICT = (
    "Strict protocol (Hinton et al. 2018): trained on the training toys from familiar viewpoints, measured on the test "
    "toys. At the match: the first epoch at which the familiar test error is at or below the reference, the novel "
    "error interpolated linearly between that epoch and the one before. `best` has smallNORB's settings there, which "
    "were chosen knowing errors of the same test toys."
)
POOLED = (
    "Pooled protocol (the public code of the QCN paper): toys of both files on both sides, no familiar test images. At "
    "the match: the first epoch whose training error (of images as augmented, while the weights change) is at or below "
    "the reference. Augmentation raises that error, so that runs with more of it are compared at a greater age: its "
    "epoch, counted from 1, is the mean over seeds. There are no other images to choose by: of the settings of `best` "
    f"that were measured on these images, {MEASURED['azimuth']} for azimuths and {MEASURED['elevation']} for "
    "elevations, each experiment shows the one with the lowest novel error at the match, the number that it reports "
    "(docs/reproduction.md). Not to be compared with the strict protocol."
)
MARKED = (
    "Marked *: no seed came to the reference; its lowest familiar error, and the novel error of that epoch. Where only "
    "some seeds came to it, the mean is over these, and their number stands in the brackets. In the picture: a dot for "
    "every epoch of every run, lines through the medians of neighbouring dots, and a larger mark where each run is "
    "compared."
)


def pair(published: Published | None) -> str:
    """A published familiar and novel error.

    >>> pair(Published(7.5, familiar=3.7))
    '3.7 → 7.5'
    """
    return NOTHING if published is None else f"{published.familiar:.1f} → {published.error:.1f}"


def viewpoint_table(entries: Sequence[Entry], others: Sequence[Quoted], viewpoints: str, protocol: str) -> Table:
    """One experiment: what was published, and what was measured where its protocol compares."""
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
        lines.append((*start, f"{matched}{mark}", _mean_epoch(matches), last, late, entry.minutes))
    nothing = (NOTHING,) * 5
    for each in others:
        if (each.viewpoints, each.protocol) == of_table:
            system, parameters = f"{each.system} ({each.published.source})", each.published.parameters or NOTHING
            lines.append((system, "quoted", parameters, pair(each.published), *nothing))
    title = f"{viewpoints.capitalize()}, {protocol} protocol: {familiar} → novel error (%), matched at "
    errors = ("published", "at the match", "its epoch", "at the end", "late epochs")
    names = ("system", "recipe", "parameters", *errors, "training (min)")
    return Table(f"{title}{REFERENCES[of_table]}%", names, tuple(lines))


def _mean_epoch(matches: Sequence[Match]) -> str:
    """The epoch at which runs are compared, the mean over seeds."""
    return f"{statistics.mean(match.epoch for match in matches):.1f}" if matches else NOTHING


def _pairs(familiar: Sequence[float], novel: Sequence[float]) -> str:
    """The mean familiar error, where there is one, and the novel error with its deviation."""
    return f"{statistics.mean(familiar):.2f} → {spread(novel)}" if familiar else spread(novel)


def viewpoint_numbers(entries: Sequence[Entry]) -> Table:
    """All experiments, for programs."""
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
                _mean_epoch(matches),
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
            "matched_epoch",
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

"""The picture of `settings`: what each has more than rotors, on rendered toys and on smallNORB."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from quatcaps.paper.collection import Entry
from quatcaps.paper.marks import Look
from quatcaps.paper.setting_rows import VIEWPOINTS
from quatcaps.paper.setting_tables import REFERENCE, difference, measured, paired
from quatcaps.paper.toy_errors import Difference
from quatcaps.report.canvas import INK, RULE, SMALL, TEXT, WIDTH, dress, literal, new_figure, save, tint
from quatcaps.report.styles import BLUE, VERMILLION, WINE

LETTERS = 30
APART = 0.17
"""Azimuths stand so far above their line, elevations below it."""
ONE_RUN: Look = {"linestyle": "none", "marker": "|", "markersize": 6, "markeredgewidth": 1.0}
MARKS: Mapping[str, Look] = {
    "azimuth": {"color": VERMILLION, "marker": "o"},
    "elevation": {"color": BLUE, "marker": "D"},
}


def draw_settings(entries: Sequence[Entry], path: Path) -> None:
    """Settings down, rendered toys and smallNORB side by side; what was not run has no mark."""
    found = measured(entries)
    rotors = found[REFERENCE]
    names = [literal(textwrap.fill(each.words, LETTERS)) for each in found.values()]
    figure = new_figure(WIDTH, 1.6 + 0.36 * len(found))
    rendered, photographed = figure.subplots(1, 2, sharey=True)
    dress(rendered, "rendered toys", "points more than rotors, same toys", "")
    dress(photographed, "smallNORB", "points more than rotors", "")
    for level, (key, each) in enumerate(found.items()):
        for viewpoints in VIEWPOINTS:
            place = level + (-APART if viewpoints == VIEWPOINTS[0] else APART)
            mine, theirs = each.rendered[viewpoints], rotors.rendered[viewpoints]
            _runs(rendered, [mine[seed] - theirs[seed] for seed in mine if seed in theirs], place, viewpoints)
            _mark(rendered, None if key == REFERENCE else paired(mine, theirs), place, viewpoints)
            mine, theirs = each.photographed[viewpoints], rotors.photographed[viewpoints]
            if theirs:
                middle = statistics.fmean(theirs.values())
                _runs(photographed, [error - middle for error in mine.values()], place, viewpoints)
            _mark(photographed, None if key == REFERENCE else difference(mine, theirs), place, viewpoints)
    for axes in (rendered, photographed):
        axes.axvline(0, color=WINE, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_yticks(range(len(found)), names)
        axes.tick_params(axis="y", labelsize=SMALL, length=0)
    figure.legend(handles=_handles(), loc="outside upper left", ncols=2, frameon=False, fontsize=TEXT)
    save(figure, path)


def _runs(axes: Axes, differences: Sequence[float], place: float, viewpoints: str) -> None:
    colour = tint(str(MARKS[viewpoints]["color"]), 0.5)
    axes.plot(differences, [place] * len(differences), color=colour, zorder=2, **ONE_RUN)


def _mark(axes: Axes, found: Difference | None, place: float, viewpoints: str) -> None:
    if found is not None:
        look: Look = {"markersize": 6, "markeredgecolor": "white", "elinewidth": 1.6, "linestyle": "none"}
        axes.errorbar(found.mean, place, xerr=found.uncertainty or 0.0, zorder=3, **MARKS[viewpoints], **look)


def _handles() -> list[Line2D]:
    marks = [
        Line2D([], [], label=f"novel {viewpoints}s, ± standard error", linewidth=1.6, markersize=6, **look)
        for viewpoints, look in MARKS.items()
    ]
    line = Line2D([], [], color=WINE, linewidth=1.2, linestyle=(0, (4, 2)), label="rotors")
    return [*marks, line, Line2D([], [], color=tint(INK, 0.5), label="one run", **ONE_RUN)]

"""The picture of `settings`: what each has more than rotors, on rendered toys and on smallNORB."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from quatcaps.paper.collection import Entry
from quatcaps.paper.comparison import Difference, paired, unpaired
from quatcaps.paper.marks import Look
from quatcaps.paper.setting_rows import RENDERED, SMALLNORB, VIEWPOINTS
from quatcaps.paper.setting_tables import REFERENCE, BySeed, measured
from quatcaps.report.canvas import INK, RULE, SMALL, TEXT, WIDTH, dress, literal, new_figure, save, tint
from quatcaps.report.styles import BLUE, VERMILLION, WINE

LETTERS = 30
APART = 0.17
"""Azimuths stand so far above their line, elevations below it."""
PANELS: Mapping[str, tuple[str, Callable[[BySeed, BySeed], Difference | None]]] = {
    RENDERED: ("rendered toys, the same for both", paired),
    SMALLNORB: ("smallNORB", unpaired),
}
"""By dataset, the title and how settings are compared."""
MEAN: Look = {"markersize": 6, "markeredgecolor": "white", "elinewidth": 1.6, "linestyle": "none"}
ONE_RUN: Look = {"linestyle": "none", "marker": "|", "markersize": 6, "markeredgewidth": 1.0}
MARKS: Mapping[str, Look] = {
    "azimuth": {"color": VERMILLION, "marker": "o"},
    "elevation": {"color": BLUE, "marker": "D"},
}


def draw_settings(entries: Sequence[Entry], path: Path) -> None:
    """Settings down, datasets side by side; those alone that have runs, if any."""
    found = measured(entries)
    datasets = [each for each in PANELS if any(setting.has_runs(each) for setting in found.values())] or list(PANELS)
    shown = [key for key, setting in found.items() if any(map(setting.has_runs, PANELS))] or list(found)
    names = [literal(textwrap.fill(found[key].words, LETTERS)) for key in shown]
    figure = new_figure(WIDTH, 1.6 + 0.36 * len(shown))
    panels = figure.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    for axes, dataset in zip(panels, datasets, strict=True):
        dress(axes, PANELS[dataset][0], "points more than rotors", "")
        axes.axvline(0, color=WINE, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
        for level, key in enumerate(shown):
            for viewpoints, beside in zip(VIEWPOINTS, (-APART, APART), strict=True):
                both = (found[each].errors[dataset, viewpoints] for each in (key, REFERENCE))
                _mark(axes, level + beside, viewpoints, dataset, *both)
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_yticks(range(len(shown)), names)
        axes.tick_params(axis="y", labelsize=SMALL, length=0)
    figure.legend(handles=_handles(), loc="outside upper left", ncols=2, frameon=False, fontsize=TEXT)
    save(figure, path)


def _mark(axes: Axes, place: float, viewpoints: str, dataset: str, mine: BySeed, rotors: BySeed) -> None:
    """What a setting has more than rotors: every run, and the mean with its standard error."""
    compare, look = PANELS[dataset][1], MARKS[viewpoints]
    each = [compare({seed: error}, rotors) for seed, error in mine.items()]
    runs = [one.mean for one in each if one is not None]
    axes.plot(runs, [place] * len(runs), color=tint(str(look["color"]), 0.5), zorder=2, **ONE_RUN)
    apart = compare(mine, rotors)
    if apart is not None and mine is not rotors:
        axes.errorbar(apart.mean, place, xerr=apart.uncertainty or 0.0, zorder=3, **look, **MEAN)


def _handles() -> list[Line2D]:
    marks = [
        Line2D([], [], label=f"novel {viewpoints}s, ± standard error", linewidth=1.6, markersize=6, **look)
        for viewpoints, look in MARKS.items()
    ]
    line = Line2D([], [], color=WINE, linewidth=1.2, linestyle=(0, (4, 2)), label="rotors")
    return [*marks, line, Line2D([], [], color=tint(INK, 0.5), label="one run", **ONE_RUN)]

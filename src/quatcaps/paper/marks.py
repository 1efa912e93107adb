"""The marks that pictures of tables share: seeds with their mean and its interval, published numbers, legends."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from quatcaps.paper.collection import Entry
from quatcaps.report.canvas import INK, MUTED, SMALL, literal
from quatcaps.report.intervals import FEWEST, of_mean
from quatcaps.report.styles import Style, system_style

ROOM = 0.2
"""Seeds of one line stand up to so far beside it, so that none hides another."""
Look = dict[str, Any]
"""Keywords of a mark."""
PUBLISHED: Look = {"color": MUTED, "linestyle": "none", "marker": "|", "markersize": 17, "markeredgewidth": 2.6}
COMPARED_AT: Look = {"color": MUTED, "linestyle": (0, (4, 3)), "linewidth": 1.2}
CHANCE: Look = {"color": MUTED, "linestyle": (0, (2, 2)), "linewidth": 1.2}


SIGNS = {
    "*": "EM*: matrix capsules with EM routing, as the QCN paper trains them",
    "‡": "EM‡: matrix capsules behind QCN's other layers",
    "quoted": "quoted: published of a network that is not trained here in that form",
}
"""What the names of systems have beside their letters."""


def explain_signs(figure: Figure, systems: Iterable[str]) -> None:
    """Says below the picture what signs in the names of its systems mean."""
    names = list(systems)
    words = [told for sign, told in SIGNS.items() if any(sign in name for name in names)]
    if words:
        figure.supxlabel(".\n".join(words) + ".", x=0.02, ha="left", fontsize=SMALL, color=MUTED)


def label(entry: Entry) -> str:
    """A system with its recipe, where it has two."""
    several = entry.row.system.startswith("QCN") or entry.row.recipe.startswith("public code")
    return f"{entry.row.system}, {entry.row.recipe}" if several else entry.row.system


def style(entry: Entry) -> Style:
    return system_style(entry.row.system, entry.row.recipe)


def beside(count: int) -> list[float]:
    """How far each of some seeds stands from its line.

    >>> beside(3), beside(1)
    ([-0.2, 0.0, 0.2], [0.0])
    """
    return [ROOM * (2 * number / (count - 1) - 1) for number in range(count)] if count > 1 else [0.0] * count


def draw_seeds(
    axes: Axes, values: Sequence[float], level: int, drawn: Style, *, upright: bool = False, hollow: bool = False
) -> list[float]:
    """A mark for every seed, the mean of several as a line across, and its interval; how far all of it reaches.

    Values go along the x axis, or `upright` along the y axis.
    """
    if not values:
        return []
    ends, offsets = list(values), [level + offset for offset in beside(len(values))]
    face = "white" if hollow else drawn.colour
    edge = drawn.colour if hollow else "white"
    along = (offsets, values) if upright else (values, offsets)
    marks: Look = {
        "linestyle": "none",
        "marker": drawn.marker,
        "markersize": 7,
        "markeredgewidth": 1.2 if hollow else 0.6,
    }
    axes.plot(*along, color=drawn.colour, markerfacecolor=face, markeredgecolor=edge, zorder=3, **marks)
    lines, across = (axes.vlines, axes.hlines) if upright else (axes.hlines, axes.vlines)
    if len(values) > 1:
        across(statistics.fmean(values), level - 0.34, level + 0.34, color=INK, linewidth=1.6, zorder=4)
    if interval := of_mean(values):
        low, high = max(0.0, interval.low), interval.high
        lines(level, low, high, color=INK, linewidth=1.2, zorder=4)
        ends += [low, high]
    return ends


def draw_published(axes: Axes, error: float, level: int) -> None:
    axes.plot(error, level, zorder=2, **PUBLISHED)


def network_handles(entries: Iterable[Entry]) -> list[Line2D]:
    """The legend's lines of the systems that have a run."""
    present = {label(entry): style(entry) for entry in entries if entry.records}
    return [
        Line2D([], [], color=colour, marker=marker, linewidth=1.6, markersize=7, label=literal(system))
        for system, (colour, marker) in present.items()
    ]


def seed_handles(*, published: bool = True, upright: bool = False) -> list[Line2D]:
    """What the marks of `draw_seeds` and `draw_published` mean."""
    dot = Line2D([], [], color=MUTED, linestyle="none", marker="o", markersize=7, label="one seed")
    mean = Line2D([], [], color=INK, linestyle="none", marker="_" if upright else "|", markersize=13)
    mean.set_markeredgewidth(1.6)
    mean.set_label("mean over seeds")
    words = f"95% interval of the mean, from {FEWEST} seeds on"
    shape: Look = {"marker": "|", "linestyle": "none", "markersize": 13} if upright else {"linestyle": "-"}
    interval = Line2D([], [], color=INK, linewidth=1.2, label=words, **shape)
    bar = Line2D([], [], label="published", **PUBLISHED)
    return [dot, mean, interval, *([bar] if published else [])]

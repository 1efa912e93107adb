"""The pictures of Table I: novel against familiar error along training, and the errors where systems are compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from quatcaps.paper.collection import Entry
from quatcaps.paper.marks import (
    COMPARED_AT,
    Look,
    draw_published,
    draw_seeds,
    explain_signs,
    label,
    network_handles,
    seed_handles,
    style,
)
from quatcaps.paper.matching import REFERENCES, Match, curve, trend
from quatcaps.paper.row import Quoted
from quatcaps.paper.rows import QUOTED
from quatcaps.report.canvas import INK, MUTED, RULE, SMALL, TEXT, WIDTH, dress, literal, new_figure, save

WINDOW = 3.0
"""Familiar errors are shown up to so many times the reference, or what there is."""
PROTOCOLS = ("strict", "pooled")
FAMILIAR = {"strict": "familiar test error (%)", "pooled": "training error (%)"}
Curves = list[tuple[Entry, list[Match]]]


def draw_viewpoints(entries: Sequence[Entry], path: Path) -> None:
    """Novel against familiar error, a dot for every epoch of every run and a line through their medians; one panel for
    each experiment and protocol, those of a protocol on the same scales."""
    figure = new_figure(WIDTH, 9.8)
    curves = {experiment: curves_of(of_experiment(entries, *experiment), experiment[1]) for experiment in REFERENCES}
    for row, protocol in enumerate(PROTOCOLS):
        experiments = [experiment for experiment in REFERENCES if experiment[1] == protocol]
        right = max(rightmost(curves[experiment], REFERENCES[experiment]) for experiment in experiments)
        top = max(topmost(curves[experiment], of_experiment(entries, *experiment), right) for experiment in experiments)
        for column, experiment in enumerate(experiments):
            axes = figure.add_subplot(2, 2, 2 * row + column + 1)
            _panel(axes, of_experiment(entries, *experiment), curves[experiment], experiment, right, top)
    grey: Look = {"color": MUTED, "linestyle": "none"}
    handles = network_handles(entries)
    handles += [
        Line2D([], [], marker=".", markersize=5, label="one epoch of one run", **grey),
        Line2D([], [], color=MUTED, linewidth=1.6, label="median of neighbouring dots"),
        Line2D([], [], marker="o", markersize=8, label="run where it is compared", **grey),
        Line2D([], [], **COMPARED_AT, label="error to compare at"),
    ]
    if any(entry.row.published for entry in entries):
        handles.append(Line2D([], [], marker="_", markersize=14, markeredgewidth=2.2, label="published", **grey))
    figure.legend(handles=handles, loc="outside upper left", ncols=3, frameon=False, fontsize=TEXT)
    explain_signs(figure, map(label, entries))
    save(figure, path)


def of_experiment(entries: Sequence[Entry], viewpoints: str, protocol: str) -> list[Entry]:
    return [entry for entry in entries if (entry.row.viewpoints, entry.row.protocol) == (viewpoints, protocol)]


def curves_of(entries: Sequence[Entry], protocol: str) -> Curves:
    """The errors after every epoch of every run."""
    familiar = "test_error" if protocol == "strict" else "error"
    return [(entry, curve(record.epochs, familiar)) for entry in entries for record in entry.records]


def rightmost(curves: Curves, reference: float) -> float:
    """The largest familiar error that is shown."""
    lowest = max((min(point.familiar for point in points) for _, points in curves if points), default=0.0)
    return max(WINDOW * reference, 1.25 * lowest)


def topmost(curves: Curves, entries: Sequence[Entry], right: float) -> float:
    """Where the axis of novel errors ends."""
    novel = [point.novel for _, points in curves for point in points if point.familiar <= right]
    novel += [entry.row.published.error for entry in entries if entry.row.published is not None]
    return 1.1 * max(novel, default=30.0)


def _panel(
    axes: Axes, entries: Sequence[Entry], curves: Curves, experiment: tuple[str, str], right: float, top: float
) -> None:
    viewpoints, protocol = experiment
    reference = REFERENCES[experiment]
    dress(axes, f"{viewpoints.capitalize()}, {protocol}", FAMILIAR[protocol], "novel error (%)")
    for entry, points in curves:
        at = [(point.familiar, point.novel) for point in points]
        dots: Look = {"linestyle": "none", "marker": ".", "markersize": 4, "markeredgewidth": 0, "alpha": 0.35}
        axes.plot(*zip(*at, strict=True), color=style(entry).colour, zorder=2, **dots)
    for entry in entries:
        colour, marker = style(entry)
        seen = [point for one, points in curves if one is entry for point in points if point.familiar <= right]
        if line := trend(seen):
            axes.plot(*zip(*line, strict=True), color=colour, linewidth=1.8, zorder=3)
        mark: Look = {"marker": marker, "markersize": 8, "markeredgecolor": "white", "clip_on": False, "zorder": 4}
        for match in entry.matches():
            axes.plot(match.familiar, match.novel, color=colour, **mark)
        published = entry.row.published if entry.row.recipe != "best" else None
        if published is not None and published.familiar is not None:
            at_match = [match for other in entries for match in other.matches()]
            nearby = [*(point for _, points in curves for point in points), *at_match]
            where = (published.familiar, published.error)
            side = emptier_side([(each.familiar, each.novel) for each in nearby], where, right, top)
            _published_bar(axes, where, entry.row.system, colour, side)
    axes.axvline(reference, zorder=1, **COMPARED_AT)
    above: Look = {"transform": axes.get_xaxis_transform(), "va": "top", "fontsize": SMALL, "color": MUTED}
    axes.text(reference, 1.0, f" {reference}%", **above)
    axes.set_xlim(0, right)
    axes.set_ylim(0, top)
    if not curves:
        axes.text(0.5, 0.5, "no run yet", transform=axes.transAxes, ha="center", fontsize=TEXT, color=MUTED)


def emptier_side(points: Sequence[tuple[float, float]], at: tuple[float, float], right: float, top: float) -> str:
    """Where fewer points of a panel that ends at `right` and `top` lie under a label beside `at`: `left` or `right`."""
    x, y = at
    level = [other for other, height in points if abs(height - y) < 0.035 * top and abs(other - x) < 0.14 * right]
    return "left" if sum(other < x for other in level) < sum(other >= x for other in level) else "right"


def _published_bar(axes: Axes, at: tuple[float, float], system: str, colour: str, side: str) -> None:
    axes.plot(*at, color=colour, marker="_", markersize=16, markeredgewidth=2.2, zorder=5)
    axes.annotate(
        system,
        at,
        xytext=(11 if side == "right" else -11, 0),
        textcoords="offset points",
        ha="left" if side == "right" else "right",
        va="center",
        fontsize=SMALL,
        color=INK,
        zorder=4.5,
        path_effects=[withStroke(linewidth=3, foreground="white")],
    )


def draw_compared(entries: Sequence[Entry], path: Path, *, quoted: bool) -> None:
    """The novel error of every run where its system is compared, systems down, one panel for each experiment."""
    others = [each for each in QUOTED if each.table == "table1"] if quoted else []
    systems = list(dict.fromkeys([*map(label, entries), *map(quoted_label, others)]))
    figure = new_figure(WIDTH, 2.7 + 0.76 * len(systems))
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    ends = [1.0]
    for axes, experiment in zip(panels.flat, REFERENCES, strict=True):
        viewpoints, protocol = experiment
        title = f"{viewpoints.capitalize()}, {protocol}: at {REFERENCES[experiment]}% {FAMILIAR[protocol][:-4]}"
        dress(axes, title, "novel error (%)", "")
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        for entry in of_experiment(entries, *experiment):
            ends += _compared(axes, entry, systems.index(label(entry)))
        for each in others:
            if (each.viewpoints, each.protocol) == experiment:
                draw_published(axes, each.published.error, systems.index(quoted_label(each)))
        axes.tick_params(labelbottom=True)
        axes.tick_params(axis="y", labelsize=TEXT, length=0)
    axes.set_xlim(0, 1.04 * max(ends))
    axes.set_ylim(len(systems) - 0.5, -0.5)
    axes.set_yticks(range(len(systems)), [literal(system) for system in systems])
    handles = seed_handles(published=any(entry.row.published for entry in entries) or bool(others))
    never = Line2D([], [], color=MUTED, linestyle="none", marker="o", markersize=7, markerfacecolor="white")
    never.set_label("never came to that error: at its lowest")
    figure.legend(handles=[*handles, never], loc="outside upper left", ncols=3, frameon=False, fontsize=TEXT)
    explain_signs(figure, systems)
    save(figure, path)


def quoted_label(each: Quoted) -> str:
    return f"{each.system}, quoted"


def _compared(axes: Axes, entry: Entry, level: int) -> list[float]:
    """One system's line; how far it reaches."""
    matches = entry.matches()
    hollow = not all(match.reached for match in matches)
    ends = draw_seeds(axes, [match.novel for match in matches], level, style(entry), hollow=hollow)
    published = entry.row.published if entry.row.recipe != "best" else None
    if published is not None:
        draw_published(axes, published.error, level)
        ends.append(published.error)
    return ends

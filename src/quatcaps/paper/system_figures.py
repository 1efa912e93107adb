"""How the compared systems come to their errors: where the rate hardly falls, the last epoch is a draw."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, ScalarFormatter

from quatcaps.paper.collection import Entry
from quatcaps.paper.marks import Look, explain_signs, label, style
from quatcaps.report.canvas import MUTED, RULE, TEXT, WIDTH, dress, literal, new_figure, save

ACROSS = 4
"""Panels beside each other."""
LETTERS = 25
"""In a line of a panel's title."""
TICKS = (1, 2, 5, 10, 20, 50)
AVERAGED: Look = {"linestyle": "none", "markeredgecolor": "black", "markersize": 7}
PUBLISHED: Look = {"color": MUTED, "linestyle": "--", "linewidth": 1.4}


def draw_epochs(entries: Sequence[Entry], path: Path) -> None:
    """The test error after every epoch of every run in which all images were measured on the way, one panel for each
    row, with the lowest, the last, and that of the averaged weights beside it; nothing where there is no such run."""
    shown = [(entry, curves) for entry in entries if (curves := curves_of(entry))]
    if not shown:
        return
    down = -(-len(shown) // ACROSS)
    figure = new_figure(WIDTH, 1.2 + 3.0 * down)
    panels = figure.subplots(down, min(ACROSS, len(shown)), sharey=True, squeeze=False).flatten()
    for axes in panels[len(shown) :]:
        axes.remove()
    for number, (axes, (entry, curves)) in enumerate(zip(panels, shown, strict=False)):
        dress(axes, literal(textwrap.fill(label(entry), LETTERS)), "epoch", "" if number % ACROSS else "test error (%)")
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        colour = style(entry).colour
        for curve in curves:
            axes.plot(*zip(*curve, strict=True), color=colour, linewidth=0.9)
            lowest, last = min(curve, key=lambda point: point[1]), curve[-1]
            axes.plot(*lowest, marker="v", color=colour, markeredgecolor="white", markersize=9)
            axes.plot(*last, marker="o", color=colour, markeredgecolor="white", markersize=8)
        for error in entry.averaged():
            axes.plot(entry.records[0].config.epochs, error, marker="D", color=colour, **AVERAGED)
        if entry.row.published is not None:
            axes.axhline(entry.row.published.error, **PUBLISHED)
        axes.set_yscale("log")
        axes.set_xlim(left=0)
    panels[0].set_yticks(TICKS)
    panels[0].yaxis.set_major_formatter(ScalarFormatter())
    panels[0].yaxis.set_minor_formatter(NullFormatter())
    averaged = [error for entry, _ in shown for error in entry.averaged()]
    every = [*averaged, *(error for _, curves in shown for curve in curves for _, error in curve)]
    ends = [curve[-1][1] for _, curves in shown for curve in curves]
    panels[0].set_ylim(min(1.0, 0.8 * min(error for error in every if error)), max(20.0, *ends))
    handles = [
        Line2D([], [], color=MUTED, linewidth=0.9, label="one run"),
        Line2D([], [], color=MUTED, linestyle="none", marker="v", markersize=9, label="its lowest epoch"),
        Line2D([], [], color=MUTED, linestyle="none", marker="o", markersize=8, label="its last epoch"),
        *(Line2D([], [], color=MUTED, marker="D", **AVERAGED, label="averaged weights") for _ in averaged[:1]),
        Line2D([], [], **PUBLISHED, label="published"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), frameon=False, fontsize=TEXT)
    explain_signs(figure, [label(entry) for entry, _ in shown])
    save(figure, path)


def curves_of(entry: Entry) -> list[list[tuple[int, float]]]:
    """Epochs, counted from 1, and errors in %, of each seed that was followed."""
    found = []
    for record in entry.followed_records():
        points = [(epoch["epoch"] + 1, epoch.get("test_error")) for epoch in record.epochs]
        found.append([(epoch, 100 * error) for epoch, error in points if error is not None])
    return [each for each in found if len(each) > 1]

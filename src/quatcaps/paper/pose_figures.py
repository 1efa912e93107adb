"""The picture of `poses`: R² by layer, and the orientation of toys of unseen kinds, seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from quatcaps.paper.collection import Entry
from quatcaps.paper.pose_tables import median, r2, turn_ratio, values
from quatcaps.report.canvas import INK, MARKERS, MUTED, PALETTE, SMALL, dress, literal, new_figure, save
from quatcaps.training.poses import CHANCE

Number = Callable[[dict[str, Any]], float | None]
EXPERIMENTS = {"toys-many": "unseen kinds of toys", "smallnorb": "smallNORB"}


def draw_poses(entries: Sequence[Entry], path: Path) -> None:
    """Above what layers know, below what class poses are good for."""
    inspected = [entry for entry in entries if entry.row.inspected]
    figure = new_figure(9.6, 7.0)
    grid = figure.subplots(2, 2)
    for axes, (dataset, words) in zip(grid[0], EXPERIMENTS.items(), strict=True):
        draw_layers(axes, [entry for entry in inspected if entry.row.dataset == dataset], words)
    toys = [entry for entry in inspected if entry.row.dataset == "toys-many"]
    draw_seeds(grid[1][0], toys, "orientation of unseen kinds", "median error (°)", median, CHANCE)
    draw_seeds(grid[1][1], inspected, "40° turn, on other toys", "error over shuffled", turn_ratio, 1.0)
    save(figure, path)


def label(entry: Entry) -> str:
    return f"{entry.row.system}, {entry.row.recipe}"


def style(entry: Entry, entries: Sequence[Entry]) -> tuple[str, str]:
    """The colour and marker of a system, the same in every panel."""
    known = list(dict.fromkeys(label(each) for each in entries))
    number = known.index(label(entry))
    return PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]


def draw_layers(axes: Axes, entries: Sequence[Entry], words: str) -> None:
    dress(axes, f"azimuth within a toy, {words}", "layer, from images to classes", "R²")
    for entry in entries:
        if not (records := [record for record in entry.records if record.poses]):
            continue
        layers = list(records[0].poses["within"])
        means = []
        for layer in layers:
            found = [r2(record.poses, "within", layer) for record in records]
            means.append(statistics.fmean(value for value in found if value is not None))
        at = [k / max(1, len(layers) - 1) for k in range(len(layers))]
        colour, marker = style(entry, entries)
        axes.plot(at, means, color=colour, marker=marker, linewidth=1.4, label=literal(label(entry)))
    axes.set_xticks([0, 1], ["first", "classes"])
    axes.set_ylim(min(0.0, axes.get_ylim()[0]), 1.05)
    if axes.get_lines():
        axes.legend(loc="lower left", fontsize=SMALL, frameon=False)


def draw_seeds(axes: Axes, entries: Sequence[Entry], title: str, up: str, of: Number, chance: float) -> None:
    """A dot for every seed, a line at the mean; dashed: chance."""
    dress(axes, title, "", up)
    shown = [(entry, values(entry, of)) for entry in entries]
    shown = [(entry, found) for entry, found in shown if found]
    for at, (entry, found) in enumerate(shown):
        colour, marker = style(entry, entries)
        axes.plot([at] * len(found), found, linestyle="none", marker=marker, color=colour, alpha=0.7)
        axes.hlines(statistics.fmean(found), at - 0.25, at + 0.25, color=INK, linewidth=1.4)
    axes.axhline(chance, color=MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=1)
    names = [f"{label(entry)}\n{EXPERIMENTS[entry.row.dataset]}" for entry, _ in shown]
    axes.set_xticks(range(len(names)), names, fontsize=SMALL, rotation=25, ha="right")
    axes.set_ylim(0, 1.1 * max([chance, *(value for _, found in shown for value in found)]))

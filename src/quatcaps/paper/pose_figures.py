"""The picture of `poses`: R² by layer, and the orientation of toys of unseen kinds, seed by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from quatcaps.paper.collection import Entry
from quatcaps.paper.marks import CHANCE as CHANCE_LINE
from quatcaps.paper.marks import draw_seeds as draw_marks
from quatcaps.paper.marks import label, network_handles, seed_handles, style
from quatcaps.paper.pose_tables import median, r2, turn_ratio, values
from quatcaps.report.canvas import SMALL, TEXT, WIDTH, dress, new_figure, save
from quatcaps.report.intervals import of_mean
from quatcaps.training.poses import CHANCE

Numbers = Callable[[Entry], Sequence[float]]
EXPERIMENTS = {"toys-many": "unseen kinds of toys", "smallnorb": "smallNORB"}


def draw_poses(entries: Sequence[Entry], path: Path) -> None:
    """What layers know, what class poses are good for, and what it costs; experiments without records are left out."""
    measured = [entry for entry in entries if entry.row.inspected and any(record.poses for record in entry.records)]
    by_dataset = {name: [entry for entry in measured if entry.row.dataset == name] for name in EXPERIMENTS}
    toys = by_dataset["toys-many"]
    panels: list[Callable[[Axes], None]] = [
        partial(draw_layers, entries=members, words=EXPERIMENTS[name])
        for name, members in by_dataset.items()
        if members
    ]
    panels += [
        partial(
            draw_seeds,
            entries=toys,
            title="orientation of unseen kinds",
            up="median error (°)",
            of=median_of,
            chance=CHANCE,
        ),
        partial(draw_seeds, entries=toys, title="classes of unseen kinds", up="error (%)", of=error_of, chance=80.0),
        partial(
            draw_seeds,
            entries=measured,
            title="40° turn, on other toys",
            up="error over shuffled",
            of=turn_of,
            chance=1.0,
        ),
    ]
    rows = math.ceil(len(panels) / 2)
    figure = new_figure(WIDTH, 0.9 + 3.5 * rows)
    places = figure.subplots(rows, 2).flat
    for draw, axes in zip(panels, places, strict=False):
        draw(axes)
    for axes in places:
        axes.set_axis_off()
    chance = Line2D([], [], label="chance", **CHANCE_LINE)
    handles = [*network_handles(measured), *seed_handles(published=False, upright=True), chance]
    figure.legend(handles=handles, loc="outside upper left", ncols=3, frameon=False, fontsize=TEXT)
    save(figure, path)


def median_of(entry: Entry) -> list[float]:
    return values(entry, median)


def turn_of(entry: Entry) -> list[float]:
    return values(entry, turn_ratio)


def error_of(entry: Entry) -> Sequence[float]:
    return entry.errors("test")


def draw_layers(axes: Axes, entries: Sequence[Entry], words: str) -> None:
    """The mean over seeds, layer by layer, with its interval."""
    dress(axes, f"azimuth within a toy, {words}", "layer, from images to classes", "R²")
    for entry in entries:
        if not (records := [record for record in entry.records if record.poses]):
            continue
        layers = list(records[0].poses["within"])
        colour, marker = style(entry)
        at, means = [k / max(1, len(layers) - 1) for k in range(len(layers))], []
        for place, layer in zip(at, layers, strict=True):
            found = [value for record in records if (value := r2(record.poses, "within", layer)) is not None]
            means.append(statistics.fmean(found))
            if interval := of_mean(found):
                axes.vlines(place, *interval, color=colour, linewidth=1.4)
        axes.plot(at, means, color=colour, marker=marker, linewidth=1.4)
    axes.set_xticks([0, 1], ["first", "classes"])
    axes.set_ylim(min(0.0, axes.get_ylim()[0]), 1.05)


def draw_seeds(axes: Axes, entries: Sequence[Entry], title: str, up: str, of: Numbers, chance: float) -> None:
    """Every seed with the mean and its interval; dashed: chance, or told in words where it is far above."""
    shown = [(entry, found) for entry in entries if (found := of(entry))]
    highest = max((value for _, found in shown for value in found), default=chance)
    near = chance < 2 * highest
    dress(axes, title if near else f"{title} (chance: {chance:.3g})", "", up)
    for at, (entry, found) in enumerate(shown):
        highest = max([highest, *draw_marks(axes, found, at, style(entry), upright=True)])
    if near:
        axes.axhline(chance, zorder=1, **CHANCE_LINE)
    several = len({entry.row.dataset for entry, _ in shown}) > 1
    names = [f"{label(entry)}\n{EXPERIMENTS[entry.row.dataset]}" if several else label(entry) for entry, _ in shown]
    axes.set_xticks(range(len(names)), names, fontsize=SMALL, rotation=25, ha="right")
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylim(0, 1.1 * max(highest, chance if near else 0.0))

"""The picture of errors by toy: systems down, toys across."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from quatcaps.paper.evidence_figures import Lines
from quatcaps.paper.evidence_lines import label
from quatcaps.paper.evidence_rows import EXPERIMENTS
from quatcaps.paper.evidence_statistics import class_of
from quatcaps.paper.evidence_toys import ToyErrors, errors_by_toy
from quatcaps.report.canvas import SMALL, TEXT, WIDTH, dress, literal, new_figure, readable_on, save

COLOURS, SCALE = colormaps["Blues"], PowerNorm(0.5, 0, 100)
"""Square roots: a toy with errors of 5% is to be told from one without."""
MOST_WRITTEN = 25
"""Toys across of which numbers can be read."""


def draw_toys(lines: Lines, path: Path) -> None:
    """A panel for each experiment; nothing where none has errors by toy."""
    found = errors_by_toy(lines)
    if not found:
        return
    rows = [len(members) for members in found.values()]
    figure = new_figure(WIDTH, 0.4 + 0.9 * len(rows) + 0.27 * sum(rows))
    panels = figure.subplots(len(rows), 1, squeeze=False, height_ratios=rows)[:, 0]
    for axes, (name, members) in zip(panels, found.items(), strict=True):
        dress(axes, f"{EXPERIMENTS[name].title}: error by toy (%)", "", "")
        _panel(axes, members)
    save(figure, path)


def _panel(axes: Axes, members: Sequence[ToyErrors]) -> None:
    toys = max((each.sample.toys for each in members), key=len)
    percents = np.array([each.percents for each in members if each.sample.toys == toys])
    axes.imshow(percents, cmap=COLOURS, norm=SCALE, aspect="auto")
    if len(toys) <= MOST_WRITTEN:
        for (down, across), percent in np.ndenumerate(percents):
            if percent >= 0.5:
                colour = readable_on(COLOURS(SCALE(percent)))
                axes.text(across, down, f"{percent:.0f}", ha="center", va="center", fontsize=SMALL, color=colour)
    classes = [class_of(toy) for toy in toys]
    for place in [place + 0.5 for place, (one, other) in enumerate(pairwise(classes)) if one != other]:
        axes.axvline(place, color="white", linewidth=3)
    axes.set_xticks(range(len(toys)), ticks(toys))
    axes.set_yticks(
        range(len(percents)), [literal(label(each.line.entry.row)) for each in members if each.sample.toys == toys]
    )
    axes.tick_params(length=0)
    axes.tick_params(axis="y", labelsize=TEXT)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def ticks(toys: Sequence[str]) -> list[str]:
    """The numbers of toys; below the one in the middle of each class, its name. All have two lines, to stand level.

    >>> ticks(["car 0", "car 3", "car 5", "truck 1"])
    ['0\\n ', '3\\ncar', '5\\n ', '1\\ntruck']
    """
    classes = [class_of(toy) for toy in toys]
    middle = {name: classes.index(name) + classes.count(name) // 2 for name in classes}
    numbers = [toy.rsplit(" ", 1)[1] for toy in toys]
    return [
        f"{number}\n{name if middle[name] == place else ' '}"
        for place, (number, name) in enumerate(zip(numbers, classes, strict=True))
    ]

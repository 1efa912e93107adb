"""The pictures of `evidence`: forest plots of the errors at the end of training, and of differences from QCN."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from quatcaps.paper.evidence_lines import Line
from quatcaps.paper.evidence_rows import CONTENDERS, EXPERIMENTS, PART, PARTS, REFERENCE, SYSTEMS, TAUGHT, system_of
from quatcaps.paper.evidence_statistics import Estimate
from quatcaps.paper.marks import Look, style
from quatcaps.report.canvas import INK, MUTED, RULE, SMALL, TEXT, WIDTH, dress, literal, new_figure, save, tint
from quatcaps.report.styles import BEST, Style

ON_TOYS = tuple(name for name, each in EXPERIMENTS.items() if each.of_toys)
OTHERS = tuple(name for name in EXPERIMENTS if name not in ON_TOYS)
GROUPS = (
    ("azimuth-strict", "elevation-strict", "smallnorb"),
    ("azimuth-pooled", "elevation-pooled"),
    ("azimuth-long", "elevation-long"),
    ("azimuth-default", "elevation-default"),
)
"""Experiments on smallNORB of which most systems are the same: one row of panels each."""
GAP = 0.8
"""Between systems and parts of QCN, in lines."""
LETTERS = 32
"""In a line of a panel's title."""
BELOW = 0.3
"""Seeds stand so far below their mean."""
NUMBERS = 6
"""Along an axis of small differences, at most: they are long."""
ONE_SEED: Look = {"linestyle": "none", "marker": "|", "markersize": 6, "markeredgewidth": 1.0}
QCN_LINE: Look = {"color": BEST.colour, "linewidth": 1.2, "linestyle": (0, (4, 2)), "zorder": 1}
POINTS = "points, less QCN"
Lines = Mapping[str, Sequence[Line]]


def draw_evidence(lines: Lines, path: Path) -> None:
    """Errors on smallNORB; and where there are any, `…-differences.png`, what they are less QCN's, and
    `…-datasets.png`, both on other datasets."""
    of_toys = measured({name: lines[name] for name in ON_TOYS})
    _draw_on_toys(of_toys, path, draw_errors, "error (%)", error_handles(familiar=True))
    if any(line.differences for members in of_toys.values() for line in members):
        differences = path.with_name(f"{path.stem}-differences{path.suffix}")
        _draw_on_toys(of_toys, differences, draw_differences, POINTS, difference_handles())
    others = measured({name: lines[name] for name in OTHERS})
    others = {name: members for name, members in others.items() if any(line.samples for line in members)}
    if others:
        _draw_datasets(others, path.with_name(f"{path.stem}-datasets{path.suffix}"))


def measured(lines: Lines) -> Lines:
    """The experiments in which two systems or more have a run, and these systems; where there is none, all."""
    found = {name: [line for line in members if line.samples] for name, members in lines.items()}
    return {name: members for name, members in found.items() if len(members) > 1} or lines


def _draw_on_toys(
    lines: Lines,
    path: Path,
    draw: Callable[[Axes, Sequence[Line], Mapping[str, float]], list[float]],
    across: str,
    handles: list[Line2D],
) -> None:
    """A row for each group of experiments, a panel for each, systems down. Panels of one protocol share a scale."""
    rows = [{name: lines[name] for name in group if name in lines} for group in GROUPS]
    rows = [row for row in rows if row]
    left_out = () if draw is draw_errors else (REFERENCE,)
    levels = [levels_of(row, left_out) for row in rows]
    heights = [max(down.values()) + 1 for down in levels]
    figure = new_figure(WIDTH, 0.5 + 0.28 * sum(heights) + 0.85 * len(rows))
    panels = figure.subplots(len(rows), max(map(len, rows)), sharey="row", squeeze=False, height_ratios=heights)
    ends = {EXPERIMENTS[name].protocol: [0.0] for name in lines}
    drawn: dict[str, Axes] = {}
    for row, down, places in zip(rows, levels, panels, strict=True):
        for axes, (name, members) in zip(places, row.items(), strict=False):
            dress(axes, textwrap.fill(EXPERIMENTS[name].title, LETTERS), across, "")
            ends[EXPERIMENTS[name].protocol] += draw(axes, members, down)
            _name_lines(axes, down, [line for found in row.values() for line in found])
            drawn[name] = axes
        for axes in places[len(row) :]:
            axes.set_axis_off()
    for name, axes in drawn.items():
        _scale(axes, ends[EXPERIMENTS[name].protocol], from_zero=draw is draw_errors)
    figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=TEXT)
    _explain(figure, levels)
    save(figure, path)


def _draw_datasets(lines: Lines, path: Path) -> None:
    """A row for each dataset, errors on the left, differences on the right; every one has scales of its own, which need
    not begin at 0, as errors are far apart between datasets and close within."""
    levels = levels_of(lines)
    figure = new_figure(WIDTH, 0.9 + (0.85 + 0.28 * (max(levels.values()) + 1)) * len(lines))
    panels = figure.subplots(len(lines), 2, sharey="row", squeeze=False)
    for (name, members), (errors, differences) in zip(lines.items(), panels, strict=True):
        dress(errors, EXPERIMENTS[name].title, "error (%)", "")
        dress(differences, "", POINTS, "")
        _scale(errors, draw_errors(errors, members, levels), from_zero=False)
        _scale(differences, [0.0, *draw_differences(differences, members, levels)], from_zero=False)
        for axes in (errors, differences):
            _name_lines(axes, levels, members)
            axes.locator_params(axis="x", nbins=NUMBERS)
    handles = [*error_handles(familiar=False), *difference_handles()[1:]]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=TEXT)
    _explain(figure, [levels])
    save(figure, path)


def _explain(figure: Figure, levels: Sequence[Mapping[str, float]]) -> None:
    """Says below the picture what EM* is; it is not trained as the paper does here."""
    if any("em" in each for each in levels):
        words = "EM*: matrix capsules with EM routing, the network of the QCN paper."
        figure.supxlabel(words, x=0.02, ha="left", fontsize=SMALL, color=MUTED)


def _scale(axes: Axes, ends: Sequence[float], *, from_zero: bool) -> None:
    """An axis with room for everything, which begins at 0 or has it well inside."""
    room = 0.08 * (max(ends) - min(ends) or 1.0)
    axes.set_xlim(0.0 if from_zero else min(ends) - room, max(ends) + room)


def levels_of(lines: Lines, without: Collection[str] = ()) -> dict[str, float]:
    """How far down each system stands: first systems, then those that are pretrained, then QCN with a part changed.
    What a single experiment has is left to its table."""
    shown = {system_of(line.entry.row) for members in lines.values() for line in members}
    ordered = [key for key in (*SYSTEMS, *TAUGHT, *PARTS) if key in shown and key not in without] or [REFERENCE]
    return {key: number + GAP * (CONTENDERS[key].recipe == PART) for number, key in enumerate(ordered)}


def draw_errors(axes: Axes, lines: Sequence[Line], levels: Mapping[str, float]) -> list[float]:
    """Every system's mean with its interval, seeds faintly behind it, familiar errors hollow; how far it reaches."""
    ends: list[float] = []
    for line in lines:
        if (level := levels.get(system_of(line.entry.row))) is None:
            continue
        drawn = style(line.entry)
        for name, sample in line.samples.items():
            familiar = name == "test" and "novel" in line.samples
            seeds = sample.percents.tolist()
            axes.plot(seeds, [level + BELOW] * len(seeds), color=tint(drawn.colour, 0.55), zorder=2, **ONE_SEED)
            ends += [*seeds, *draw_estimate(axes, line.means[name], level, drawn, hollow=familiar)]
        if system_of(line.entry.row) == REFERENCE and line.means:
            axes.axvline(line.means["novel" if "novel" in line.means else "test"].mean, **QCN_LINE)
    return ends


def draw_differences(axes: Axes, lines: Sequence[Line], levels: Mapping[str, float]) -> list[float]:
    """What each system's error is less QCN's, on novel images where there are any; hollow where the interval has 0 in
    it, or is missing."""
    ends: list[float] = []
    axes.axvline(0, **QCN_LINE)
    for line in lines:
        found = line.differences.get("novel" if "novel" in line.samples else "test")
        level = levels.get(system_of(line.entry.row))
        if found is not None and level is not None:
            ends += draw_estimate(axes, found, level, style(line.entry), hollow=not found.sign)
    return ends


def draw_estimate(axes: Axes, found: Estimate, level: float, drawn: Style, *, hollow: bool) -> list[float]:
    """A mark with its interval; how far it reaches."""
    ends = [found.mean]
    if found.low is not None and found.high is not None:
        axes.hlines(level, found.low, found.high, color=drawn.colour, linewidth=1.2 if hollow else 2.0, zorder=3)
        ends += [found.low, found.high]
    face, edge = ("white", drawn.colour) if hollow else (drawn.colour, "white")
    look: Look = {"marker": drawn.marker, "markersize": 7.5, "linestyle": "none", "markeredgewidth": 1.1}
    axes.plot([found.mean], [level], markerfacecolor=face, markeredgecolor=edge, zorder=4, **look)
    return ends


def _name_lines(axes: Axes, levels: Mapping[str, float], lines: Sequence[Line]) -> None:
    """Systems along the y axis with their parameters, and a light rule above the parts of QCN."""
    counted = {
        system_of(line.entry.row): line.entry.records[0].parameters for line in reversed(lines) if line.entry.records
    }
    names = [literal(tick(key, counted.get(key))) for key in levels]
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=RULE, linewidth=0.8)
    axes.set_ylim(max(levels.values()) + 0.6, -0.6)
    axes.set_yticks(list(levels.values()), names)
    axes.tick_params(axis="y", labelsize=TEXT, length=0)
    parts = [level for key, level in levels.items() if CONTENDERS[key].recipe == PART]
    if parts:
        between = min(parts) - 0.5 - GAP / 2
        axes.axhline(between, color=MUTED, linewidth=0.6, zorder=1)
        place = axes.get_subplotspec()
        if place is not None and place.is_first_col():
            look: Look = {"transform": axes.get_yaxis_transform(), "color": MUTED, "fontsize": SMALL}
            axes.text(-0.02, between, "QCN with", ha="right", va="center", **look)


def tick(system: str, parameters: int | None) -> str:
    """A system's name with its parameters, where they are counted and its name does not say them.

    >>> tick("cnn", 4_253_349), tick("resnet-153k", 153_269), tick("em", None)
    ('CNN 4.3M', 'ResNet 153K', 'EM*')
    """
    name = CONTENDERS[system].name
    if parameters is None or re.search(r"\dK\b", name):
        return name
    return f"{name} {parameters / 1e6:.1f}M" if parameters >= 1e6 else f"{name} {parameters / 1e3:.0f}K"


def error_handles(*, familiar: bool) -> list[Line2D]:
    """What the marks of `draw_errors` mean."""
    mark: Look = {"marker": "o", "markersize": 7.5, "color": INK}
    words = (
        "novel viewpoints, or test images:\nmean with its 95% interval" if familiar else "mean with its 95% interval"
    )
    handles = [
        Line2D([], [], label="QCN", **{name: value for name, value in QCN_LINE.items() if name != "zorder"}),
        Line2D([], [], linewidth=2.0, markeredgecolor="white", label=words, **mark),
        Line2D([], [], label="one seed", color=tint(INK, 0.55), **ONE_SEED),
    ]
    if familiar:
        words = "familiar viewpoints (strict protocol)"
        handles.insert(2, Line2D([], [], linewidth=1.2, markerfacecolor="white", label=words, **mark))
    return handles


def difference_handles() -> list[Line2D]:
    """What the marks of `draw_differences` mean."""
    mark: Look = {"marker": "o", "markersize": 7.5, "color": INK}
    qcn = Line2D([], [], label="QCN", **{name: value for name, value in QCN_LINE.items() if name != "zorder"})
    apart = Line2D(
        [], [], linewidth=2.0, markeredgecolor="white", label="difference; its 95% interval excludes 0", **mark
    )
    not_apart = Line2D([], [], linewidth=1.2, markerfacecolor="white", label="… includes 0, or there is none", **mark)
    return [qcn, apart, not_apart]

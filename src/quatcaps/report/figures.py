"""Pictures of runs, evaluations and datasets, as PNG files that are there whole or not at all."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from quatcaps.errors import QuatcapsError
from quatcaps.report.canvas import (
    INK,
    MUTED,
    SHADE,
    SMALL,
    TEXT,
    WIDTH,
    dress,
    error_axis,
    literal,
    new_figure,
    places,
    rates_by,
    readable_on,
    save,
    shade_familiar,
    spacing,
    tint,
    viewpoint_axis,
)
from quatcaps.report.contact import contact_sheet
from quatcaps.report.curves import training_curves
from quatcaps.report.intervals import wilson
from quatcaps.report.styles import network_style, styles_for
from quatcaps.report.tables import MANY_CLASSES
from quatcaps.training.measure import Evaluation, Rate

__all__ = ["contact_sheet", "error_by_viewpoint", "evaluation_figure", "training_curves"]

Panel = Callable[[Axes], None]
WILSON = "95% interval (Wilson)"
LOW, TALL = 3.7, 5.7
"""Inches of a row of panels; tall are those with a line for each of many classes."""
FEW_CLASSES = 10
"""The most whose confusion matrix has room for its numbers beside another panel."""


def error_by_viewpoint(evaluations: Mapping[str, Evaluation], field: str, familiar: Sequence[int], path: Path) -> None:
    """The error of each model by `azimuth` or `elevation`, the familiar ones (in degrees) shaded.

    Azimuths go around the circle with the familiar ones in the middle; the labels are the dataset's own degrees.
    """
    rates = {name: rates_by(evaluation, field) for name, evaluation in evaluations.items()}
    placed = places(field, {angle for counted in rates.values() for angle in counted}, familiar)
    if not placed:
        raise QuatcapsError(f"no evaluation of {', '.join(rates) or 'nothing'} knows the {field} of its images")
    figure = new_figure(WIDTH, 4.4)
    axes = figure.subplots()
    dress(axes, f"Error by {field}", f"{field} (°)", "error (%)")
    styles = styles_for(rates)
    for name, counted in rates.items():
        angles = [angle for angle in placed if angle in counted]
        at = [placed[angle] for angle in angles]
        axes.plot(
            at,
            [counted[angle].percent for angle in angles],
            label=literal(name),
            color=styles[name].colour,
            marker=styles[name].marker,
            linewidth=1.8,
            markersize=6,
        )
        low, high = zip(*(wilson(counted[angle]) for angle in angles), strict=True)
        axes.vlines(at, low, high, color=styles[name].colour, linewidth=1.0, alpha=0.7)
    viewpoint_axis(axes, placed)
    shade_familiar(axes, placed, familiar)
    classes = {len(evaluation.classes) for evaluation in evaluations.values()}
    error_axis(
        axes,
        (wilson(rate).high for counted in rates.values() for rate in counted.values()),
        classes.pop() if len(classes) == 1 else 0,
    )
    handles = [*axes.get_legend_handles_labels()[0], _upright(), *_familiar(set(familiar) & set(placed), field)]
    figure.legend(handles=handles, loc="outside upper left", ncols=5, frameon=False, fontsize=TEXT)
    save(figure, path)


def evaluation_figure(evaluation: Evaluation, path: Path, familiar: Sequence[int] = (), network: str = "") -> None:
    """One evaluation in one picture: the confusion matrix, and the error by class, azimuth and elevation, with its
    interval.

    Panels without data are left out. `familiar` azimuths, in degrees, are shaded. `network`: the model or the weights
    whose colour the bars have.
    """
    colour, panels = network_style(network).colour, list[Panel]()
    if any(any(row) for row in evaluation.confusion):
        panels.append(partial(_confusion_panel, evaluation=evaluation))
    if any(evaluation.by_class):
        panels.append(partial(_class_panel, evaluation=evaluation, colour=colour))
    by_viewpoint = [*evaluation.by_azimuth.values(), *evaluation.by_elevation.values()]
    highest = max((wilson(rate).high for rate in by_viewpoint), default=0.0)
    draw = partial(_viewpoint_panel, colour=colour, highest=highest)
    if evaluation.by_azimuth:
        panels.append(partial(draw, field="azimuth", rates=evaluation.by_azimuth, familiar=familiar))
    if evaluation.by_elevation:
        panels.append(partial(draw, field="elevation", rates=evaluation.by_elevation, familiar=()))
    if not panels:
        raise QuatcapsError(f"the evaluation of {evaluation.name} counts no image: there is nothing to draw")
    columns, alone = min(2, len(panels)), FEW_CLASSES < len(evaluation.classes) <= MANY_CLASSES
    rows = rows_of(panels, alone=alone)
    by_name = 0 if len(evaluation.classes) <= FEW_CLASSES else 2 if alone else 1
    heights = [TALL if number < by_name else LOW for number in range(len(rows))]
    figure = new_figure(WIDTH * columns / 2, 0.8 + sum(heights))
    total = evaluation.total
    low, high = wilson(total)
    figure.suptitle(
        f"{literal(evaluation.name)}: error {total.percent:.2f}% ({total.errors:,} of {total.images:,} images; "
        f"95% interval {low:.2f} to {high:.2f}%)",
        x=0.02,
        ha="left",
        fontsize=TEXT + 0.5,
        color=INK,
    )
    grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
    for number, row in enumerate(rows):
        for column, panel in enumerate(row):
            panel(figure.add_subplot(grid[number, :] if len(row) < columns else grid[number, column]))
    handles: list[Artist] = [Patch(color=tint(colour), label="error"), _upright(INK)]
    if any(any(row) for row in evaluation.confusion):
        few = len(evaluation.classes) <= MANY_CLASSES
        words = "darker: more of the class shown" if few else "darker: more images"
        handles.append(Patch(color=matplotlib.colormaps["Blues"](0.7), label=words))
    handles += _familiar(set(familiar) & set(evaluation.by_azimuth), "azimuth")
    figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=TEXT)
    save(figure, path)


def rows_of(panels: list[Panel], *, alone: bool) -> list[list[Panel]]:
    """Two panels to a row; `alone`: the first has a row of its own, if there are others."""
    first = panels[:1] if alone and len(panels) > 1 else []
    rest = panels[len(first) :]
    pairs = [rest[start : start + 2] for start in range(0, len(rest), 2)]
    return [first, *pairs] if first else pairs


def _upright(colour: str = MUTED) -> Line2D:
    """The legend's mark of an interval."""
    return Line2D([], [], color=colour, linestyle="none", marker="|", markersize=11, label=WILSON)


def _familiar(angles: set[int], field: str) -> list[Artist]:
    """The legend's mark of shaded viewpoints, if any are."""
    return [Patch(color=SHADE, label=f"familiar {field}s")] if angles else []


def _confusion_panel(axes: Axes, evaluation: Evaluation) -> None:
    """Images by class shown and named: of few classes as numbers, the colour being their share of the class shown; of
    many as colours alone."""
    few = len(evaluation.classes) <= MANY_CLASSES
    dress(axes, "Confusion matrix (images)", "class named", "class shown")
    if few:
        shares = [[count / max(1, sum(row)) for count in row] for row in evaluation.confusion]
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        _counts(axes, evaluation, shares)
    else:
        # Single confusions of many classes are a few images: square roots show them beside the diagonal.
        most = max(1, *(count for row in evaluation.confusion for count in row))
        image = axes.imshow(evaluation.confusion, cmap="Blues", norm=PowerNorm(0.5, 0, most), aspect="auto")
        scale = axes.figure.colorbar(image, ax=axes, ticks=_whole_numbers(most), pad=0.02, format="{x:,.0f}")
        scale.ax.tick_params(labelsize=SMALL, colors=INK, length=3, color=MUTED)
        scale.ax.minorticks_off()
        scale.outline.set_visible(False)
    marks = range(0, len(evaluation.classes), -(-len(evaluation.classes) // MANY_CLASSES))
    names = _written([evaluation.classes[mark] for mark in marks])
    below = _written([evaluation.classes[mark] for mark in marks], 9)
    axes.set_xticks(marks, below, rotation=0 if len(marks) <= 5 else 90)
    axes.set_yticks(marks, names)
    axes.tick_params(length=0 if few else 3)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def _whole_numbers(most: int) -> list[int]:
    """Ticks of a scale of counts: 0, 1 and round numbers up to `most`, which has a tick of its own."""
    ticks = {int(tick) for tick in MaxNLocator(5, integer=True).tick_values(0, most) if 1 < tick < 0.93 * most}
    return sorted({0, 1, most} | ticks)


def _counts(axes: Axes, evaluation: Evaluation, shares: Sequence[Sequence[float]]) -> None:
    """The number in each cell of a confusion matrix."""
    shade = matplotlib.colormaps["Blues"]
    for shown, row in enumerate(evaluation.confusion):
        for named, count in enumerate(row):
            colour = readable_on(shade(shares[shown][named])) if count else MUTED
            axes.text(named, shown, f"{count:,}", ha="center", va="center", fontsize=SMALL, color=colour)


def _class_panel(axes: Axes, evaluation: Evaluation, colour: str) -> None:
    """A bar for each class; of many, for those with the largest errors."""
    rates = list(zip(evaluation.classes, evaluation.by_class, strict=True))
    title = "Error by class"
    if len(rates) > MANY_CLASSES:
        rates = sorted(rates, key=lambda each: -(each[1].percent if each[1] else -1.0))[:MANY_CLASSES]
        title += f": the {MANY_CLASSES} largest of {len(evaluation.classes)}"
    dress(axes, title, "error (%)", "")
    axes.grid(False)
    marks = range(len(rates))
    axes.barh(marks, [rate.percent if rate else 0.0 for _, rate in rates], height=0.7, color=tint(colour))
    highest = 0.0
    for mark, (_, rate) in zip(marks, rates, strict=True):
        low, high = wilson(rate) if rate else (0.0, 0.0)
        if rate:
            axes.hlines(mark, low, high, color=INK, linewidth=1.2)
        told = f"{rate.percent:.1f}" if rate else "no images"
        beside: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(told, (high, mark), fontsize=SMALL, color=INK, **beside)
        highest = max(highest, high)
    axes.set_yticks(marks, _written([name for name, _ in rates]))
    axes.invert_yaxis()
    axes.set_xlim(0, min(max(1.2 * highest, 1.0), 115))


def _viewpoint_panel(
    axes: Axes, field: str, rates: Mapping[int, Rate], familiar: Sequence[int], colour: str, highest: float
) -> None:
    """A bar for each viewpoint, on an axis up to what `highest` needs, which panels side by side share."""
    dress(axes, f"Error by {field}", f"{field} (°)", "error (%)")
    placed = places(field, rates, familiar)
    at, shown = list(placed.values()), [rates[angle] for angle in placed]
    axes.bar(at, [rate.percent for rate in shown], width=0.75 * spacing(placed), color=tint(colour))
    low, high = zip(*map(wilson, shown), strict=True)
    axes.vlines(at, low, high, color=INK, linewidth=1.2)
    viewpoint_axis(axes, placed)
    shade_familiar(axes, placed, familiar)
    if len(placed) > 10:
        axes.tick_params(axis="x", rotation=90)
    error_axis(axes, [highest])


def _written(names: Sequence[str], letters: int = 12) -> list[str]:
    """Names of classes along an axis: a few on lines of so many letters, many shortened to one line."""
    if len(names) <= FEW_CLASSES:
        return [literal(textwrap.fill(name, letters)) for name in names]
    return [literal(name if len(name) <= 18 else f"{name[:17]}…") for name in names]

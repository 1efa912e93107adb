"""Pictures of runs, evaluations and datasets, as PNG files that are there whole or not at all."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from quatcaps.errors import QuatcapsError
from quatcaps.report.canvas import (
    INK,
    MARKERS,
    MUTED,
    PALETTE,
    SMALL,
    TEXT,
    dress,
    error_axis,
    literal,
    new_figure,
    places,
    rates_by,
    save,
    shade_familiar,
    spacing,
    viewpoint_axis,
)
from quatcaps.report.contact import contact_sheet
from quatcaps.report.tables import MANY_CLASSES
from quatcaps.training.log import Record
from quatcaps.training.measure import Evaluation, Rate

__all__ = ["contact_sheet", "error_by_viewpoint", "evaluation_figure", "training_curves"]

MARKED_EPOCHS = 30
"""The most epochs whose points are marked one by one."""


def training_curves(logs: Mapping[str, Sequence[Record]], path: Path) -> None:
    """Loss, and training and test error in %, against the epoch, for the log of each model."""
    figure = new_figure(9.6, 4.0)
    loss_axes, error_axes = figure.subplots(1, 2)
    dress(loss_axes, "Training loss", "epoch", "loss")
    dress(error_axes, "Error", "epoch", "error (%)")
    losses, errors, epochs = [0.0], [0.0], [0]
    for index, log in enumerate(logs.values()):
        for axes, key, scale, seen in (
            (loss_axes, "loss", 1.0, losses),
            (error_axes, "error", 100.0, errors),
            (error_axes, "test_error", 100.0, errors),
        ):
            at, values = _epoch_values(log, key, scale)
            axes.plot(at, values, **_curve(_colour(index), _marker(index), key == "test_error", len(at)))
            epochs += at
            seen += values
    for axes in (loss_axes, error_axes):
        _epoch_axis(axes, max(epochs))
    loss_axes.set_ylim(0, 1.08 * max(losses) or 1.0)
    error_axis(error_axes, errors)
    models = [Line2D([], [], color=_colour(index), linewidth=4, label=literal(name)) for index, name in enumerate(logs)]
    kinds = [
        Line2D([], [], label=label, **_curve(MUTED, "o", test, 1))
        for label, test in (("training", False), ("test", True))
    ]
    figure.legend(handles=[*models, *kinds], loc="outside upper left", ncols=6, frameon=False, fontsize=TEXT)
    save(figure, path)


def error_by_viewpoint(evaluations: Mapping[str, Evaluation], field: str, familiar: Sequence[int], path: Path) -> None:
    """The error of each model by `azimuth` or `elevation`, the familiar ones (in degrees) shaded.

    Azimuths go around the circle with the familiar ones in the middle; the labels are the dataset's own degrees.
    """
    rates = {name: rates_by(evaluation, field) for name, evaluation in evaluations.items()}
    placed = places(field, {angle for counted in rates.values() for angle in counted}, familiar)
    if not placed:
        raise QuatcapsError(f"no evaluation of {', '.join(rates) or 'nothing'} knows the {field} of its images")
    figure = new_figure(9.6, 4.2)
    axes = figure.subplots()
    dress(axes, f"Error by {field}", f"{field} (°)", "error (%)")
    for index, (name, counted) in enumerate(rates.items()):
        angles = [angle for angle in placed if angle in counted]
        axes.plot(
            [placed[angle] for angle in angles],
            [counted[angle].percent for angle in angles],
            label=literal(name),
            color=_colour(index),
            marker=_marker(index),
            linewidth=1.8,
            markersize=6,
        )
    viewpoint_axis(axes, placed)
    shade_familiar(axes, placed, familiar)
    classes = {len(evaluation.classes) for evaluation in evaluations.values()}
    error_axis(
        axes,
        (rate.percent for counted in rates.values() for rate in counted.values()),
        classes.pop() if len(classes) == 1 else 0,
    )
    figure.legend(loc="outside upper left", ncols=5, frameon=False, fontsize=TEXT)
    save(figure, path)


def evaluation_figure(evaluation: Evaluation, path: Path, familiar: Sequence[int] = ()) -> None:
    """One evaluation in one picture: the confusion matrix, and the error by class, azimuth and elevation.

    Panels without data are left out. `familiar` azimuths, in degrees, are shaded.
    """
    panels: list[Callable[[Axes], None]] = []
    if any(any(row) for row in evaluation.confusion):
        panels.append(partial(_confusion_panel, evaluation=evaluation))
    if any(evaluation.by_class):
        panels.append(partial(_class_panel, evaluation=evaluation))
    if evaluation.by_azimuth:
        panels.append(partial(_viewpoint_panel, field="azimuth", rates=evaluation.by_azimuth, familiar=familiar))
    if evaluation.by_elevation:
        panels.append(partial(_viewpoint_panel, field="elevation", rates=evaluation.by_elevation, familiar=()))
    if not panels:
        raise QuatcapsError(f"the evaluation of {evaluation.name} counts no image: there is nothing to draw")
    rows = math.ceil(len(panels) / 2)
    columns = min(2, len(panels))
    figure = new_figure(5.2 * columns, 0.4 + 4.0 * rows)
    total = evaluation.total
    figure.suptitle(
        f"{literal(evaluation.name)}: error {total.percent:.2f}% ({total.errors:,} of {total.images:,} images)",
        x=0.02,
        ha="left",
        fontsize=TEXT + 1,
        color=INK,
    )
    grid = figure.add_gridspec(rows, columns)
    for index, panel in enumerate(panels):
        alone = index == len(panels) - 1 and index % 2 == 0
        panel(figure.add_subplot(grid[index // 2, :] if alone else grid[index // 2, index % 2]))
    save(figure, path)


def _epoch_values(log: Sequence[Record], key: str, scale: float) -> tuple[list[int], list[float]]:
    """The finished epochs, counted from 1, that have a finite value of `key`, and these values."""
    found = [
        (int(record["epoch"]) + 1, scale * float(record[key]))
        for record in log
        if record["kind"] == "epoch" and record.get(key) is not None and math.isfinite(record[key])
    ]
    return [epoch for epoch, _ in found], [value for _, value in found]


def _colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def _marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]


def _curve(colour: str, marker: str, test: bool, points: int) -> dict[str, Any]:
    """How a curve is drawn: test errors broken and hollow, points marked while there are few."""
    few = points <= MARKED_EPOCHS
    return {
        "color": colour,
        "linestyle": "--" if test else "-",
        "linewidth": 1.6 if few else 1.2,
        "marker": marker if few else "",
        "markersize": 5,
        "markeredgecolor": colour,
        "markerfacecolor": "white" if test else colour,
    }


def _epoch_axis(axes: Axes, epochs: int) -> None:
    """Epochs from 1, with whole numbers at the ticks."""
    if not epochs:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no finished epoch", transform=axes.transAxes, ha="center", fontsize=TEXT, color=MUTED)
        return
    ticks = MaxNLocator(8, integer=True).tick_values(1, max(2, epochs))
    axes.set_xticks([1, *(int(tick) for tick in ticks if 1 < tick <= epochs)])
    margin = 0.03 * epochs if epochs > 1 else 0.5
    axes.set_xlim(1 - margin, epochs + margin)


def _confusion_panel(axes: Axes, evaluation: Evaluation) -> None:
    """Shares of the images of the class shown; of few classes, also their counts."""
    few = len(evaluation.classes) <= MANY_CLASSES
    dress(axes, f"Confusion matrix ({'images' if few else '% of the class shown'})", "class named", "class shown")
    shares = [[count / max(1, sum(row)) for count in row] for row in evaluation.confusion]
    if few:
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        _counts(axes, evaluation, shares)
    else:
        # Single confusions of many classes are a few percent: square roots show them beside the diagonal.
        percents = [[100 * share for share in row] for row in shares]
        image = axes.imshow(percents, cmap="Blues", norm=PowerNorm(0.5, 0, 100), aspect="auto")
        scale = axes.figure.colorbar(image, ax=axes, ticks=(0, 1, 5, 10, 25, 50, 100), pad=0.02)
        scale.ax.tick_params(labelsize=SMALL, colors=INK, length=3, color=MUTED)
        scale.outline.set_visible(False)
    marks = range(0, len(evaluation.classes), -(-len(evaluation.classes) // MANY_CLASSES))
    names = _written([evaluation.classes[mark] for mark in marks])
    axes.set_xticks(marks, names, rotation=0 if len(marks) <= 5 else 90)
    axes.set_yticks(marks, names)
    axes.tick_params(length=0 if few else 3)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def _counts(axes: Axes, evaluation: Evaluation, shares: Sequence[Sequence[float]]) -> None:
    """The number in each cell of a confusion matrix."""
    size = SMALL if len(evaluation.classes) <= 10 else max(5.0, 60 / len(evaluation.classes))
    for shown, row in enumerate(evaluation.confusion):
        for named, count in enumerate(row):
            colour = "white" if shares[shown][named] > 0.55 else INK if count else MUTED
            axes.text(named, shown, f"{count:,}", ha="center", va="center", fontsize=size, color=colour)


def _class_panel(axes: Axes, evaluation: Evaluation) -> None:
    """A bar for each class; of many, for those with the largest errors."""
    rates = list(zip(evaluation.classes, evaluation.by_class, strict=True))
    title = "Error by class"
    if len(rates) > MANY_CLASSES:
        rates = sorted(rates, key=lambda each: -(each[1].percent if each[1] else -1.0))[:MANY_CLASSES]
        title += f": the {MANY_CLASSES} largest of {len(evaluation.classes)}"
    dress(axes, title, "error (%)", "")
    axes.grid(False)
    percents = [rate.percent if rate else 0.0 for _, rate in rates]
    marks = range(len(percents))
    bars = axes.barh(marks, percents, height=0.7, color=PALETTE[0])
    labels = [f"{rate.percent:.1f}" if rate else "no images" for _, rate in rates]
    axes.bar_label(bars, labels, padding=3, fontsize=SMALL, color=INK)
    axes.set_yticks(marks, _written([name for name, _ in rates]))
    axes.invert_yaxis()
    axes.set_xlim(0, min(max(1.2 * max(percents), 1.0), 115))


def _viewpoint_panel(axes: Axes, field: str, rates: Mapping[int, Rate], familiar: Sequence[int]) -> None:
    dress(axes, f"Error by {field}", f"{field} (°)", "error (%)")
    placed = places(field, rates, familiar)
    axes.bar(
        list(placed.values()),
        [rates[angle].percent for angle in placed],
        width=0.75 * spacing(placed),
        color=PALETTE[0],
    )
    viewpoint_axis(axes, placed)
    shade_familiar(axes, placed, familiar)
    if len(placed) > 10:
        axes.tick_params(axis="x", rotation=90)
    error_axis(axes, (rate.percent for rate in rates.values()))


def _written(names: Sequence[str]) -> list[str]:
    """Names of classes along an axis: a few on several lines each, many shortened to one."""
    if len(names) <= 10:
        return [literal(textwrap.fill(name, 12)) for name in names]
    return [literal(name if len(name) <= 18 else f"{name[:17]}…") for name in names]

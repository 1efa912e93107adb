"""Training curves: losses of one kind on an axis, and errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from quatcaps.report.canvas import MUTED, TEXT, WIDTH, dress, error_axis, literal, new_figure, save
from quatcaps.report.styles import Style, styles_for
from quatcaps.training.config import TrainingConfig
from quatcaps.training.log import Record

MARKED_EPOCHS = 30
"""The most epochs whose points are marked one by one."""
LOSSES = {"spread": "spread loss"}


def loss_words(config: TrainingConfig) -> str:
    """What a run minimises: runs whose words differ have losses that cannot be compared.

    >>> loss_words(TrainingConfig(loss="cross-entropy", pose_weight=3.0))
    'cross-entropy + 3 × pose loss'
    """
    of_classes = LOSSES.get(config.loss, config.loss)
    weighted = "" if config.class_weights == "none" else "weighted "
    return f"{weighted}{of_classes}" + (f" + {config.pose_weight:g} × pose loss" if config.pose_weight else "")


def training_curves(logs: Mapping[str, Sequence[Record]], losses: Mapping[str, str], path: Path) -> None:
    """Loss, and training and test error in %, against the epoch, for the log of each network.

    losses: what each network minimises, in words; every loss has a panel of its own.
    """
    kinds = list(dict.fromkeys(losses[name] for name in logs))
    rows = math.ceil((len(kinds) + 1) / 2)
    figure = new_figure(WIDTH, 4.0 * rows)
    grid = figure.add_gridspec(rows, 2)
    loss_panels = [figure.add_subplot(grid[place // 2, place % 2]) for place in range(len(kinds))]
    last = len(kinds)
    error_axes = figure.add_subplot(grid[last // 2, last % 2] if last % 2 else grid[last // 2, :])
    styles, epochs = styles_for(logs), [0]
    for axes, kind in zip(loss_panels, kinds, strict=True):
        dress(axes, "Training loss", "epoch", literal(kind))
        highest = 0.0
        for name in (name for name in logs if losses[name] == kind):
            at, values = _epoch_values(logs[name], "loss", 1.0)
            axes.plot(at, values, **_curve(styles[name], False, len(at)))
            epochs += at
            highest = max([highest, *values])
        axes.set_ylim(0, 1.08 * highest or 1.0)
    dress(error_axes, "Error", "epoch", "error (%)")
    errors = [0.0]
    for name, log in logs.items():
        for key in ("error", "test_error"):
            at, values = _epoch_values(log, key, 100.0)
            error_axes.plot(at, values, **_curve(styles[name], key == "test_error", len(at)))
            epochs += at
            errors += values
    error_axis(error_axes, errors)
    for axes in (*loss_panels, error_axes):
        _epoch_axis(axes, max(epochs))
    handles = [
        Line2D([], [], label=literal(name), **_curve(style, False, max(epochs))) for name, style in styles.items()
    ]
    for label, test in (("training", False), ("test", True)):
        handles.append(Line2D([], [], label=label, **_curve(Style(MUTED, "o"), test, max(epochs))))
    figure.legend(handles=handles, loc="outside upper left", ncols=5, frameon=False, fontsize=TEXT)
    save(figure, path)


def _epoch_values(log: Sequence[Record], key: str, scale: float) -> tuple[list[int], list[float]]:
    """The finished epochs, counted from 1, that have a finite value of `key`, and these values."""
    found = [
        (int(record["epoch"]) + 1, scale * float(record[key]))
        for record in log
        if record["kind"] == "epoch" and record.get(key) is not None and math.isfinite(record[key])
    ]
    return [epoch for epoch, _ in found], [value for _, value in found]


def _curve(style: Style, test: bool, points: int) -> dict[str, Any]:
    """How a curve is drawn: test errors broken and hollow, points marked while there are few."""
    few = points <= MARKED_EPOCHS
    return {
        "color": style.colour,
        "linestyle": "--" if test else "-",
        "linewidth": 1.6 if few else 1.2,
        "marker": style.marker if few else "",
        "markersize": 5,
        "markeredgecolor": style.colour,
        "markerfacecolor": "white" if test else style.colour,
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

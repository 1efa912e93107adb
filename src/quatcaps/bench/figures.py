"""Benchmarks as pictures: the speed of a network's passes, and the cost of layers and networks by their sizes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from quatcaps.bench.rows import Measured, Row, ScalingRow
from quatcaps.bench.tables import (
    LONGEST_NOTE,
    by_model_and_pass,
    figures,
    grouped,
    panel_title,
    precisions,
    scaling_title,
)
from quatcaps.errors import QuatcapsError
from quatcaps.report.canvas import INK, MUTED, RULE, SMALL, TEXT, dress, literal, new_figure, save
from quatcaps.report.styles import VARIANTS, Style, styles_for

WIDTH = 5.4
"""Inches: narrow enough that the letters stay legible where a phone shows the whole width."""
LONGEST_TITLE, WIDEST = 50, 58
"""Letters of a title, and of other lines, that this width has room for."""
AXES = {
    "children": "child capsules",
    "parents": "parent capsules",
    "positions": "positions of the parents",
    "side": "side of the images in pixels",
    "classes": "classes",
}
POWERS = {"side": 2}
"""The power of a size that the work is in proportion to, where it is not 1."""


def throughput_figure(rows: Sequence[Row], title: str, path: Path) -> None:
    """Images per second by variant and batch, on a logarithmic axis: a panel for each model and pass, a line for each
    variant, batch and TF32, with a hollow mark for its launches one by one where graphs were measured too."""
    panels = [part for part in by_model_and_pass(rows) if any(row.timing for row in part)]
    if not panels:
        raise QuatcapsError("no row of the benchmark was measured: there is nothing to draw")
    variants = styles_for((row.case.label for row in rows), VARIANTS)
    speeds = [row.images_per_second for row in rows if row.images_per_second]
    heights = [0.9 + 0.36 * len(_by_line(part, variants)) for part in panels]
    figure = new_figure(WIDTH, 0.9 + sum(heights))
    figure.suptitle(literal(_wrapped(title)), x=0.02, ha="left", fontsize=TEXT, color=INK)
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for (axes,), part in zip(grid, panels, strict=True):
        _throughput_panel(axes, literal(_shortened(panel_title(part[0]))), part, variants, speeds)
    if any(row.case.graph for row in rows):
        kinds = [(True, "captured as one graph"), (False, "launched one by one")]
        grey: dict[str, Any] = {"color": MUTED, "marker": "o", "markersize": 7, "linestyle": ""}
        handles = [
            Line2D([], [], label=label, markerfacecolor=MUTED if filled else "white", **grey)
            for filled, label in kinds
            if any(row.case.graph == filled for row in rows)
        ]
        figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False, fontsize=TEXT)
    save(figure, path)


def scaling_figure(rows: Sequence[ScalingRow], title: str, path: Path) -> None:
    """Milliseconds against each size, both logarithmic, beside a line that grows as the size, or as the pixels; what
    could not be measured has a word in its place."""
    panels = grouped(rows, lambda row: (row.sized.subject, row.sized.axis))
    panels = [part for part in panels if any(row.timing for row in part)]
    if not panels:
        raise QuatcapsError("nothing was measured by its size: there is nothing to draw")
    series = styles_for(_series(rows), VARIANTS)
    figure = new_figure(WIDTH, 1.1 + 2.9 * len(panels))
    figure.suptitle(literal(_wrapped(title)), x=0.02, ha="left", fontsize=TEXT, color=INK)
    for (axes,), part in zip(figure.subplots(len(panels), 1, squeeze=False), panels, strict=True):
        subject = part[0].sized.subject
        alike = [row for row in rows if row.sized.subject == subject]
        _scaling_panel(axes, part, {name: _mark(style, True) for name, style in series.items()}, alike)
    handles = [Line2D([], [], label=literal(name), **_mark(style, True)) for name, style in series.items()]
    squared = any(part[0].sized.axis in POWERS for part in panels)
    proportion = "in proportion to the size" + (", or to the pixels" if squared else "")
    handles.append(Line2D([], [], color=MUTED, linestyle=":", label=proportion))
    figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False, fontsize=TEXT)
    save(figure, path)


def _by_line(rows: Sequence[Row], variants: Iterable[str]) -> dict[tuple[str, ...], list[Row]]:
    """The rows of each variant, batch and TF32, in the order of the variants; the key is what a line is called by."""
    batches, lines = {row.case.batch for row in rows}, dict[tuple[str, ...], list[Row]]()
    order = list(variants)
    for row in sorted(rows, key=lambda row: (order.index(row.case.label), row.case.batch)):
        batch = (str(row.case.batch),) if len(batches) > 1 else ()
        lines.setdefault((row.case.label, *batch, *_precision(row, rows)), []).append(row)
    return lines


def _precision(row: Measured, rows: Sequence[Measured]) -> tuple[str, ...]:
    """What tells rows with TF32 from those without, where there are both."""
    return (row.tf32.name,) if row.tf32 and len(precisions(rows)) > 1 else ()


def _throughput_panel(
    axes: Axes, title: str, rows: Sequence[Row], variants: Mapping[str, Style], speeds: Sequence[float]
) -> None:
    """One model's pass, on an axis that has room for all `speeds`, those of the other panels too."""
    lines = _by_line(rows, variants)
    batches = {row.case.batch for row in rows}
    one_batch = f"batch {min(batches)}" if len(batches) == 1 else "by variant and batch"
    dress(axes, title, f"images per second, {one_batch}", "")
    axes.grid(False)
    axes.set_xscale("log")
    axes.set_xlim(min(speeds) / 1.3, max(speeds) * (max(speeds) / min(speeds)) ** 0.2 * 1.3)  # room for the numbers
    graphs = any(row.case.graph for row in rows)
    for place, ((label, *_), line) in enumerate(lines.items()):
        axes.axhline(place, color=RULE, linewidth=0.8, zorder=0)
        for row in line:
            if row.images_per_second:
                mark = _mark(variants[label], row.case.graph or not graphs)
                axes.plot([row.images_per_second], [place], linestyle="", **mark)
        _number(axes, place, line, min(speeds))
    axes.set_yticks(range(len(lines)), [literal(_broken(", ".join(name))) for name in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    _plain_log(axes, "x")
    axes.tick_params(axis="y", length=0, labelsize=TEXT)


def _number(axes: Axes, place: int, line: Sequence[Row], least: float) -> None:
    """The largest number of a line, right of its mark; or why there is none, where the smallest would stand."""
    best = max((row.images_per_second for row in line if row.images_per_second), default=None)
    axes.annotate(
        figures(best) if best else _why(line[0]),
        (best or least, place),
        xytext=(8 if best else 0, 0),
        textcoords="offset points",
        va="center",
        fontsize=TEXT,
        color=INK if best else MUTED,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
    )


def _why(row: Measured) -> str:
    return row.note if len(row.note) <= LONGEST_NOTE else "not measured"


def _broken(name: str) -> str:
    """A long name on two lines."""
    return name.replace(", ", ",\n", 1) if len(name) > 16 else name


def _wrapped(title: str) -> str:
    """Lines no longer than this width has room for."""
    return "\n".join(textwrap.fill(line, WIDEST) for line in title.splitlines())


def _shortened(title: str) -> str:
    """A long title on two lines, what it says last on the second; and no longer than there is room for."""
    if len(title) <= LONGEST_TITLE:
        return title
    head, _, tail = title.rpartition(": ")
    return f"{head if len(head) <= LONGEST_TITLE else f'{head[: LONGEST_TITLE - 1]}…'}:\n{tail}"


def _series(rows: Sequence[ScalingRow]) -> dict[str, list[ScalingRow]]:
    """The rows by what they are called: the backend, with the batch and TF32 where there are several of them for one
    subject."""
    lines: dict[str, list[ScalingRow]] = {}
    for part in grouped(rows, lambda row: row.sized.subject):
        batches = {row.sized.batch for row in part}
        for row in part:
            batch = (f"batch {row.sized.batch}",) if len(batches) > 1 else ()
            lines.setdefault(", ".join((row.label, *batch, *_precision(row, part))), []).append(row)
    return lines


def _scaling_panel(
    axes: Axes, rows: Sequence[ScalingRow], marks: Mapping[str, dict[str, Any]], alike: Sequence[ScalingRow]
) -> None:
    """One size, on an axis of costs that has room for `alike`, what else was measured of the same layer or network."""
    first, sizes = rows[0].sized, sorted({row.sized.size for row in rows})
    batches = sorted({row.sized.batch for row in rows})
    fixed = f"{first.fixed}, batch {' and '.join(map(str, batches))}"
    dress(axes, literal(f"{_shortened(scaling_title(rows[0]))}\n{fixed}"), AXES[first.axis], "ms")
    _log_axes(axes, sizes)
    for name, line in _series(rows).items():
        points = [(row.sized.size, 1000 * row.timing.median) for row in line if row.timing]
        if points:
            _scaling_line(axes, points, marks[name], POWERS.get(first.axis, 1))
    costs = [1000 * row.timing.median for row in alike if row.timing]
    axes.set_xlim(sizes[0] / 1.15, sizes[-1] * 1.15)
    axes.set_ylim(min(costs) / 1.6, max(costs) * 1.3)  # lines of proportion may leave
    for size, why in dict.fromkeys((row.sized.size, _why(row)) for row in rows if not row.timing):
        axes.annotate(
            why,
            (size, 0.03),
            xycoords=("data", "axes fraction"),
            ha="right" if size == sizes[-1] else "center",
            fontsize=SMALL,
            color=MUTED,
        )


def _scaling_line(axes: Axes, points: Sequence[tuple[int, float]], mark: Mapping[str, Any], power: int) -> None:
    """Points of one backend, and the line through the last of them on which cost is proportional to size."""
    sizes, costs = zip(*points, strict=True)
    shares = [costs[-1] * (size / sizes[-1]) ** power for size in sizes]
    axes.plot(sizes, shares, color=MUTED, linestyle=":", linewidth=1.2)
    axes.plot(sizes, costs, **mark)


def _mark(style: Style, filled: bool) -> dict[str, Any]:
    colour = style.colour
    return {
        "color": colour,
        "marker": style.marker,
        "markersize": 7,
        "markeredgecolor": colour,
        "markerfacecolor": colour if filled else "white",
        "linewidth": 1.8,
    }


def _log_axes(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(sizes), [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yscale("log")
    _plain_log(axes, "y")


def _plain_log(axes: Axes, which: Literal["x", "y"]) -> None:
    """Marks at 1, 2 and 5 times the powers of ten, as plain numbers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis=which, labelsize=SMALL)

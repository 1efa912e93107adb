"""Benchmarks for people: a table and a picture of a network's passes, a picture of a layer's cost by its size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from quatcaps.bench.rows import FORWARD, TRAIN, LayerRow, Measured, Row
from quatcaps.errors import QuatcapsError
from quatcaps.report.canvas import INK, MARKERS, MUTED, PALETTE, RULE, SMALL, TEXT, dress, literal, new_figure, save
from quatcaps.report.tables import NOTHING, Table

MIB = 2**20
SEE_BELOW = "below"
LONGEST_NOTE = 16
"""Letters of a reason that has room in a table; longer ones stand under it."""
WIDTH = 5.4
"""Inches: narrow enough that the letters stay legible where a phone shows the whole width."""
TITLES = {TRAIN: "training step, forward to optimiser", FORWARD: "forward pass"}
AXES = {"children": "child capsules", "parents": "parent capsules", "positions": "positions of the parents"}


def benchmark_tables(rows: Sequence[Row]) -> tuple[Table, ...]:
    """One table per model and pass; columns in which nothing would stand are left out."""
    return tuple(_table(f"{model}: {TITLES[passing]}", part) for (model, passing), part in _by_pass(rows))


def scaling_table(rows: Sequence[LayerRow]) -> Table:
    """The cost of one layer, forward and backward, by each of its sizes."""
    columns = {
        "varied": [row.layer.axis for row in rows],
        "size": [str(row.layer.size) for row in rows],
        "backend": [row.layer.variant for row in rows],
        "ms": [_milliseconds(row) for row in rows],
        "peak (MiB)": [_mebibytes(row.timing.peak if row.timing else None) for row in rows],
        "note": [_note(row) for row in rows],
    }
    return _filled("one routing layer, forward and backward", columns)


def data_table(rows: Sequence[Measured]) -> Table:
    """What the data path adds to a training step."""
    found = [row.to_json() for row in rows]
    columns = {
        "batches": [row.label for row in rows],
        "model": [str(row["model"]) for row in found],
        "batch": [str(row["batch"]) for row in found],
        "ms": [_milliseconds(row) for row in rows],
        "× the time": [_ratio(row["time_ratio"]) for row in found],
        "images/s": [_whole(row["images_per_second"]) for row in found],
        "note": [_note(row) for row in rows],
    }
    return _filled("training step with the data path and without", columns)


def remarks(rows: Sequence[Measured]) -> list[str]:
    """What the tables have no room for, a line for each variant and reason."""
    lines = [f"{row.label}: {row.note}" for row in rows if row.note and (row.timing or _note(row) == SEE_BELOW)]
    return list(dict.fromkeys(lines))


def throughput_figure(rows: Sequence[Row], title: str, path: Path) -> None:
    """Images per second by variant and batch, on a logarithmic axis: a panel for each model and pass, a line for each
    variant and batch, with a hollow mark for its launches one by one where graphs were measured too."""
    panels = [(key, part) for key, part in _by_pass(rows) if any(row.timing for row in part)]
    if not panels:
        raise QuatcapsError("no row of the benchmark was measured: there is nothing to draw")
    variants = list(dict.fromkeys(row.case.label for row in rows))
    heights = [0.9 + 0.36 * len(_by_line(part, variants)) for _, part in panels]
    figure = new_figure(WIDTH, 0.9 + sum(heights))
    figure.suptitle(literal(title), x=0.02, ha="left", fontsize=TEXT, color=INK)
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for (axes,), ((model, passing), part) in zip(grid, panels, strict=True):
        _throughput_panel(axes, literal(f"{model}: {TITLES[passing]}"), part, variants)
    if any(row.case.graph for row in rows):
        kinds = [(True, "captured as one graph"), (False, "launched one by one")]
        grey: dict[str, Any] = {"color": MUTED, "marker": "o", "markersize": 7, "linestyle": ""}
        handles = [
            Line2D([], [], label=label, markerfacecolor=MUTED if filled else "white", **grey) for filled, label in kinds
        ]
        figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False, fontsize=TEXT)
    save(figure, path)


def scaling_figure(rows: Sequence[LayerRow], title: str, path: Path) -> None:
    """Milliseconds of one layer against each of its sizes, both logarithmic, beside a line that grows as the size."""
    measured = [row for row in rows if row.timing]
    axes_names = list(dict.fromkeys(row.layer.axis for row in measured))
    if not axes_names:
        raise QuatcapsError("no layer of the benchmark was measured: there is nothing to draw")
    variants = list(dict.fromkeys(row.layer.variant for row in measured))
    figure = new_figure(WIDTH, 0.9 + 2.9 * len(axes_names))
    figure.suptitle(literal(title), x=0.02, ha="left", fontsize=TEXT, color=INK)
    grid = figure.subplots(len(axes_names), 1, squeeze=False)
    for (axes,), axis in zip(grid, axes_names, strict=True):
        dress(axes, _fixed(measured, axis), AXES[axis], "ms, forward and backward")
        _log_axes(axes, sorted({row.layer.size for row in measured if row.layer.axis == axis}))
        for index, variant in enumerate(variants):
            points = [
                (row.layer.size, 1000 * row.timing.median)
                for row in measured
                if row.timing and row.layer.axis == axis and row.layer.variant == variant
            ]
            if points:
                _scaling_line(axes, points, index)
    handles = [Line2D([], [], label=literal(name), **_mark(index, True)) for index, name in enumerate(variants)]
    handles.append(Line2D([], [], color=MUTED, linestyle=":", label="in proportion to the size"))
    figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False, fontsize=TEXT)
    save(figure, path)


def _by_pass(rows: Sequence[Row]) -> list[tuple[tuple[str, str], list[Row]]]:
    grouped = groupby(rows, key=lambda row: (row.case.model, row.case.passing))
    return [(key, list(part)) for key, part in grouped]


def _table(title: str, rows: Sequence[Row]) -> Table:
    timings = [row.timing for row in rows]
    columns = {
        "computed by": [row.case.label for row in rows],
        "batch": [str(row.case.batch) for row in rows],
        "graph": ["yes" if row.case.graph else "no" for row in rows],
        "ms": [_milliseconds(row) for row in rows],
        "spread (%)": [_spread(row) for row in rows],
        "images/s": [_figures(row.images_per_second) if row.images_per_second else NOTHING for row in rows],
        "peak (MiB)": [_mebibytes(timing.peak if timing else None) for timing in timings],
        "held (MiB)": [_mebibytes(timing.reserved if timing else None) for timing in timings],
        "time (×)": [_ratio(row.time_ratio) for row in rows],
        "memory (×)": [_ratio(row.memory_ratio) for row in rows],
        "note": ["" if row.timing else _note(row) for row in rows],
    }
    if not any(row.case.graph for row in rows):
        del columns["graph"]
    return _filled(title, columns)


def _filled(title: str, columns: dict[str, list[str]]) -> Table:
    """A table of the columns that say something."""
    kept = {name: cells for name, cells in columns.items() if any(cell not in ("", NOTHING) for cell in cells)}
    return Table(title, tuple(kept), tuple(zip(*kept.values(), strict=True)))


def _note(row: Measured) -> str:
    return row.note if len(row.note) <= LONGEST_NOTE else SEE_BELOW


def _milliseconds(row: Measured) -> str:
    return NOTHING if row.timing is None else _figures(1000 * row.timing.median)


def _spread(row: Row) -> str:
    """From the 10th to the 90th percentile of the steps, in % of the median."""
    if row.timing is None:
        return NOTHING
    found = row.timing.to_json()
    return f"{100 * (found['seconds_p90'] - found['seconds_p10']) / found['seconds']:.0f}"


def _mebibytes(count: int | None) -> str:
    return NOTHING if count is None else f"{count / MIB:,.0f}"


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _figures(value: float) -> str:
    """Three figures or whole numbers, whichever says more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _by_line(rows: Sequence[Row], variants: Sequence[str]) -> dict[tuple[str, int], list[Row]]:
    """The rows of each variant and batch, in the order of the variants."""
    lines: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (variants.index(row.case.label), row.case.batch)):
        lines.setdefault((row.case.label, row.case.batch), []).append(row)
    return lines


def _throughput_panel(axes: Axes, title: str, rows: Sequence[Row], variants: Sequence[str]) -> None:
    lines = _by_line(rows, variants)
    batches = {batch for _, batch in lines}
    one_batch = len(batches) == 1
    dress(axes, title, f"images per second, {f'batch {min(batches)}' if one_batch else 'by variant and batch'}", "")
    axes.grid(False)
    axes.set_xscale("log")
    speeds = [row.images_per_second for row in rows if row.images_per_second]
    axes.set_xlim(min(speeds) / 1.3, max(speeds) * (max(speeds) / min(speeds)) ** 0.2 * 1.3)  # room for the numbers
    graphs = any(row.case.graph for row in rows)
    for place, ((label, _), line) in enumerate(lines.items()):
        axes.axhline(place, color=RULE, linewidth=0.8, zorder=0)
        for row in line:
            if row.images_per_second:
                mark = _mark(variants.index(label), row.case.graph or not graphs)
                axes.plot([row.images_per_second], [place], linestyle="", **mark)
        _number(axes, place, line, min(speeds))
    names = [label if one_batch else f"{label}, {batch}" for label, batch in lines]
    axes.set_yticks(range(len(lines)), [literal(_broken(name)) for name in names])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    _plain_log(axes, "x")
    axes.tick_params(axis="y", length=0, labelsize=TEXT)


def _number(axes: Axes, place: int, line: Sequence[Row], least: float) -> None:
    """The largest number of a line, right of its mark; or why there is none, where the smallest would stand."""
    best = max((row.images_per_second for row in line if row.images_per_second), default=None)
    why = line[0].note if len(line[0].note) <= LONGEST_NOTE else "not measured"
    axes.annotate(
        _figures(best) if best else why,
        (best or least, place),
        xytext=(8 if best else 0, 0),
        textcoords="offset points",
        va="center",
        fontsize=TEXT,
        color=INK if best else MUTED,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
    )


def _broken(name: str) -> str:
    """A long name on two lines."""
    return name.replace(", ", ",\n", 1) if len(name) > 16 else name


def _scaling_line(axes: Axes, points: Sequence[tuple[int, float]], index: int) -> None:
    """A backend's points, and the line through the last of them on which cost is proportional to size."""
    sizes, costs = zip(*points, strict=True)
    axes.plot(sizes, [costs[-1] * size / sizes[-1] for size in sizes], color=MUTED, linestyle=":", linewidth=1.2)
    axes.plot(sizes, costs, **_mark(index, True))


def _fixed(rows: Sequence[LayerRow], axis: str) -> str:
    """What stands still while one size varies."""
    layer = next(row.layer for row in rows if row.layer.axis == axis)
    sizes = {"children": layer.children, "parents": layer.parents, "positions": layer.side**2}
    others = ", ".join(f"{size} {name}" for name, size in sizes.items() if name != axis)
    return f"{others}, {layer.kernel}×{layer.kernel} kernel, batch {layer.batch}"


def _mark(index: int, filled: bool) -> dict[str, Any]:
    colour = PALETTE[index % len(PALETTE)]
    return {
        "color": colour,
        "marker": MARKERS[index % len(MARKERS)],
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

"""Benchmarks as tables, with the remarks that stand under them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from quatcaps.bench.cases import FORWARD, TRAIN
from quatcaps.bench.precision import TF32
from quatcaps.bench.rows import Measured, Results, Row, ScalingRow
from quatcaps.report.tables import NOTHING, Table

T = TypeVar("T")
MIB = 2**20
SEE_BELOW = "below"
LONGEST_NOTE = 16
"""Letters of a reason that has room in a table; longer ones stand under it."""
TITLES = {TRAIN: "training step, forward to optimiser", FORWARD: "forward pass"}
COLD = "first steps compile their kernels"
WARM = "first steps compile the kernels that no earlier run compiled and kept; --cold: all of them"
FIRST = {TRAIN: "first training step", FORWARD: "first forward pass"}


def benchmark_tables(rows: Sequence[Row]) -> tuple[Table, ...]:
    """One table per model and pass, or per pass where models are held against one; columns in which nothing would
    stand are left out."""
    if any(row.against is not None for row in rows):
        return tuple(_against_table(part) for part in grouped(rows, lambda row: row.case.passing))
    return tuple(_table(panel_title(part[0]), part) for part in by_model_and_pass(rows))


def by_model_and_pass(rows: Sequence[Row]) -> list[list[Row]]:
    return grouped(rows, lambda row: (row.case.model, row.case.passing))


def panel_title(row: Row) -> str:
    return f"{row.case.model}: {TITLES[row.case.passing]}"


def scaling_tables(rows: Sequence[ScalingRow]) -> tuple[Table, ...]:
    """The cost of one layer by each of its sizes, and of a training step by each of a network's."""
    return tuple(_scaling_table(part) for part in grouped(rows, lambda row: row.sized.subject))


def data_table(rows: Sequence[Measured]) -> Table:
    """What the data path adds to a training step."""
    found = [row.to_json() for row in rows]
    columns = {
        "batches": [row.label for row in rows],
        "model": [str(row["model"]) for row in found],
        "batch": [str(row["batch"]) for row in found],
        "TF32": varied_precision(rows),
        "ms": [_milliseconds(row) for row in rows],
        "× the time": [_ratio(row["time_ratio"]) for row in found],
        "images/s": [_whole(row["images_per_second"]) for row in found],
        "note": [_note(row) for row in rows],
    }
    return _filled("training step with the data path and without", columns)


def remarks(results: Results) -> list[str]:
    """What the tables have no room for: reasons, a line for each variant and reason; TF32; spread; first steps."""
    rows = results.all
    lines = [f"{row.label}: {row.note}" for row in rows if row.note and (row.timing or _note(row) == SEE_BELOW)]
    return list(dict.fromkeys([*lines, precision_remark(rows), *spread(results.rows), *first_steps(results)]))


def precision_remark(rows: Sequence[Measured]) -> str:
    """Where TF32 was allowed."""
    allowed = precisions(rows)
    if not allowed:
        return "TF32: a CPU has none"
    if len(allowed) == 1:
        return f"TF32 was allowed {allowed[0].words}"
    return "TF32: " + "; ".join(f"{tf32.cell}: allowed {tf32.words}" for tf32 in allowed)


def precision_words(rows: Sequence[Measured]) -> str:
    """What a picture's title adds to `float32`."""
    allowed = precisions(rows)
    if len(allowed) != 1:
        return " with TF32 and without" if allowed else ""
    return f", TF32 {allowed[0].words}"


def precisions(rows: Sequence[Measured]) -> list[TF32]:
    """The settings of TF32 among the rows, of devices that have it."""
    return list(dict.fromkeys(row.tf32 for row in rows if row.tf32 is not None))


def first_steps(results: Results) -> list[str]:
    """By model and pass, the seconds of the first step of each variant: the longest of its rows, which is the one that
    compiled its kernels."""
    lines = []
    if results.rows and results.machine["device"] == "cuda":
        lines.append(COLD if results.machine["cold"] else WARM)
    for part in by_model_and_pass(results.rows):
        firsts: dict[str, float] = {}
        for row in part:
            if row.timing:
                firsts[row.label] = max(row.timing.first, firsts.get(row.label, 0.0))
        found = "; ".join(f"{label} {figures(seconds)} s" for label, seconds in firsts.items())
        if found:
            lines.append(f"{part[0].case.model}, {FIRST[part[0].case.passing]}: {found}")
    return lines


def spread(rows: Sequence[Row]) -> list[str]:
    """The largest distance from the 10th to the 90th percentile of a row's steps."""
    found = [(row.timing.spread, row.case.words) for row in rows if row.timing]
    if not found:
        return []
    most, words = max(found)
    return [f"steps of a row, 10th to 90th percentile: at most {100 * most:.0f}% of the median apart ({words})"]


def varied_precision(rows: Sequence[Measured]) -> list[str]:
    """Cells that say where TF32 was allowed, if that is not the same in all rows; a remark says it else."""
    several = len(precisions(rows)) > 1
    return [row.tf32.cell if several and row.tf32 else "" for row in rows]


def figures(value: float) -> str:
    """Three figures or whole numbers, whichever says more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def grouped(items: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
    """Items of the same key together, in the order of the first of each."""
    groups: dict[object, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _table(title: str, rows: Sequence[Row]) -> Table:
    columns = {
        **_what(rows),
        "ms": [_milliseconds(row) for row in rows],
        "images/s": [figures(row.images_per_second) if row.images_per_second else NOTHING for row in rows],
        "peak (MiB)": [_mebibytes(row.timing.peak if row.timing else None) for row in rows],
        "time (×)": [_ratio(row.time_ratio) for row in rows],
        "memory (×)": [_ratio(row.memory_ratio) for row in rows],
        "note": ["" if row.timing else _note(row) for row in rows],
    }
    return _filled(f"{title}{_captured(row.case.graph for row in rows)}", columns)


def _against_table(rows: Sequence[Row]) -> Table:
    """All models in one table, with the columns that compare them."""
    columns = {
        "model": [row.case.model for row in rows],
        **_what(rows),
        "ms": [_milliseconds(row) for row in rows],
        "against (×)": [_ratio(row.against_ratio) for row in rows],
        "peak (MiB)": [_mebibytes(row.timing.peak if row.timing else None) for row in rows],
        "time (×)": [_ratio(row.time_ratio) for row in rows],
        "note": ["" if row.timing else _note(row) for row in rows],
    }
    title = f"{TITLES[rows[0].case.passing]}; against {rows[0].against}"
    return _filled(f"{title}{_captured(row.case.graph for row in rows)}", columns)


def _what(rows: Sequence[Row]) -> dict[str, list[str]]:
    """The columns that say what a row measures; whether as a graph, if that is not the same in all rows."""
    several = len({row.case.graph for row in rows}) > 1
    return {
        "computed by": [row.case.label for row in rows],
        "batch": [str(row.case.batch) for row in rows],
        "graph": [("yes" if row.case.graph else "no") if several else "" for row in rows],
        "TF32": varied_precision(rows),
    }


def _captured(graphs: Iterable[bool]) -> str:
    """What a title adds where all was captured."""
    return ", captured as one graph" if all(graphs) else ""


def _scaling_table(rows: Sequence[ScalingRow]) -> Table:
    batches = {row.sized.batch for row in rows}
    columns = {
        "varied": [row.sized.axis for row in rows],
        "size": [f"{row.sized.size:,}" for row in rows],
        "fixed": [row.sized.fixed for row in rows],
        "backend": [row.label for row in rows],
        "batch": [str(row.sized.batch) if len(batches) > 1 else "" for row in rows],
        "TF32": varied_precision(rows),
        "ms": [_milliseconds(row) for row in rows],
        "peak (MiB)": [_mebibytes(row.timing.peak if row.timing else None) for row in rows],
        "note": [_note(row) for row in rows],
    }
    batch = f", batch {rows[0].sized.batch}" if len(batches) == 1 else ""
    return _filled(f"{scaling_title(rows[0])}{batch}{_captured(row.sized.graph for row in rows)}", columns)


def scaling_title(row: ScalingRow) -> str:
    """What was measured by its size."""
    return f"{row.sized.subject}: {row.sized.measures}"


def _filled(title: str, columns: dict[str, list[str]]) -> Table:
    """A table of the columns that say something."""
    kept = {name: cells for name, cells in columns.items() if any(cell not in ("", NOTHING) for cell in cells)}
    return Table(title, tuple(kept), tuple(zip(*kept.values(), strict=True)))


def _note(row: Measured) -> str:
    return row.note if len(row.note) <= LONGEST_NOTE else SEE_BELOW


def _milliseconds(row: Measured) -> str:
    return NOTHING if row.timing is None else figures(1000 * row.timing.median)


def _mebibytes(count: int | None) -> str:
    return NOTHING if count is None else f"{count / MIB:,.0f}"


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def all_tables(results: Results) -> list[Table]:
    """Everything that was measured."""
    data = [data_table(results.data)] if results.data else []
    return [*benchmark_tables(results.rows), *scaling_tables(results.scaling), *data]

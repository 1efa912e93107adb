"""What is measured, and what came of it: plain values, as they stand in the results' file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

TRAIN, FORWARD = "train", "forward"
PASSES = (TRAIN, FORWARD)
REFERENCE = "reference"
"""The variant that the others are held against."""
LEAST_PEAK = 4 * 2**20
"""Bytes: a smaller peak is within the noise of a process's memory, and nothing is held against it."""
LABELS = {"paper": "paper 4×4", "compile": "reference, torch.compile"}
"""How results call the variants that are no backends."""


@dataclass(frozen=True)
class Case:
    """One thing to measure: a pass of a network by one variant; `graph`: as one captured CUDA graph."""

    model: str
    passing: str
    variant: str
    batch: int
    graph: bool = False

    @property
    def label(self) -> str:
        return LABELS.get(self.variant, self.variant)

    @property
    def words(self) -> str:
        return f"{self.model}, {self.passing}, batch {self.batch}, {self.label}{', graph' if self.graph else ''}"


@dataclass(frozen=True)
class Timing:
    """Seconds of each counted step, and peaks in bytes above what stood before the first step.

    `first` is the first step of all, which compiles and tunes what there is to compile and tune. `reserved` is what
    PyTorch held on the GPU, with the memory of a captured graph; `peak` is what tensors filled of it.
    """

    first: float
    seconds: tuple[float, ...]
    peak: int | None = None
    reserved: int | None = None

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    def to_json(self) -> dict[str, Any]:
        low, high = np.percentile(self.seconds, [10, 90]).tolist()
        return {
            "steps": len(self.seconds),
            "seconds": self.median,
            "seconds_p10": low,
            "seconds_p90": high,
            "first_seconds": self.first,
            "peak_bytes": self.peak,
            "peak_reserved_bytes": self.reserved,
        }


NO_TIMING = dict.fromkeys(Timing(0.0, (0.0,)).to_json())
"""The same fields of what could not be measured."""


@dataclass(frozen=True)
class Row:
    """A case with its timing, or with a `note` that says why there is none; a note beside a timing is a remark."""

    case: Case
    timing: Timing | None = None
    note: str = ""
    time_ratio: float | None = None
    memory_ratio: float | None = None

    @property
    def label(self) -> str:
        return self.case.label

    @property
    def images_per_second(self) -> float | None:
        return self.case.batch / self.timing.median if self.timing else None

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.case.model,
            "pass": self.case.passing,
            "variant": self.case.label,
            "batch": self.case.batch,
            "graph": self.case.graph,
            **(self.timing.to_json() if self.timing else NO_TIMING),
            "images_per_second": self.images_per_second,
            "time_ratio": self.time_ratio,
            "memory_ratio": self.memory_ratio,
            "note": self.note,
        }


@dataclass(frozen=True)
class Layer:
    """One routing layer to measure; `axis` is the size that varies, and `side` × `side` are the parents' positions."""

    axis: str
    variant: str
    batch: int
    kernel: int
    children: int
    parents: int
    side: int
    graph: bool = False

    @property
    def size(self) -> int:
        return {"children": self.children, "parents": self.parents, "positions": self.side**2}[self.axis]

    @property
    def words(self) -> str:
        return f"one layer, {self.size} {self.axis}, {self.variant}{', graph' if self.graph else ''}"


@dataclass(frozen=True)
class LayerRow:
    """A layer with its timing, or with a `note` that says why there is none."""

    layer: Layer
    timing: Timing | None = None
    note: str = ""

    @property
    def label(self) -> str:
        return self.layer.variant

    def to_json(self) -> dict[str, Any]:
        layer = self.layer
        return {
            "axis": layer.axis,
            "size": layer.size,
            "variant": layer.variant,
            "batch": layer.batch,
            "kernel": layer.kernel,
            "children": layer.children,
            "parents": layer.parents,
            "positions": layer.side**2,
            "graph": layer.graph,
            **(self.timing.to_json() if self.timing else NO_TIMING),
            "note": self.note,
        }


@runtime_checkable
class Measured(Protocol):
    """A row of results: what was measured, or a note that says why it could not be."""

    @property
    def label(self) -> str: ...

    @property
    def timing(self) -> Timing | None: ...

    @property
    def note(self) -> str: ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Results:
    """A whole run of the benchmark: where, with what, and the numbers."""

    machine: dict[str, Any]
    rows: Sequence[Row] = ()
    scaling: Sequence[LayerRow] = ()
    data: Sequence[Measured] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            **self.machine,
            "rows": [row.to_json() for row in self.rows],
            "scaling": [row.to_json() for row in self.scaling],
            "data": [row.to_json() for row in self.data],
        }


def with_ratios(rows: Iterable[Row]) -> list[Row]:
    """The rows with their time and memory as multiples of the reference's of the same model, pass, batch and launch,
    where that was measured."""
    rows = list(rows)
    references = {
        replace(row.case, variant=""): row.timing for row in rows if row.case.variant == REFERENCE and row.timing
    }
    return [_with_ratios(row, references.get(replace(row.case, variant=""))) for row in rows]


def _with_ratios(row: Row, reference: Timing | None) -> Row:
    if row.timing is None or reference is None:
        return row
    known = row.timing.peak is not None and reference.peak is not None and reference.peak >= LEAST_PEAK
    memory = row.timing.peak / reference.peak if known else None  # type: ignore[operator]
    return replace(row, time_ratio=row.timing.median / reference.median, memory_ratio=memory)

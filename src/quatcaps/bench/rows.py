"""What came of each case: plain values, as they stand in the results' file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from quatcaps.bench.cases import Case, Sized
from quatcaps.bench.precision import TF32

REFERENCE = "reference"
"""The variant that the others are held against."""
LEAST_PEAK = 4 * 2**20
"""Bytes: a smaller peak is within the noise of a process's memory, and nothing is held against it."""


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

    @property
    def percentiles(self) -> tuple[float, float]:
        """The 10th and the 90th."""
        low, high = np.percentile(self.seconds, [10, 90]).tolist()
        return low, high

    @property
    def spread(self) -> float:
        """From the 10th to the 90th percentile, as a share of the median."""
        low, high = self.percentiles
        return (high - low) / self.median

    def to_json(self) -> dict[str, Any]:
        low, high = self.percentiles
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


@runtime_checkable
class Measured(Protocol):
    """A row of results: what was measured, or a note that says why it could not be."""

    @property
    def label(self) -> str: ...

    @property
    def tf32(self) -> TF32 | None: ...

    @property
    def timing(self) -> Timing | None: ...

    @property
    def note(self) -> str: ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Row:
    """A case with its timing, or with a `note` that says why there is none; a note beside a timing is a remark.

    Ratios are to the reference; `against_ratio` is that of the time to the time of the model `against`.
    """

    case: Case
    timing: Timing | None = None
    note: str = ""
    time_ratio: float | None = None
    memory_ratio: float | None = None
    against: str | None = None
    against_ratio: float | None = None

    @property
    def label(self) -> str:
        return self.case.label

    @property
    def tf32(self) -> TF32 | None:
        return self.case.tf32

    @property
    def images_per_second(self) -> float | None:
        return self.case.batch / self.timing.median if self.timing else None

    def to_json(self) -> dict[str, Any]:
        return {
            **self.case.to_json(),
            **(self.timing.to_json() if self.timing else NO_TIMING),
            "images_per_second": self.images_per_second,
            "time_ratio": self.time_ratio,
            "memory_ratio": self.memory_ratio,
            "against": self.against,
            "against_ratio": self.against_ratio,
            "note": self.note,
        }


@dataclass(frozen=True)
class ScalingRow:
    """A layer or a network of some size with its timing, or with a `note` that says why there is none."""

    sized: Sized
    timing: Timing | None = None
    note: str = ""

    @property
    def label(self) -> str:
        return self.sized.variant

    @property
    def tf32(self) -> TF32 | None:
        return self.sized.tf32

    def to_json(self) -> dict[str, Any]:
        return {
            **self.sized.to_json(),
            **(self.timing.to_json() if self.timing else NO_TIMING),
            "note": self.note,
        }


@dataclass(frozen=True)
class Results:
    """A whole run of the benchmark: where, with what, and the numbers."""

    machine: dict[str, Any]
    rows: Sequence[Row] = ()
    scaling: Sequence[ScalingRow] = ()
    data: Sequence[Measured] = ()

    @property
    def all(self) -> list[Measured]:
        return [*self.rows, *self.scaling, *self.data]

    def to_json(self) -> dict[str, Any]:
        return {
            **self.machine,
            "rows": [row.to_json() for row in self.rows],
            "scaling": [row.to_json() for row in self.scaling],
            "data": [row.to_json() for row in self.data],
        }


def with_ratios(rows: Iterable[Row], against: str | None = None) -> list[Row]:
    """The rows with their time and memory as multiples of the reference's, and their time as a multiple of that of the
    model `against`, where those were measured; all else about a case, its TF32 too, is the same."""
    rows = list(rows)
    references = {
        replace(row.case, variant=""): row.timing for row in rows if row.case.variant == REFERENCE and row.timing
    }
    others = {replace(row.case, model=""): row.timing for row in rows if row.case.model == against and row.timing}
    found = [_with_ratios(row, references.get(replace(row.case, variant=""))) for row in rows]
    return [_held_against(row, against, others.get(replace(row.case, model=""))) for row in found]


def _with_ratios(row: Row, reference: Timing | None) -> Row:
    if row.timing is None or reference is None:
        return row
    memory = None
    if row.timing.peak is not None and reference.peak is not None and reference.peak >= LEAST_PEAK:
        memory = row.timing.peak / reference.peak
    return replace(row, time_ratio=row.timing.median / reference.median, memory_ratio=memory)


def _held_against(row: Row, against: str | None, other: Timing | None) -> Row:
    ratio = row.timing.median / other.median if row.timing and other else None
    return replace(row, against=against, against_ratio=ratio)

"""The run's log: one JSON object a line, in the order of the steps; trackers beside it where asked for.

`epoch` counts from 0 in it, as in callbacks: a record of epoch 0 is what is printed and drawn as epoch 1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quatcaps import strict_json
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, new_file
from quatcaps.training.trackers import Tracker

Record = dict[str, Any]
LARGEST = 2**30
"""Bytes of a log."""
LARGEST_NUMBER = 1e300


class Log:
    """Appends records with a `kind`, a `step` and an `epoch`; reopening drops what came after the checkpoint.

    A checkpoint of the last step of an epoch is taken before the epoch's own record is written, so epoch records are
    kept by their epoch.
    """

    def __init__(self, folder: Path, step: int, epoch: int, trackers: Sequence[Tracker] = ()) -> None:
        self.path = folder / "log.jsonl"
        kept = [
            record
            for record in (read_log(self.path) if self.path.exists() else [])
            if record["step"] <= step and (record["kind"] != "epoch" or record["epoch"] < epoch)
        ]
        with new_file(self.path) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
        with explained(f"write {self.path}"):
            self.file = self.path.open("a", encoding="utf-8")
        self.trackers = trackers

    def write(self, kind: str, step: int, **values: Any) -> None:
        with explained(f"write {self.path}"):
            record = {name: value if is_finite(value) else None for name, value in values.items()}  # JSON has no NaN
            self.file.write(json.dumps({"kind": kind, "step": step, **record}) + "\n")
            self.file.flush()
        if self.trackers:
            numbers = {f"{kind}/{name}": value for name, value in values.items() if isinstance(value, int | float)}
            for tracker in self.trackers:
                tracker.write(numbers, step)

    def close(self) -> None:
        self.file.close()
        for tracker in self.trackers:
            tracker.close()


class NoLog(Log):
    """Of a process that does not lead: keeps nothing."""

    def __init__(self) -> None: ...

    def write(self, kind: str, step: int, **values: Any) -> None: ...

    def close(self) -> None: ...


def errors_in(folder: Path, epochs: int) -> list[float]:
    """The training errors of the first `epochs` epochs, by the log in a run's folder."""
    path = folder / "log.jsonl"
    records = read_log(path) if path.exists() else []
    return [record["error"] for record in records if record["kind"] == "epoch" and record["epoch"] < epochs]


def read_log(path: Path) -> list[Record]:
    """The records of a log; a last line cut short by a crash is left out."""
    with explained(f"read {path}"), path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise QuatcapsError(f"{path} is not a log: it has more than {LARGEST:,} bytes")
    lines = raw.decode(errors="replace").splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(checked(strict_json.parse(line)))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise QuatcapsError(f"{path}, line {number}, is not a log record: {line[:80]!r}") from error
    return records


def checked(record: Record) -> Record:
    """A record as training writes it; ValueError, KeyError or TypeError where it is none."""
    if type(record["kind"]) is not str or type(record["step"]) is not int or type(record["epoch"]) is not int:
        raise TypeError
    for name, value in record.items():
        number = isinstance(value, int | float) and abs(value) < LARGEST_NUMBER
        if name != "kind" and not number and not (value is None and (name == "loss" or name.endswith("_error"))):
            raise ValueError
    if record["kind"] == "epoch":
        _ = (record["loss"], record["error"] + 0, record["seconds"] + 0)
    return record


def is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)

"""The run's log: one JSON object a line, in the order of the steps; TensorBoard beside it where asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, new_file

Record = dict[str, Any]


class Log:
    """Appends records with a `kind`, a `step` and an `epoch`; reopening drops what came after the checkpoint.

    A checkpoint of the last step of an epoch is taken before the epoch's own record is written, so epoch records are
    kept by their epoch.
    """

    def __init__(self, folder: Path, step: int, epoch: int, *, tensorboard: bool = False) -> None:
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
        self.events = events_writer(folder / "tensorboard", step) if tensorboard else None

    def write(self, kind: str, step: int, **values: Any) -> None:
        with explained(f"write {self.path}"):
            self.file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
            self.file.flush()
        if self.events is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self.events.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self.file.close()
        if self.events is not None:
            self.events.close()


class NoLog(Log):
    """Of a process that does not lead: keeps nothing."""

    def __init__(self) -> None: ...

    def write(self, kind: str, step: int, **values: Any) -> None: ...

    def close(self) -> None: ...


def read_log(path: Path) -> list[Record]:
    """The records of a log; a last line cut short by a crash is left out."""
    with explained(f"read {path}"):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            _ = (record["kind"], record["step"] + 0, record["epoch"] + 0)
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise QuatcapsError(f"{path}, line {number}, is not a log record: {line[:80]!r}") from error
        records.append(record)
    return records


def events_writer(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise QuatcapsError("TensorBoard is not installed: pip install 'quatcaps[tensorboard]'") from error
    return SummaryWriter(str(folder), purge_step=step + 1)

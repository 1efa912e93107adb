"""The best checkpoint: the weights after the epoch of the lowest error on the validation images, the latest of several:
where few images are held out, or all are classified correctly, many are equal, and it was trained for longest. Test
images choose nothing.

Which epoch is best, and whether patience has run out, follows from the run's log alone, so that a run that was killed
chooses again as it did. The best weights lie beside the checkpoints, in a folder of their own:

best-N/weights.safetensors   what is measured: the network's parameters and buffers, or their running average
best-N/state.json            the step N, the epochs done, the error on the validation images
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from quatcaps.errors import QuatcapsError
from quatcaps.files import new_folder, read_json
from quatcaps.tensors import save_tensors
from quatcaps.training.checkpoint import WEIGHTS, Position
from quatcaps.training.log import Record, read_log

FORMAT = 1
NAME = re.compile(r"best-(\d+)")
WATCHED = "validation"


@dataclass(frozen=True)
class Choice:
    """The best epoch so far, counted from 0, its error, the last epoch that was measured, and the first one of that
    error."""

    epoch: int
    error: float
    measured: int
    since: int

    def exhausted(self, patience: int) -> bool:
        """Whether so many epochs had no lower error; never for 0."""
        return 0 < patience <= self.measured - self.since


def after(choice: Choice | None, epoch: int, error: float) -> Choice:
    """The choice once another epoch is measured."""
    if choice is None or error < choice.error:
        return Choice(epoch, error, epoch, since=epoch)
    return Choice(epoch if error == choice.error else choice.epoch, choice.error, epoch, choice.since)


def choice_of(records: Iterable[Record], epochs: int) -> Choice | None:
    """What a log says about the first `epochs` epochs."""
    choice = None
    for record in records:
        error = record.get(f"{WATCHED}_error")
        if record["kind"] == "epoch" and record["epoch"] < epochs and error is not None:
            choice = after(choice, record["epoch"], error)
    return choice


def choice_in(folder: Path, epochs: int) -> Choice | None:
    """The same for the log in a run's folder."""
    path = folder / "log.jsonl"
    return choice_of(read_log(path), epochs) if path.exists() else None


@dataclass(frozen=True)
class Best:
    """A best checkpoint on disk."""

    folder: Path
    step: int
    epochs: int  # done when it was taken
    error: float  # on the validation images

    def __str__(self) -> str:
        return (
            f"the best checkpoint, after epoch {self.epochs} ({100 * self.error:.2f}% error on the validation images)"
        )


def save(folder: Path, network: nn.Module, position: Position, error: float) -> Path:
    """Writes the best checkpoint into the folder of checkpoints, after an epoch that is not counted yet in `position`,
    and removes the one before."""
    path = folder / f"best-{position.step:08d}"
    if path.exists():  # of the same run before it was stopped and resumed, maybe on another device
        shutil.rmtree(path, ignore_errors=True)
    state = {"format": FORMAT, "step": position.step, "epochs": position.epoch + 1, "validation_error": error}
    with new_folder(path) as temporary:
        save_tensors(temporary / WEIGHTS, network.state_dict())
        (temporary / "state.json").write_text(json.dumps(state, indent=2) + "\n")
    for other in folders(folder):
        if other != path:
            shutil.rmtree(other, ignore_errors=True)
    return path


def folders(folder: Path) -> list[Path]:
    """The best checkpoints in a folder of checkpoints, the latest last; more than one only for a moment."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name.split("-")[1]))


def find(folder: Path) -> Best | None:
    """The best checkpoint in a folder of checkpoints."""
    found = folders(folder)
    if not found:
        return None
    state = read_json(found[-1] / "state.json", "a best checkpoint's state")
    kinds = {"format": int, "step": int, "epochs": int, "validation_error": float}
    if state.keys() != kinds.keys() or any(type(state[name]) is not kind for name, kind in kinds.items()):
        raise QuatcapsError(
            f"{found[-1] / 'state.json'} is not a best checkpoint's state: its entries must be {', '.join(kinds)}"
        )
    if state["format"] != FORMAT:
        raise QuatcapsError(f"{found[-1]} was written in another format than this version reads ({FORMAT})")
    return Best(found[-1], state["step"], state["epochs"], state["validation_error"])

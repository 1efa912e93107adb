"""Where a run's log goes beside its file: TensorBoard, and Weights & Biases."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from quatcaps.errors import QuatcapsError
from quatcaps.files import read_json, write_json

ID = "wandb.json"
"""In a run's folder: the name of the run at Weights & Biases, which a run that is resumed keeps."""


@runtime_checkable
class Tracker(Protocol):
    """Takes the numbers of a step or an epoch."""

    def write(self, numbers: Mapping[str, int | float], step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Events in the run's folder; what a resumed run does again takes the place of what was there."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise QuatcapsError("TensorBoard is not installed: pip install 'quatcaps[tensorboard]'") from error
        self.events: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, numbers: Mapping[str, int | float], step: int) -> None:
        for name, value in numbers.items():
            self.events.add_scalar(name, value, step)

    def close(self) -> None:
        self.events.close()


class WeightsAndBiases:
    """A run of a project; WANDB_MODE and the other variables of wandb are its own business. What a resumed run does
    again, wandb leaves as it was."""

    def __init__(self, folder: Path, project: str, config: Mapping[str, Any]) -> None:
        wandb, path = import_wandb(), folder / ID
        if path.exists():
            name = str(read_json(path, "the name of a run at Weights & Biases").get("id", ""))
        else:
            name = secrets.token_hex(8)
            write_json(path, {"id": name})
        try:
            self.run: Any = wandb.init(
                project=project, id=name, resume="allow", name=folder.name, dir=str(folder), config=dict(config)
            )
        except Exception as error:  # wandb has many, of networks, accounts and settings
            raise QuatcapsError(
                f"Weights & Biases cannot log to the project {project!r}: {error}; WANDB_MODE=offline logs on this "
                "machine alone"
            ) from error

    def write(self, numbers: Mapping[str, int | float], step: int) -> None:
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        self.run.finish()


def import_wandb() -> Any:
    """The module, or an error that says how to install it."""
    try:
        import wandb
    except ImportError as error:
        raise QuatcapsError("Weights & Biases is not installed: pip install 'quatcaps[wandb]'") from error
    return wandb

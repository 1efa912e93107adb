"""Checkpoints: a folder of safetensors and JSON that appears whole or not at all.

weights.safetensors    the network's parameters and buffers
average.safetensors    their running average, where the run has one
training.safetensors   the optimiser's state
state.json             the step, the epoch, the position in it, running sums
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from quatcaps.errors import QuatcapsError
from quatcaps.files import new_folder, read_json, write_json
from quatcaps.tensors import load_into, load_tensors, save_tensors

FORMAT = 2
KEPT = 2
LARGEST_COUNT = 2**53
WEIGHTS, AVERAGE = "weights.safetensors", "average.safetensors"
NAME = re.compile(r"step-(\d+)")
NAME_OF_STATE = re.compile(r"optimiser/(\d+)/(\w+)")


@dataclass
class Position:
    """Where a run stands."""

    step: int = 0  # training steps done
    epoch: int = 0
    batch: int = 0  # batches of this epoch done
    loss_sum: float = 0.0  # over this epoch
    errors: int = 0  # misclassified training images of this epoch
    seconds: float = 0.0  # spent training, over all parts of the run


def save(
    folder: Path,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    position: Position,
    average: nn.Module | None = None,
) -> Path:
    """Writes the checkpoint of this step into `folder` and removes all but the newest few. Where it is there already,
    its tensors are these, but the run may have ended its epoch since."""
    path = path_of(folder, position)
    standing = {"format": FORMAT, **asdict(position)}
    if path.exists():
        if read_position(path) != position:
            write_json(path / "state.json", standing)
        return path
    training: dict[str, Any] = {}
    for number, state in optimiser.state_dict()["state"].items():
        training |= {f"optimiser/{number}/{key}": value for key, value in state.items()}
    with new_folder(path) as temporary:
        save_tensors(temporary / WEIGHTS, network.state_dict())
        if average is not None:
            save_tensors(temporary / AVERAGE, average.state_dict())
        save_tensors(temporary / "training.safetensors", training)
        (temporary / "state.json").write_text(json.dumps(standing, indent=2) + "\n")
    for old in checkpoints(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def path_of(folder: Path, position: Position) -> Path:
    """Where the checkpoint of a position lies in `folder`."""
    return folder / f"step-{position.step:08d}"


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name.split("-")[1]))


def restore(
    path: Path, network: nn.Module, optimiser: torch.optim.Optimizer, average: nn.Module | None = None
) -> Position:
    """Puts a checkpoint back into what it was saved from. Chance needs none: it follows from the seed and the step."""
    position = read_position(path)
    load_weights(path, network)
    if average is not None:
        load_weights(path, average, AVERAGE)
    tensors = load_tensors(path / "training.safetensors")
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        parts = NAME_OF_STATE.fullmatch(name)
        if parts is None:
            raise QuatcapsError(f"{path / 'training.safetensors'} does not fit this run: it holds {name!r}")
        moments.setdefault(int(parts[1]), {})[parts[2]] = tensor
    check_moments(path / "training.safetensors", moments, optimiser)
    laid = {number: lying_as(parameters_of(optimiser)[number], state) for number, state in moments.items()}
    try:
        optimiser.load_state_dict({"state": laid, "param_groups": optimiser.state_dict()["param_groups"]})
    except (KeyError, ValueError, RuntimeError, TypeError) as error:
        raise QuatcapsError(f"{path / 'training.safetensors'} does not fit this run: {error}") from error
    return position


def read_position(path: Path) -> Position:
    """Where the run stood when it left this checkpoint."""
    state = read_json(path / "state.json", "a checkpoint's state")
    if state.pop("format", None) != FORMAT:
        raise QuatcapsError(f"{path} was written in another format than this version reads ({FORMAT})")
    kinds = {field.name: type(field.default) for field in fields(Position)}
    if state.keys() != kinds.keys() or any(type(state[name]) is not kind for name, kind in kinds.items()):
        raise QuatcapsError(
            f"{path / 'state.json'} is not a checkpoint's state: its entries must be {', '.join(kinds)}"
        )
    for name, value in state.items():
        if not 0 <= value < LARGEST_COUNT:
            raise QuatcapsError(
                f"{path / 'state.json'} is not a checkpoint's state: {name} is {str(value)[:40]}, and must be from 0 "
                f"to {LARGEST_COUNT:,}"
            )
    return Position(**state)


def parameters_of(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


def lying_as(parameter: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A parameter's state, in memory as the parameter: a fused optimiser takes nothing else."""
    return {
        key: torch.empty_like(parameter, dtype=tensor.dtype).copy_(tensor) if tensor.ndim else tensor
        for key, tensor in state.items()
    }


def check_moments(source: Path, moments: dict[int, dict[str, Tensor]], optimiser: torch.optim.Optimizer) -> None:
    """Raises unless there is a state of each parameter's shape, or none at all, as before the first step."""
    parameters = parameters_of(optimiser)
    if moments and moments.keys() != set(range(len(parameters))):
        raise QuatcapsError(
            f"{source} does not fit this run: it holds the state of {len(moments)} parameters, not of {len(parameters)}"
        )
    for number, state in moments.items():
        for key, tensor in state.items():
            if tensor.ndim and tensor.shape != parameters[number].shape:
                raise QuatcapsError(
                    f"{source} does not fit this run: {key} of parameter {number} has shape {tuple(tensor.shape)}, "
                    f"the parameter {tuple(parameters[number].shape)}"
                )


def load_weights(path: Path, network: nn.Module, name: str = WEIGHTS) -> None:
    """A checkpoint's parameters and buffers into `network`; an error that names the first one that does not fit."""
    load_into(network, path / name)

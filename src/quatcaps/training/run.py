"""A run's folder: what it was told to do, on what, with which versions; and the network it has now."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import quatcaps
from quatcaps import data
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment, arrange
from quatcaps.errors import QuatcapsError
from quatcaps.files import make_folder, read_json, write_json
from quatcaps.models import Network, build
from quatcaps.training.checkpoint import AVERAGE, WEIGHTS, checkpoints, load_weights
from quatcaps.training.config import TrainingConfig

FORMAT = 2


@dataclass(frozen=True)
class Run:
    """A run that has a folder."""

    folder: Path
    config: TrainingConfig
    channels: int
    classes: tuple[str, ...]
    size: tuple[int, int]  # of the stored images: height, width

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def network(self) -> Network:
        """The network as this run initialises it."""
        return build(
            self.config.model,
            channels=self.channels,
            classes=len(self.classes),
            seed=self.config.seed,
            **self.config.model_settings,
        )

    def trained_network(self) -> Network:
        """The network of the newest checkpoint, ready to evaluate; with the average of its weights, if there is one."""
        saved = checkpoints(self.checkpoints)
        if not saved:
            raise QuatcapsError(
                f"{self.folder} has no checkpoint yet: train it with quatcaps train --resume {self.folder}"
            )
        network = self.network()
        load_weights(saved[-1], network, AVERAGE if self.config.averaging else WEIGHTS)
        return network.eval()


def check_free(folder: Path) -> None:
    """Raises where a new run cannot begin: the folder holds something, or cannot be made. Makes nothing."""
    if folder.is_dir() and any(folder.iterdir()):
        hint = f"continue it with --resume {folder}, or " if (folder / "run.json").exists() else ""
        raise QuatcapsError(f"{folder} is not empty: {hint}give another --output")
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise QuatcapsError(f"cannot make the folder {folder}: a file stands where a folder is needed at {nearest}")
    if not os.access(nearest, os.W_OK):
        raise QuatcapsError(f"cannot make the folder {folder}: {nearest} is not yours to write to; choose another")


def new_run(folder: Path, config: TrainingConfig, images: ImageSet) -> Run:
    """A run that has no folder yet."""
    return Run(folder, config, images.channels, images.classes, images.size)


def create_run(folder: Path, config: TrainingConfig, images: ImageSet) -> Run:
    """A new run folder; one that holds anything already is refused."""
    check_free(folder)
    make_folder(folder)
    run = new_run(folder, config, images)
    description: dict[str, Any] = {
        "format": FORMAT,
        "config": config.to_json(),
        "channels": run.channels,
        "classes": list(run.classes),
        "size": list(run.size),
        "data": images.source,
        "versions": versions(choose_device(config.device)),
    }
    write_json(folder / "run.json", description)
    return run


def open_run(folder: Path) -> Run:
    """The run in a folder; an error where there is none."""
    if not folder.is_dir():
        raise QuatcapsError(f"{folder} is not a run: there is no such folder")
    if not (folder / "run.json").is_file():
        raise QuatcapsError(f"{folder} is not a run: it has no run.json; give a folder that quatcaps train made")
    description = read_json(folder / "run.json", "a run's description")
    try:
        if description["format"] != FORMAT:
            raise QuatcapsError(f"{folder} was written in another format than this version reads ({FORMAT})")
        config = TrainingConfig.from_json(description["config"])
        height, width = map(int, description["size"])
        classes = tuple(map(str, description["classes"]))
        return Run(folder, config, int(description["channels"]), classes, (height, width))
    except QuatcapsError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise QuatcapsError(f"{folder / 'run.json'} is not a run's description: {error!r}") from error


def load_images(config: TrainingConfig, split: str, data_folder: Path, stage: data.Stage | None = None) -> ImageSet:
    """The `train` or `test` split of the run's dataset, or `all` of it; all viewpoints."""
    return data.load(
        config.dataset,
        split,
        folder=data_folder,
        size=config.image_size,
        seed=config.data_seed,
        stage=stage,
    )


def load_experiment(config: TrainingConfig, load: Callable[[str], ImageSet]) -> Experiment:
    """What the run learns from and is measured on; `load` gives the images of a split."""
    experiment = arrange(
        load,
        viewpoints=config.viewpoints,
        protocol=config.protocol,
        validation=config.validation,
        seed=config.data_seed,
    )
    return experiment if config.test else replace(experiment, tests={})


def choose_device(name: str) -> torch.device:
    """`cpu`, `cuda`, `cuda:N`, or `auto`: cuda where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise QuatcapsError(f"unknown device {name!r}: give cpu, cuda, cuda:N or auto") from error
    if device.type not in ("cpu", "cuda"):
        raise QuatcapsError(f"device {name!r} is not supported: give cpu, cuda, cuda:N or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise QuatcapsError(
            f"device {name!r} is not here: this machine has {torch.cuda.device_count()} CUDA devices; give --device cpu"
        )
    return device


def versions(device: torch.device) -> dict[str, str]:
    """What is computed with on a device; on a CPU, `gpu` is the one that the machine has nevertheless."""
    gpu = device if device.type == "cuda" else None
    return {
        "quatcaps": quatcaps.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "gpu": torch.cuda.get_device_name(gpu) if torch.cuda.is_available() else "none",
    }

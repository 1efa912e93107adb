"""A run's folder: what it was told to do, on what, with which versions; and the network it has now."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import quatcaps
from quatcaps import data
from quatcaps.data.imageset import ImageSet, single_views
from quatcaps.data.splits import Experiment, arrange
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.files import explained, read_json, write_json
from quatcaps.models import Network, build
from quatcaps.models.stored import check_network, check_shape
from quatcaps.training import best
from quatcaps.training.best import Best
from quatcaps.training.checkpoint import AVERAGE, WEIGHTS, checkpoints, load_weights
from quatcaps.training.config import TrainingConfig
from quatcaps.training.identity import check_same, digests_of
from quatcaps.training.lock import is_own, owned

FORMAT = 2
CHECKPOINTS = ("best", "last", "average")
MODEST = 50_000_000
"""Parameters for which memory may be taken before the weights are known to fit them."""


@dataclass(frozen=True)
class Stretch:
    """A part of a run that was configured for fewer epochs than the rest."""

    step: int  # that was next when the run was given more
    epochs: int


@dataclass(frozen=True)
class Run:
    """A run that has a folder."""

    folder: Path
    config: TrainingConfig
    channels: int
    classes: tuple[str, ...]
    size: tuple[int, int]  # of the stored images: height, width
    provenance: str = ""  # where the images came from, in a few words
    digests: dict[str, str] = field(default_factory=dict)  # of the images, by name; empty: unknown
    initial: str = ""  # whose weights it began with; empty: random ones
    stretches: tuple[Stretch, ...] = ()  # where it was given more epochs than it was begun with
    versions: dict[str, str] = field(default_factory=dict)  # with which it was begun; empty: unknown

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def network(self) -> Network:
        """The network as this run initialises it; an error, before memory is taken, where it is beyond all bounds."""
        check_network(self.config.model, self.channels, len(self.classes), self.config.model_settings)
        return build(
            self.config.model,
            channels=self.channels,
            classes=len(self.classes),
            seed=self.config.seed,
            **self.config.model_settings,
        )

    @property
    def machine(self) -> str:
        """What it was begun on, by its own account: the GPU's name, or the kind of CPU."""
        gpu = self.versions.get("gpu", "none")
        return self.versions.get("machine", "unknown") if gpu == "none" or self.config.device == "cpu" else gpu

    def epochs_at(self, step: int) -> int:
        """The epochs that the run was configured for when it took a step."""
        return next((part.epochs for part in self.stretches if step < part.step), self.config.epochs)

    def kept_best(self, which: str | None = None) -> Best | None:
        """The checkpoint that is used where `which` is asked for: the best one, or None: the last. Without a wish, the
        best if the run keeps one."""
        if which not in (None, *CHECKPOINTS):
            raise unknown_name("checkpoint", str(which), CHECKPOINTS)
        if which == "average" and not self.config.averages:
            raise QuatcapsError(
                f"{self.folder} has no average of its weights: use the last, --checkpoint last, or train with "
                "--averaging-beside 0.998"
            )
        wanted = which == "best" or (which is None and self.config.keeps_best)
        found = best.find(self.checkpoints) if wanted else None
        if found is None and which == "best":
            raise QuatcapsError(
                f"{self.folder} keeps no best checkpoint: use the last, --checkpoint last, or train with --validation "
                "and --keep-best"
            )
        return found

    def trained_network(self, which: str | None = None) -> Network:
        """The network ready to evaluate, of the best checkpoint or of the newest, as in `kept_best`; with the average
        of its weights, if that is what the run keeps or what is asked for."""
        folder, name = self.weights(which)
        needed = check_network(self.config.model, self.channels, len(self.classes), self.config.model_settings)
        with explained(f"read {folder / name}"):
            held = (folder / name).stat().st_size
        if needed > max(held, MODEST):
            raise QuatcapsError(
                f"{folder / name} does not fit {self.folder / 'run.json'}: it has {held:,} bytes, and the network "
                f"{needed:,} parameters; one of them is damaged or foreign"
            )
        network = self.network()
        load_weights(folder, network, name)
        return network.eval()

    def weights(self, which: str | None = None) -> tuple[Path, str]:
        """The checkpoint's folder, and the file of the weights in it."""
        if (found := self.kept_best(which)) is not None:
            return found.folder, WEIGHTS
        saved = checkpoints(self.checkpoints)
        if not saved:
            raise QuatcapsError(
                f"{self.folder} has no checkpoint yet: train it with quatcaps train --resume {self.folder}"
            )
        return saved[-1], AVERAGE if self.config.averaging or which == "average" else WEIGHTS

    def check_images(self, experiment: Experiment) -> None:
        """Raises where the images are not those that the run was begun with, as far as their digests are known."""
        remedy = "put its own images back, or begin a new run"
        check_same(str(self.folder), self.provenance, self.digests, experiment, remedy)


def check_free(folder: Path) -> None:
    """Raises where a new run cannot begin: the folder holds something, or cannot be made. Makes nothing."""
    if folder.is_dir() and not all(map(is_own, folder.iterdir())):
        hint = f"continue it with --resume {folder}, or " if (folder / "run.json").exists() else ""
        raise QuatcapsError(f"{folder} is not empty: {hint}give another --output")
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise QuatcapsError(f"cannot make the folder {folder}: a file stands where a folder is needed at {nearest}")
    if not os.access(nearest, os.W_OK):
        raise QuatcapsError(f"cannot make the folder {folder}: {nearest} is not yours to write to; choose another")


def new_run(folder: Path, config: TrainingConfig, images: ImageSet, tests: Mapping[str, ImageSet] | None = None) -> Run:
    """A run that has no folder yet; `images` are those it learns from, `tests` those it is measured on."""
    check_shape(images.channels, len(images.classes), images.size)
    digests = digests_of({"training": images, **(tests or {})})
    used = versions(choose_device(config.device))
    shape = (images.channels, images.classes, images.size)
    return Run(folder, config, *shape, images.source, digests, versions=used)


def create_run(
    folder: Path, config: TrainingConfig, images: ImageSet, tests: Mapping[str, ImageSet] | None = None
) -> Run:
    """A new run folder; one that holds anything already is refused."""
    check_free(folder)
    with owned(folder):
        return write_run(new_run(folder, config, images, tests))


def write_run(run: Run) -> Run:
    """Describes a new run in its folder, which this process owns: of several that want it, one gets it, and one that is
    killed on the way leaves a folder that counts as empty."""
    check_free(run.folder)
    description: dict[str, Any] = {
        "format": FORMAT,
        "config": run.config.to_json(),
        "channels": run.channels,
        "classes": list(run.classes),
        "size": list(run.size),
        "data": run.provenance,
        "digests": run.digests,
        "versions": run.versions,
        **({"initial": run.initial} if run.initial else {}),
    }
    write_json(run.folder / "run.json", description)
    return run


def open_run(folder: Path) -> Run:
    """The run in a folder; an error where there is none."""
    if not folder.is_dir():
        raise QuatcapsError(f"{folder} is not a run: there is no such folder")
    if not (folder / "run.json").is_file():
        raise QuatcapsError(f"{folder} is not a run: it has no run.json; give a folder that quatcaps train made")
    description = read_json(folder / "run.json", "a run's description")
    if "format" in description and description["format"] != FORMAT:
        raise QuatcapsError(f"{folder} was written in another format than this version reads ({FORMAT})")
    try:
        _ = description["format"]
        config = TrainingConfig.from_json(description["config"])
        height, width = description["size"]
        classes = tuple(description["classes"])
        if not isinstance(description["classes"], list) or not all(isinstance(name, str) for name in classes):
            raise TypeError("classes must be a list of names")
        if not isinstance(description.get("versions", {}), dict):
            raise TypeError("versions must be text by name")
        check_shape(description["channels"], len(classes), (height, width))
        provenance, digests = str(description.get("data", "")), description.get("digests", {})
        if not isinstance(digests, dict) or not all(isinstance(digest, str) for digest in digests.values()):
            raise TypeError("digests must be text by name")
        initial = description.get("initial", "")
        if not isinstance(initial, str):
            raise TypeError("initial must be text")
        stretches = tuple(Stretch(**part) for part in description.get("stretches", ()))
        if not all(type(part.step) is int and type(part.epochs) is int and part.epochs > 0 for part in stretches):
            raise TypeError("stretches must have a step and epochs")
        shape = (height, width)
        versions = {str(name): str(version) for name, version in description.get("versions", {}).items()}
        numbers = (description["channels"], classes, shape)
        return Run(folder, config, *numbers, provenance, digests, initial, stretches, versions)
    except QuatcapsError as error:
        raise QuatcapsError(f"{folder / 'run.json'} is not a run's description: {error}") from error
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
    """What the run learns from and is measured on; `load` gives the images of a split. Stereo pairs are taken apart in
    the end, so that both views of one are on one side."""
    experiment = arrange(
        load,
        viewpoints=config.viewpoints,
        protocol=config.protocol,
        validation=config.validation,
        by=config.validation_by,
        seed=config.data_seed,
    )
    tests = {name: with_views(config, images) for name, images in experiment.tests.items()} if config.test else {}
    held_out = experiment.validation
    return Experiment(
        with_views(config, experiment.training), tests, None if held_out is None else with_views(config, held_out)
    )


def with_views(config: TrainingConfig, images: ImageSet) -> ImageSet:
    """The images as the network takes them: stereo pairs, or their single views."""
    return single_views(images) if config.stereo_views == "single" else images


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

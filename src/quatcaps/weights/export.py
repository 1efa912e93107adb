"""From a run that is trained to its end to a file of weights with its card."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.data.custom import is_path
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.files import new_file
from quatcaps.models import parameter_count, shape_of
from quatcaps.paper.recipes import paper
from quatcaps.settings import flags_between
from quatcaps.tensors import plain_tensors, save_tensors
from quatcaps.training.checkpoint import Position, checkpoints, read_position
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import Progress, errors_on
from quatcaps.training.more_epochs import stopped_early
from quatcaps.training.run import Run, load_experiment
from quatcaps.training.trained import trained_run
from quatcaps.weights.cards import LIMIT, NAME, Card
from quatcaps.weights.zoo import SUFFIX, digest

Load = Callable[[str], ImageSet]


def export_run(
    run: Run,
    name: str,
    folder: Path,
    load: Load,
    device: torch.device,
    progress: Progress | None = None,
    note: str = "",
) -> Card:
    """Writes NAME.safetensors and its card NAME.json into `folder`, both or neither.

    load: gives the images of a split; the error on those that the run is tested on is measured here, on `device`. note:
    how this run was chosen among others, for the card.
    """
    paths = {kind: folder / f"{name}{kind}" for kind in (SUFFIX, ".json")}
    check_name(name, list(paths.values()))
    position = finished(run)
    if not run.config.test:
        raise QuatcapsError(
            f"{run.folder} was trained with --no-test: a card has an error on test images; train without"
        )
    trained = trained_run(run, "last")
    tensors = plain_tensors(trained.network)
    check_size(run, tensors)
    experiment = load_experiment(run.config, load)
    run.check_images(experiment)
    error = errors_on(trained, experiment.tests, device, progress)
    # The card takes its place after the weights, so that there is none without them.
    with new_file(paths[".json"]) as card_file, new_file(paths[SUFFIX]) as weights_file:
        save_tensors(weights_file, tensors, {"format": "pt"})
        card = Card(
            name=name,
            config=by_shape(run.config),
            channels=run.channels,
            classes=run.classes,
            size=run.size,
            parameters=parameter_count(trained.network),
            images=counts(experiment),
            provenance=run.provenance,
            error=error,
            measured_on=device.type,
            chosen=f"after the last of {position.epoch} epochs, seed {run.config.seed}"
            + "".join(f"; it went on at step {part.step} of {part.epochs} epochs" for part in run.stretches)
            + (f"; {note}" if note else ""),
            command=command_of(run.config),
            seconds=round(position.seconds, 1),
            machine=run.machine,
            versions=run.versions,
            sha256=digest(weights_file),
            bytes=weights_file.stat().st_size,
            licence=licence_of(run.config.dataset),
            digests=run.digests,
        )
        card_file.write_text(json.dumps(card.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return card


def by_shape(config: TrainingConfig) -> TrainingConfig:
    """The same configuration with the network by the name of its shape, from which alone `build` makes it."""
    model, settings = shape_of(config.model, config.model_settings)
    return config.changed({"model": model, "model_settings": settings})


def check_name(name: str, paths: list[Path]) -> None:
    """Raises where weights cannot have that name, or others have it already."""
    if not NAME.fullmatch(name):
        raise QuatcapsError(f"name {name!r}: give small letters, digits, - and ., at most 64, a letter or digit first")
    for path in paths:
        if path.exists():
            raise QuatcapsError(f"{path} exists: remove {' and '.join(map(str, paths))}, or give another --name")


def finished(run: Run) -> Position:
    """Where a run stands at its end; raises where it has not reached it."""
    saved = checkpoints(run.checkpoints)
    position = read_position(saved[-1]) if saved else Position()
    if position.epoch < run.config.epochs and stopped_early(run, position) is None:
        raise QuatcapsError(
            f"{run.folder} is trained for {position.epoch} of its {run.config.epochs} epochs: finish it with quatcaps "
            f"train --resume {run.folder}"
        )
    return position


def check_size(run: Run, tensors: dict[str, Tensor]) -> None:
    """Raises where a file of these tensors would be too large; before anything is measured for it."""
    needed = sum(tensor.nbytes for tensor in tensors.values())
    if needed >= LIMIT:
        raise QuatcapsError(
            f"the weights of {run.folder} take {needed:,} bytes: files with a card stay below {LIMIT:,}; train a "
            "smaller network, or use the run as it is"
        )


def counts(experiment: Experiment) -> dict[str, int]:
    """How many images a run was trained on, and how many it is measured on, by name."""
    measured = {name: len(images) for name, images in experiment.measured.items()}
    return {"training": len(experiment.training), **measured}


def command_of(config: TrainingConfig) -> str:
    """What to type to train with this configuration, on any device: told by its differences from the paper's, which
    stays as it is."""
    base = paper(config.dataset)
    different = flags_between(config.changed({"device": base.device}), base)
    return shlex.join(["quatcaps", "train", "--recipe", "paper", "--dataset", config.dataset, *different])


def licence_of(dataset: str) -> str:
    """What a card says about who may use the weights."""
    if dataset in DESCRIPTIONS:
        description = DESCRIPTIONS[dataset]
        return f"MIT, as quatcaps. Licence of {description.title}, which they were trained on: {description.licence}"
    return "not stated: that is for the owner of the images" if is_path(dataset) else "MIT, as quatcaps and its toys"

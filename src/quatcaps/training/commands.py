"""`quatcaps train`: from a configuration to a trained run."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console

from quatcaps import settings
from quatcaps.data import DATASETS
from quatcaps.data.batches import check_batch
from quatcaps.data.cache import data_folder
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import unknown_name
from quatcaps.models import build, parameter_count, settings_of
from quatcaps.training.config import TrainingConfig
from quatcaps.training.loop import Trainer
from quatcaps.training.progress import TrainingProgress, counting
from quatcaps.training.run import Run, check_free, choose_device, create_run, familiar, load_images, open_run


def load_splits(config: TrainingConfig, folder: Path | None, console: Console) -> tuple[ImageSet, ImageSet]:
    """The training and the test images, all viewpoints, with a bar where they have to be made."""
    place = data_folder(folder)
    splits = []
    for split, words in (("train", "training"), ("test", "test")):
        with counting(console, f"preparing the {words} images of {config.dataset}") as progress:
            splits.append(load_images(config, split, place, progress))
    return splits[0], splits[1]


def start_run(config: TrainingConfig, folder: Path, data_dir: Path | None, console: Console) -> Run:
    """Trains a new run in `folder`."""
    config = checked(config)
    check_free(folder)
    training, test = load_splits(config, data_dir, console)
    check_batch(config.batch, len(familiar(config, training)))
    run = create_run(folder, config, training)
    return train_run(run, training, test, console)


def resume_run(folder: Path, data_dir: Path | None, console: Console, device: str | None = None) -> Run:
    """Goes on with the run in `folder` from its newest checkpoint."""
    run = open_run(folder)
    training, test = load_splits(run.config, data_dir, console)
    return train_run(run, training, test, console, device)


def train_run(run: Run, training: ImageSet, test: ImageSet, console: Console, device: str | None = None) -> Run:
    """Trains a run on its own viewpoints to the end."""
    config = run.config
    trainer = Trainer(run, familiar(config, training), familiar(config, test), device)
    if trainer.position.epoch >= config.epochs:
        console.print(f"{run.folder} is trained to its end, {config.epochs} epochs", highlight=False, soft_wrap=True)
        return run
    begun = f" from step {trainer.position.step}" if trainer.position.step else ""
    console.print(
        f"training {config.model} ({parameter_count(trainer.network):,} parameters) on "
        f"{len(trainer.batches.images):,} images of {config.dataset} on {trainer.device}{begun}; run in {run.folder}",
        highlight=False,
        soft_wrap=True,
    )
    with TrainingProgress(console) as progress:
        trainer.train(progress)
    console.print(
        f"trained {config.epochs} epochs, {trainer.position.step:,} steps, in {trainer.position.seconds:.0f} s; "
        f"look at it with: quatcaps evaluate {run.folder}",
        highlight=False,
        soft_wrap=True,
    )
    return run


def checked(config: TrainingConfig) -> TrainingConfig:
    """The configuration with its model settings read as their types.

    What does not fit is found here, before images are made or a folder is: names, settings, and, by showing the
    network one empty image, a crop that is too small for it.
    """
    if config.dataset not in DATASETS:
        raise unknown_name("dataset", config.dataset, DATASETS)
    choose_device(config.device)
    whole = settings.to_json(settings_of(config.model, config.model_settings))
    network = build(config.model, channels=1, classes=2, seed=0, **config.model_settings).eval()
    with torch.no_grad():
        network(torch.zeros(1, 1, config.crop, config.crop))
    return config.changed({"model_settings": {name: whole[name] for name in config.model_settings}})

"""From a configuration to a trained run: starting one, and going on with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from quatcaps.console import say, stages
from quatcaps.data import find_dataset
from quatcaps.data.batches import check_batch
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.data.store import data_folder
from quatcaps.errors import QuatcapsError
from quatcaps.models import build, parameter_count, stored_settings
from quatcaps.training.checkpoint import checkpoints
from quatcaps.training.config import TrainingConfig
from quatcaps.training.estimate import Estimate, few_steps, images_to_measure
from quatcaps.training.folders import default_folder, make_numbered, next_free, numbered
from quatcaps.training.initial import begin_with, check_initial, described
from quatcaps.training.lock import owned
from quatcaps.training.loop import Trainer
from quatcaps.training.more_epochs import record_epochs, with_epochs
from quatcaps.training.poses import check_poses
from quatcaps.training.processes import ALONE, Processes, joined
from quatcaps.training.progress import TrainingProgress
from quatcaps.training.reporters import Reporter, Reporters
from quatcaps.training.run import (
    Run,
    check_free,
    choose_device,
    load_experiment,
    load_images,
    new_run,
    open_run,
    write_run,
)
from quatcaps.training.step import class_weights_of
from quatcaps.training.trackers import import_wandb
from quatcaps.training.trained import Trained


def load_run_images(config: TrainingConfig, folder: Path | None, console: Console) -> Experiment:
    """What the run learns from and is measured on, with a bar where images have to be prepared."""

    def load(split: str) -> ImageSet:
        with stages(console) as stage:
            return load_images(config, split, data_folder(folder), stage)

    return load_experiment(config, load)


def start_run(
    config: TrainingConfig,
    folder: Path | None,
    data_dir: Path | None,
    console: Console,
    initial: Trained | None = None,
    experiment: Experiment | None = None,
    callbacks: Sequence[Reporter] = (),
) -> Run:
    """Trains a new run in `folder`, with the other processes where torchrun started several; without a folder, in
    runs/DATASET-MODEL-SEED, or the next number of it.

    initial: whose weights it begins with. experiment: its images, where they are not those of a dataset. callbacks:
    who else is told how it gets on.
    """
    with joined() as processes:
        console = processes.console(console)
        config = checked(config)
        processes.share.of(config.batch, config.mixup)
        if processes.leads:
            check_free(next_free(default_folder(config)) if folder is None else folder)
        if experiment is None:
            with processes.one_first():
                experiment = load_run_images(config, data_dir, console)
        training = experiment.training
        config = fitting_batch(config, len(training), processes, console)
        config.check(training.channels, training.size, viewpoints=training.has_viewpoints)
        check_network(config, config.seen(training.size))
        check_objective(config, experiment)
        class_weights_of(config, training)
        run = new_run(folder or default_folder(config), config, training, experiment.tests)
        if initial is not None:
            if check_initial(initial, run.network(), training.classes):
                say(console, f"the classes are not those of {initial.name}: what belongs to them starts afresh")
            run = replace(run, initial=described(initial))
        if folder is None:
            number = processes.sum(make_numbered(run.folder) if processes.leads else 0)
            run = replace(run, folder=numbered(run.folder, number))
        with ExitStack() as held:
            if processes.leads:
                check_free(run.folder)
                held.enter_context(owned(run.folder))
                write_run(run)
            if initial is not None:
                with processes.one_first():
                    if processes.leads:
                        begin_with(run, initial)
            return train_to_end(run, experiment, console, processes=processes, callbacks=callbacks)


def resume_run(
    folder: Path,
    data_dir: Path | None,
    console: Console,
    device: str | None = None,
    experiment: Experiment | None = None,
    callbacks: Sequence[Reporter] = (),
    epochs: int | None = None,
) -> Run:
    """Goes on with the run in `folder` from its newest checkpoint, by as many processes as there are now. epochs: more
    than it was configured for, in all."""
    with joined() as processes:
        console = processes.console(console)
        before = open_run(folder)
        run = before if epochs is None else with_epochs(before, epochs)
        with ExitStack() as held:
            if processes.leads:
                held.enter_context(owned(folder))
            if experiment is None:
                with processes.one_first():
                    experiment = load_run_images(run.config, data_dir, console)
            run.check_images(experiment)
            if run != before and processes.leads:
                record_epochs(run)
                say(console, f"{folder} goes on from {before.config.epochs} to {run.config.epochs} epochs")
            return train_to_end(run, experiment, console, device, processes, callbacks)


def train_run(run: Run, experiment: Experiment, console: Console, device: str | None = None) -> Run:
    """Trains a run to the end, as the owner of its folder."""
    with owned(run.folder):
        return train_to_end(run, experiment, console, device)


def train_to_end(
    run: Run,
    experiment: Experiment,
    console: Console,
    device: str | None = None,
    processes: Processes = ALONE,
    callbacks: Sequence[Reporter] = (),
) -> Run:
    """Trains a run whose folder belongs to the leading process."""
    config = run.config
    if not run.digests and run.provenance != experiment.training.source:
        say(
            console,
            f"{run.folder} does not say which images it was begun with, but that they were "
            f"{run.provenance or 'of unknown provenance'}; here are {experiment.training.source or 'others'}",
        )
    if run.initial and not checkpoints(run.checkpoints):
        raise QuatcapsError(
            f"{run.folder} was stopped before the weights of {run.initial.split(',')[0]}, which it begins with, were "
            "written: remove it and begin again"
        )
    trainer = Trainer(run, experiment, device, processes)
    if trainer.ended:
        early = f" of {config.epochs}: no better for {config.patience}" if trainer.stopped_early else ""
        say(console, f"{run.folder} is trained to its end, {trainer.position.epoch} epochs{early}")
        return run
    begun = f" from step {trainer.position.step}" if trainer.position.step else ""
    if run.initial and not begun:
        begun = f" from the weights of {run.initial.split(',')[0]}"
    source = f" ({experiment.training.source})" if experiment.training.source else ""
    together = f" by {processes.share.processes} processes" if processes.several else ""
    if trainer.step.on_gpu and config.cuda_graph and not trainer.step.may_capture:
        together += " (without CUDA graphs)"
    say(
        console,
        f"training {config.model} ({parameter_count(trainer.network):,} parameters) on "
        f"{trainer.batches.count:,} images of {config.dataset}{source} on {trainer.device}{together}{begun}; run in "
        f"{run.folder}",
    )
    between, at_end = (sum(map(len, sets.values())) for sets in (trainer.measuring.between, trainer.measuring.at_end))
    measured = images_to_measure(config, trainer.position.epoch, between, at_end)
    estimate = Estimate(console, config, measured, on_cpu=trainer.device.type == "cpu")
    with TrainingProgress(console) as progress:
        trainer.train(Reporters((progress, estimate, *callbacks)))
    if trainer.stopped_early:
        say(console, f"stopped early: {config.patience} epochs without a lower error on the validation images")
    if processes.leads and (kept := run.kept_best()) is not None:
        say(console, f"kept beside the last: {kept}; --checkpoint last uses the last")
    done = trainer.position
    say(
        console,
        f"trained {done.epoch} epochs, {done.step:,} steps, in {done.seconds:.1f} s "
        f"({done.step * config.batch / done.seconds:,.0f} images/s); "
        f"look at it with: quatcaps evaluate {run.folder}",
    )
    if not trainer.stopped_early and (hint := few_steps(run.folder, done.step, done.epoch)):
        say(console, hint)
    return run


def checked(config: TrainingConfig) -> TrainingConfig:
    """The configuration with its model settings read as their types.

    What does not fit is found here, before images are made or a folder is: names, settings, and, by showing the
    network one empty image, a crop that is too small for it.
    """
    find_dataset(config.dataset)
    choose_device(config.device)
    if config.wandb:
        import_wandb()
    stored = stored_settings(config.model, config.dataset, config.model_settings)
    config = config.changed({"model_settings": stored})
    if config.crop:
        check_network(config, (config.crop, config.crop))
    return config


def fitting_batch(config: TrainingConfig, images: int, processes: Processes, console: Console) -> TrainingConfig:
    """The configuration with a batch that is no larger than the dataset; says so where it was."""
    if config.batch <= images:
        return config
    together = processes.share.processes
    batch = images - images % together
    check_batch(batch, images)
    say(console, f"the batch of {config.batch:,} is larger than the {images:,} training images: it becomes {batch:,}")
    return config.changed({"batch": batch})


def check_network(config: TrainingConfig, size: tuple[int, int]) -> None:
    """Raises where the network cannot take images of that height and width.

    Only shapes go through the network: no memory is taken, and no backend is built.
    """
    with torch.device("meta"), torch.no_grad():
        network = build(config.model, channels=1, classes=2, seed=0, **config.model_settings).eval()
        network(torch.zeros(1, 1, *size))


def check_objective(config: TrainingConfig, experiment: Experiment) -> None:
    """Raises where a pose objective is asked for that these images or this network cannot have."""
    if config.pose_weight:
        training = experiment.training
        with torch.device("meta"), torch.no_grad():
            network = build(config.model, channels=training.channels, classes=2, seed=0, **config.model_settings).eval()
            check_poses(network, [training, *experiment.measured.values()], config.seen(training.size))

"""Runs whose seconds count: what they need is compiled and loaded before they begin.

Each is preceded by a throw-away start: a trainer of the same configuration on the same images takes some steps, more
than come before a capture, and is dropped with everything that it learned. It compiles the Triton kernels (or the C
library), has cuDNN choose and load its kernels, captures a CUDA graph, and fills PyTorch's cache of GPU memory.

The seconds of a run, as `RunRecord.seconds` has them, begin with the making of its first batch and end when the GPU has
done its last step. They hold every batch and its augmentation, every step, the run's own capture of its graph with the
steps before it, averaging, and the log. They leave out the throw-away start, reading the images and copying them to the
GPU, making the network, checkpoints, and the measurement at the end.
"""

from __future__ import annotations

import gc
from itertools import islice
from pathlib import Path

import torch
from rich.console import Console

from quatcaps.console import say
from quatcaps.data.splits import Experiment
from quatcaps.training.config import TrainingConfig
from quatcaps.training.loop import Trainer
from quatcaps.training.run import Run, new_run
from quatcaps.training.start import checked, load_run_images, start_run

STEPS = {"cpu": 2, "cuda": 48}
"""Of a throw-away start: on a GPU three times the batches that are made at once."""


def train_timed(
    config: TrainingConfig, folder: Path, data_dir: Path | None, console: Console
) -> tuple[Run, Experiment]:
    """Trains a new run in `folder` to its end, after a throw-away start; with the images that it had."""
    config = checked(config)
    experiment = load_run_images(config, data_dir, console)
    count = warm_up(config, experiment, folder)
    say(console, f"{count} steps that are thrown away have compiled what there was to compile")
    return start_run(config, folder, data_dir, console, experiment=experiment), experiment


def warm_up(config: TrainingConfig, experiment: Experiment, folder: Path) -> int:
    """A throw-away start; how many steps it took. Nothing is written, and no test image is looked at."""
    training = experiment.training
    config = config.changed({"batch": min(config.batch, len(training))})
    trainer = Trainer(new_run(folder, config, training, experiment.tests), experiment)
    taken, batches = 0, trainer.batches.epoch(0)
    with torch.backends.cudnn.flags(enabled=True, deterministic=True):
        for batch in islice(batches, STEPS[trainer.device.type]):
            trainer.step(batch.images, batch.labels, trainer.rate(taken), taken, batch.views, batch.mixed)
            taken += 1
        trainer.step.check()  # which waits for the device
    del trainer, batches
    gc.collect()  # its graph and its images go before the run begins
    return taken

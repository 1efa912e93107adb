"""The demo: a small network of rotor capsules and a small CNN, which name toys and read off how they are turned."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from quatcaps.console import Counter, counting, say
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.data.store import data_folder
from quatcaps.data.viewpoints import views_of
from quatcaps.errors import QuatcapsError
from quatcaps.explorer.export import export
from quatcaps.explorer.shown import Shown
from quatcaps.models import parameter_count
from quatcaps.paper.recipes import demo, demo_cnn
from quatcaps.report.curves import loss_words
from quatcaps.report.demo_page import Contender, write_demo
from quatcaps.training.config import TrainingConfig
from quatcaps.training.log import read_log
from quatcaps.training.measure import evaluate
from quatcaps.training.poses import CHANCE, in_words, orientation_degrees, true_poses
from quatcaps.training.predictions import predictions_of
from quatcaps.training.processes import check_alone
from quatcaps.training.run import Run, choose_device, create_run, load_images, open_run
from quatcaps.training.start import load_run_images, train_run
from quatcaps.training.trained import Trained, trained_run

SUMMARIES = {
    "qcn-rotor-small": "a small Quaternion Capsule Network of rotor capsules",
    "cnn-small": "a plain convolutional network of as many parameters",
}
EXPLORER = "explorer.html"
AZIMUTHS, ELEVATIONS = tuple(range(0, 360, 20)), (40, 60)
"""What the exported explorer shows of each toy: 36 views, computed in seconds."""


def make_demo(folder: Path, device: str, data_dir: Path | None, epochs: int | None, console: Console) -> Path:
    """Trains both networks, or goes on where an earlier demo stopped, and writes the page."""
    check_alone("demo", "it trains two small networks by itself")
    changes = {"device": device} | ({} if epochs is None else {"epochs": epochs})
    configs = [recipe().changed(changes) for recipe in (demo, demo_cnn)]
    chosen = choose_device(device)
    experiment = load_run_images(configs[0], data_dir, console)
    test = load_images(configs[0], "test", data_folder(data_dir))
    runs = [open_or_create(folder / config.model, config, experiment) for config in configs]
    contenders, networks = [], []
    with trained_beside(runs[1], data_dir, chosen, console):
        train_run(runs[0], experiment, console, device)
    train_run(runs[1], experiment, console, device)  # what is left of it
    for run in runs:
        networks.append(trained_run(run))
        with counting(console, f"evaluating {run.config.model} on the test toys") as progress:
            contenders.append(contender(run, networks[-1], test, chosen, progress))
    with counting(console, "looking at toys for the page") as progress:
        shown = [Shown(replace(each, name=each.config.model)) for each in networks]
        export(shown, folder / EXPLORER, progress, azimuths=AZIMUTHS, elevations=ELEVATIONS)
    page = write_demo(folder, contenders, test, settings(configs, chosen), EXPLORER, commands(runs))
    for each in contenders:
        say(console, f"{each.name:>15}: {each.evaluation.total.percent:5.2f}% class error; {in_words(each.poses)}")
    say(console, f"         chance: 80% class error; orientation: median error {CHANCE:.1f}°")
    say(console, f"tables, pictures and the explorer are in {folder}; open {page.resolve().as_uri()}")
    return page


@contextmanager
def trained_beside(run: Run, data_dir: Path | None, device: torch.device, console: Console) -> Iterator[None]:
    """Trains a run in a process of its own meanwhile, on a CPU: two small networks with a core each are done sooner
    than one after the other with two. What that process leaves undone, for whatever reason, is for the caller to
    do."""
    if device.type != "cpu" or torch.get_num_threads() < 2:
        yield
        return
    threads = torch.get_num_threads()
    command = [sys.executable, "-m", "quatcaps", "train", "--resume", str(run.folder), "--device", "cpu"]
    command += [] if data_dir is None else ["--data-dir", str(data_dir)]
    beside = subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": str(threads // 2)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    torch.set_num_threads(threads - threads // 2)
    say(console, f"training {run.config.model} in a process of its own meanwhile")
    try:
        yield
        beside.wait()
    finally:
        torch.set_num_threads(threads)
        if beside.poll() is None:
            beside.terminate()  # it keeps a checkpoint
            beside.wait()


def contender(run: Run, trained: Trained, test: ImageSet, device: torch.device, progress: Counter) -> Contender:
    """A network, measured on the test toys."""
    found = predictions_of(trained.network.to(device), test, trained.config, device, progress)
    assert found.poses is not None, "both networks of the demo have poses"
    poses = true_poses(found.poses, test.labels)
    log = read_log(run.folder / "log.jsonl")
    return Contender(
        name=run.config.model,
        summary=SUMMARIES[run.config.model],
        parameters=parameter_count(trained.network),
        seconds=float(log[-1]["seconds"]),
        evaluation=evaluate(test, found.activations, found.poses),
        degrees=orientation_degrees(poses.double(), views_of(test).orientations.double()),
        log=log,
        loss=loss_words(run.config),
        activations=found.activations,
    )


def open_or_create(folder: Path, config: TrainingConfig, experiment: Experiment) -> Run:
    """The demo's run of an earlier call, if its configuration is the same; else a new one."""
    if not (folder / "run.json").exists():
        return create_run(folder, config, experiment.training, experiment.tests)
    run = open_run(folder)
    if replace(run.config, device=config.device) != config:
        raise QuatcapsError(f"{folder} holds a run with other settings: remove it, or give another --output")
    return run


def settings(configs: Sequence[TrainingConfig], device: torch.device) -> dict[str, str]:
    """What the page says about how it was made."""
    first = configs[0]
    return {
        "loss": f"cross-entropy of the classes, and {first.pose_weight:g} times 1 − ⟨q̂, q⟩² of the true class's pose",
        "epochs": str(first.epochs),
        "batch": str(first.batch),
        "schedule": f"Adam, {first.learning_rate:g}, {first.schedule}, weight decay {first.weight_decay:g}",
        "seed": str(first.seed),
        "how they were chosen": "rate and data on held-out training kinds, epochs by the clock; none by test kinds",
        "device": f"{device} ({platform.machine()}, {torch.get_num_threads()} threads)",
        "torch": torch.__version__,
    }


def commands(runs: Sequence[Run]) -> dict[str, str]:
    """What to type next, and what it does."""
    program = ".venv/bin/quatcaps"
    first = runs[0].folder
    return {
        f"{program} explore": "turn a toy by hand, and watch the capsules of a network that was trained for longer",
        f"{program} explore {first} --beside {runs[1].folder}": "the same with the two networks of this page",
        f"{program} inspect {first}": "what its poses know, layer by layer",
        f"{program} evaluate {first}": "errors by class, azimuth and elevation, with the confusion matrix",
        f"{program} train --help": "every setting",
    }

"""The demo: a small QCN and a small CNN on familiar viewpoints, measured on novel ones."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from quatcaps.console import counting, say
from quatcaps.data.splits import Experiment
from quatcaps.data.store import data_folder
from quatcaps.errors import QuatcapsError
from quatcaps.models import parameter_count
from quatcaps.paper.recipes import demo, demo_cnn
from quatcaps.report.demo_page import Contender, write_demo
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import evaluate_run
from quatcaps.training.log import read_log
from quatcaps.training.processes import check_alone
from quatcaps.training.run import Run, choose_device, create_run, load_images, open_run
from quatcaps.training.start import load_run_images, train_run

SUMMARIES = {
    "qcn-small": "a small Quaternion Capsule Network",
    "cnn-small": "a plain convolutional network of similar size",
}


def make_demo(folder: Path, device: str, data_dir: Path | None, epochs: int | None, console: Console) -> Path:
    """Trains both networks, or goes on where an earlier demo stopped, and writes the page."""
    check_alone("demo", "it trains two small networks, one after the other")
    changes = {"device": device} | ({} if epochs is None else {"epochs": epochs})
    configs = [recipe().changed(changes) for recipe in (demo, demo_cnn)]
    chosen = choose_device(device)
    experiment = load_run_images(configs[0], data_dir, console)
    test = load_images(configs[0], "test", data_folder(data_dir))
    runs = [open_or_create(folder / config.model, config, experiment) for config in configs]
    contenders, everything = [], {}
    for run in runs:
        train_run(run, experiment, console, device)
        with counting(console, f"evaluating {run.config.model} on the test toys") as progress:
            evaluations = evaluate_run(run, test, chosen, progress)
        log = read_log(run.folder / "log.jsonl")
        name = run.config.model
        everything[name] = evaluations["all"]
        contenders.append(
            Contender(
                name=name,
                summary=SUMMARIES[name],
                parameters=parameter_count(run.network()),
                seconds=float(log[-1]["seconds"]),
                familiar=evaluations["familiar"],
                novel=evaluations["novel"],
                log=log,
            )
        )
    page = write_demo(folder, contenders, test, everything, settings(configs, chosen), commands(runs))
    for contender in contenders:
        say(
            console,
            f"{contender.name:>9}: {contender.familiar.total.percent:5.2f}% error from familiar azimuths, "
            f"{contender.novel.total.percent:5.2f}% from novel ones (chance: 80%)",
        )
    say(console, f"tables and pictures are in {folder}; open {page.resolve().as_uri()}")
    return page


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
        "loss": ", ".join(f"{config.loss} ({config.model})" for config in configs),
        "epochs": str(first.epochs),
        "batch": str(first.batch),
        "schedule": f"Adam, {first.learning_rate:g}, {first.schedule}, weight decay {first.weight_decay:g}",
        "seed": str(first.seed),
        "how they were chosen": "while looking at these test toys; README.md has figures on toys of other seeds",
        "device": f"{device} ({platform.machine()}, {torch.get_num_threads()} threads)",
        "torch": torch.__version__,
    }


def commands(runs: Sequence[Run]) -> dict[str, str]:
    """What to type next, and what it does."""
    program = ".venv/bin/quatcaps"
    first = runs[0].folder
    return {
        f"{program} evaluate {first}": "errors by class, azimuth and elevation, with the confusion matrix",
        f"{program} predict {first} IMAGE": "the class of an image of your own, on a plain light ground",
        f"{program} train --recipe small --output runs/small": "the small network on all viewpoints of the toys",
        f"{program} train --help": "every setting",
    }

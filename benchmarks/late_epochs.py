"""Why the errors of late epochs swing: the test error after each of a run's last epochs, measured in four ways.

    python benchmarks/late_epochs.py smallnorb/qcn/paper --last 20
    python benchmarks/late_epochs.py smallnorb/qcn/paper --set model=qcn-coarse --set epochs=24 --images 5000
    python benchmarks/late_epochs.py smallnorb/cnn/paper --set epochs=24 --bilinear
    QUATCAPS_PLUGINS=benchmarks/vb_example.py python benchmarks/late_epochs.py smallnorb/vb/published-whole \\
        --set model=vb-example --set epochs=90
    python benchmarks/late_epochs.py --tables

Trains a row of `quatcaps reproduce` and measures after every one of the last epochs: the network with the running
statistics of batch normalisation, as all tables have it; with statistics of 100 more training batches; and a running
average of its weights, which follows the run and changes nothing of it, in the same two ways. If new statistics calm
the errors, the running ones were the cause; if the average does, it was the rate. No epoch is chosen by them.

--bilinear asks what another way to shrink images does: those of 96×96 are shrunk to 48×48 by means over 2×2 pixels
here, and by others as Pillow's bilinear filter does it, with weights of 1, 3, 3, 1 in either direction. If pixels are
doubled already, as in a copy of smallNORB, that filter leaves 1, 6, 1 of the means.

A run has a folder under --work, and goes on from there if it was stopped. Its record goes to --output, where a run that
has one is not trained again, and all of them are drawn.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter
from rich.console import Console
from torch import Tensor

from quatcaps.bench.machine import usual_name
from quatcaps.console import say, standard_output
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError, at_least_one
from quatcaps.files import read_json, write_json
from quatcaps.models import Network, parameter_count
from quatcaps.paper.record import differences, told
from quatcaps.paper.rows import ROWS
from quatcaps.report.canvas import RULE, SMALL, TEXT, WIDTH, dress, literal, new_figure, save
from quatcaps.report.styles import BLUE, GREEN, ORANGE, VERMILLION
from quatcaps.report.tables import Table
from quatcaps.training.config import TrainingConfig
from quatcaps.training.lock import owned
from quatcaps.training.loop import RunInterruptedError, Trainer
from quatcaps.training.measuring import sample
from quatcaps.training.predictions import Predictor
from quatcaps.training.progress import TrainingProgress
from quatcaps.training.reporters import Reporters
from quatcaps.training.run import Run, create_run, open_run, versions
from quatcaps.training.start import load_run_images
from quatcaps.training.statistics import BATCHES, is_normalised, measure_statistics

RESULTS = Path(__file__).parents[1] / "results/late-epochs"
DECAY = 0.998
"""Of the running average: that of `best`."""
RUNNING, NEW = "running statistics", "new statistics"
AVERAGE, NEW_AVERAGE = "averaged weights", "averaged weights, new statistics"
WAYS = (RUNNING, NEW, AVERAGE, NEW_AVERAGE)
COLOURS = dict(zip(WAYS, (BLUE, VERMILLION, GREEN, ORANGE), strict=True))
BILINEAR, PUBLIC = "bilinear", "public code"
FOUND = "late-epochs.json"
UNCOUNTED = ("device", "evaluate_every", "evaluate_images", "averaging_beside")
"""Settings that change nothing of what is learned."""
LETTERS = 52
"""In a line of a panel's title."""
FORMAT = 1
TICKS, LEAST_SHOWN = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50), 0.1
"""In %."""


@dataclass(frozen=True)
class Followed:
    """Test errors in % after each of the last epochs of a run, which count from 1, by how they were measured."""

    key: str
    config: TrainingConfig
    parameters: int
    images: int  # that were measured, of the test images
    machine: str
    versions: dict[str, str]
    date: str
    epochs: tuple[int, ...]
    errors: dict[str, tuple[float, ...]]
    bilinear: bool = False
    code: str = ""  # that trained it, if not ours: public_training.py

    @property
    def name(self) -> str:
        words = [self.key, *([PUBLIC] if self.code else []), self.config.model, f"{self.config.epochs} epochs"]
        changes = changed_of(self.key, self.config) if self.key in ROWS else {}
        words += [f"{name}={value}" for name, value in changes.items() if name not in ("model", "epochs")]
        return ", ".join([*words, *([BILINEAR] if self.bilinear else [])])

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **vars(self), "config": self.config.to_json()}

    @staticmethod
    def read(path: Path) -> Followed:
        value = read_json(path, "the late epochs of a run")
        if value.pop("format", None) != FORMAT:
            raise QuatcapsError(f"{path} has no late epochs of a run in format {FORMAT}: move it out of this folder")
        try:
            value["config"] = TrainingConfig.from_json(value["config"])
            value["epochs"] = tuple(value["epochs"])
            value["errors"] = {name: tuple(found) for name, found in value["errors"].items()}
            return Followed(**value)
        except (KeyError, TypeError, AttributeError) as error:
            raise QuatcapsError(f"{path} has no late epochs of a run: {error!r}") from error


class Watch:
    """A reporter that measures after each of a run's last epochs, and keeps what it found in the run's folder: a run
    that was stopped goes on from a checkpoint, and measures no epoch that was over by then."""

    def __init__(self, trainer: Trainer, tests: ImageSet, last: int, console: Console) -> None:
        self.trainer, self.tests, self.console = trainer, tests, console
        self.epochs = range(trainer.config.epochs)[-last:]
        self.path = trainer.run.folder / FOUND
        self.found: dict[str, dict[str, float]] = {}
        if self.path.exists():
            self.found = read_json(self.path, "what was measured of a run")

    def step(self, *state: object) -> None: ...

    def epoch(self, epoch: int, epochs: int, *state: object) -> None:
        if epoch not in self.epochs:
            return
        found = measured(self.trainer, epoch, self.tests)
        self.found[str(epoch + 1)] = found
        write_json(self.path, self.found)
        now = ", ".join(f"{way} {error:.2f}%" for way, error in found.items())
        say(self.console, f"epoch {epoch + 1} of {epochs}: {now}")

    def errors(self) -> dict[str, tuple[float, ...]]:
        """Of the last epochs, by how they were measured."""
        numbers = [str(epoch + 1) for epoch in self.epochs]
        if missing := [number for number in numbers if number not in self.found]:
            kept = len(numbers) - len(missing)
            raise QuatcapsError(
                f"{self.trainer.run.folder} was trained beyond epoch {missing[0]} without measuring it: remove it to "
                f"train it again{f', or give --last {kept}' if kept else ''}"
            )
        ways = self.found[numbers[0]]
        return {way: tuple(self.found[number][way] for number in numbers) for way in ways}


def follow(run: Run, experiment: Experiment, last: int, console: Console, device: str | None = None) -> Followed:
    """Trains a run, from where it stands, and says what was found after each of its last epochs."""
    with owned(run.folder), TrainingProgress(console) as progress:
        trainer = Trainer(run, experiment, device)
        tests = sample(experiment.tests["test"], run.config.evaluate_images, run.config.seed)
        watch = Watch(trainer, tests, last, console)
        try:
            trainer.train(Reporters((progress, watch)))
        except RunInterruptedError as error:
            raise QuatcapsError(f"{str(error).split(':')[0]}: the same command goes on") from error
    return Followed(
        key="",
        config=run.config,
        parameters=parameter_count(trainer.network),
        images=len(tests),
        machine=usual_name(trainer.device),
        versions=versions(trainer.device),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        epochs=tuple(epoch + 1 for epoch in watch.epochs),
        errors=watch.errors(),
    )


def filter_matrix(side: int) -> Tensor:
    """(side, side): every pixel of a line as a mean of itself and its neighbours, of which there is one at an end."""
    weights = 6 * torch.eye(side) + torch.ones(side - 1).diag(1) + torch.ones(side - 1).diag(-1)
    return weights / weights.sum(1, keepdim=True)


def bilinear(images: ImageSet) -> ImageSet:
    """Images whose pixels were doubled before, as if Pillow had shrunk those to their half with its bilinear filter:
    weights of 1, 3, 3, 1 in either direction, of which the means of pairs get 1, 6, 1."""
    along = [filter_matrix(side) for side in images.size]
    pieces = [(along[0] @ some.float() @ along[1].T).add(0.5).to(torch.uint8) for some in images.stored.split(1000)]
    return replace(images, stored=torch.cat(pieces))


def measured(trainer: Trainer, epoch: int, tests: ImageSet) -> dict[str, float]:
    """The error on test images in %, in all ways that the network has; it is left as it was."""
    found = {}
    assert trainer.average is not None
    for one, running, new in ((trainer.network, RUNNING, NEW), (trainer.average.network, AVERAGE, NEW_AVERAGE)):
        was = one.training
        found[running] = error_of(one, tests, trainer)
        if is_normalised(one):
            other = copy.deepcopy(one)
            batches = islice(trainer.batches.epoch(epoch + 1), BATCHES)
            measure_statistics(other, (batch.images for batch in batches))
            found[new] = error_of(other, tests, trainer)
        one.train(was)
    return found


def error_of(network: Network, images: ImageSet, trainer: Trainer) -> float:
    activations = Predictor(network, trainer.config, trainer.device, capture=False)(images).activations
    return 100 * activations.argmax(1).ne(images.labels).double().mean().item()


def table_of(runs: Sequence[Followed]) -> Table:
    """Of every run, all seeds together, and every way: the mean over late epochs, how much they vary within a run, and
    the lowest, the highest and the last of a run, as means over runs."""
    lines = []
    for name in dict.fromkeys(run.name for run in runs):
        same = [run for run in runs if run.name == name]
        epochs = f"{same[0].epochs[0]}–{same[0].epochs[-1]}"
        for way in same[0].errors:
            found = [run.errors[way] for run in same]
            mean = statistics.fmean(error for each in found for error in each)
            squares = [statistics.variance(each) for each in found if len(each) > 1]
            within = math.sqrt(statistics.fmean(squares)) if squares else 0.0
            ends = (map(min, found), map(max, found), (each[-1] for each in found))
            numbers = (mean, within, *map(statistics.fmean, ends))
            lines.append((name, str(len(same)), epochs, way, *(f"{number:.2f}" for number in numbers)))
    names = ("run", "seeds", "epochs", "measured with", "mean (%)", "deviation", "lowest", "highest", "last")
    return Table("Test errors of late epochs", names, tuple(lines))


def draw(runs: Sequence[Followed], path: Path) -> None:
    """A panel for each kind of run, in it a line for each seed and way."""
    kinds = {run.name: [each for each in runs if each.name == run.name] for run in runs}
    across = min(2, len(kinds))
    down = -(-len(kinds) // across)
    figure = new_figure(WIDTH, 1.0 + 3.2 * down)
    panels = figure.subplots(down, across, sharey=True, squeeze=False).flatten()
    for axes in panels[len(kinds) :]:
        axes.remove()
    for number, (axes, (name, same)) in enumerate(zip(panels, kinds.items(), strict=False)):
        dress(axes, literal(wrapped(name, len(same))), "epoch", "" if number % across else "test error (%)")
        axes.title.set_fontsize(SMALL)
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        for run in same:
            for way, errors in run.errors.items():
                axes.plot(run.epochs, errors, color=COLOURS[way], marker="o", markersize=3, linewidth=1.2, label=way)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set_yticks(TICKS)
    panels[0].yaxis.set_major_formatter(ScalarFormatter())
    panels[0].yaxis.set_minor_formatter(NullFormatter())
    every = [error for run in runs for errors in run.errors.values() for error in errors]
    panels[0].set_ylim(0.9 * max(min(every), LEAST_SHOWN), 1.1 * max(every))
    found = {
        label: handle
        for axes in panels[: len(kinds)]
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    ways = [way for way in WAYS if way in found]
    figure.legend([found[way] for way in ways], ways, loc="outside upper left", ncols=4, frameon=False, fontsize=TEXT)
    save(figure, path)


def wrapped(name: str, seeds: int) -> str:
    """The title of its panel."""
    return textwrap.fill(f"{name}, {seeds} {'seeds' if seeds > 1 else 'seed'}", LETTERS)


def recorded(folder: Path) -> list[Followed]:
    return [Followed.read(path) for path in sorted(folder.glob("*.json"))]


def changed_of(key: str, config: TrainingConfig) -> dict[str, Any]:
    """The settings that are not the row's; that another network has none of the row's is not said."""
    row = ROWS[key].config(config.seed).whole()
    changes = {name: value for name, value in config.whole().items() if value != row[name] and name not in UNCOUNTED}
    if "model" in changes and not config.model_settings:
        changes.pop("model_settings", None)
    return changes


def path_of(folder: Path, key: str, config: TrainingConfig, shrunk: bool = False, code: bool = False) -> Path:
    """Where the record of a run lies, by its row, what was changed of it, and its seed. shrunk: bilinearly. code: by
    public code."""
    changes = changed_of(key, config)
    words = [key.replace("/", "-"), *([PUBLIC.replace(" ", "-")] if code else [])]
    words += [*(f"{name}={value}" for name, value in changes.items())]
    words += [*([BILINEAR] if shrunk else []), f"seed-{config.seed}"]
    return folder / f"{','.join(words)}.json"


def configured(key: str, seed: int, changes: Mapping[str, Any]) -> TrainingConfig:
    if key not in ROWS:
        raise QuatcapsError(f"no row {key!r}: quatcaps reproduce table2 systems --list shows the keys")
    row = ROWS[key]
    config = row.config(seed)
    own: dict[str, Any] = {"model_settings": {}} if changes.get("model", config.model) != config.model else {}
    config = config.changed({**own, **changes})
    if row.pretrained or config.viewpoints != "all":
        raise QuatcapsError(
            f"{key} cannot be followed: it begins with other weights, or is measured on familiar and novel viewpoints: "
            "give a row of all viewpoints, such as smallnorb/qcn/paper"
        )
    return config.changed(
        {"evaluate_every": config.epochs, **({} if config.averaging else {"averaging_beside": DECAY})}
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="?", help="key of a row of quatcaps reproduce, such as smallnorb/vb/published")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a change to its settings")
    parser.add_argument("--last", type=int, default=20, help="how many epochs are measured, up to the last")
    parser.add_argument("--images", type=int, default=0, help="test images that are measured, a fixed choice; 0: all")
    parser.add_argument("--bilinear", action="store_true", help="images as Pillow's bilinear filter shrinks them")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/late-epochs"), help="where runs have their folders")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="train nothing, show what is recorded")
    return parser.parse_args()


def main(options: argparse.Namespace, console: Console) -> None:
    if not options.tables:
        if options.row is None:
            raise QuatcapsError("no row was given: such as smallnorb/qcn/paper, or --tables for what is recorded")
        at_least_one("last", options.last)
        for change in options.set:
            if "=" not in change:
                raise QuatcapsError(f"--set {change}: give NAME=VALUE, such as epochs=20")
        changes = dict(change.split("=", 1) for change in options.set)
        config = configured(options.row, options.seed, {**changes, "evaluate_images": options.images})
        path = path_of(options.output, options.row, config, options.bilinear)
        if path.exists():
            say(console, f"{path} is there already")
        else:
            train(options, config, path, console)
    runs = recorded(options.output)
    if not runs:
        raise QuatcapsError(f"{options.output} has no records: train a row first")
    console.print(table_of(runs).rich(console.width))
    draw(runs, options.output / "late-epochs.png")


def train(options: argparse.Namespace, config: TrainingConfig, path: Path, console: Console) -> None:
    experiment, folder = load_run_images(config, options.data_dir, console), options.work / path.stem
    if options.bilinear:
        tests = {name: bilinear(images) for name, images in experiment.tests.items()}
        experiment = replace(experiment, training=bilinear(experiment.training), tests=tests)
    if not (folder / "run.json").exists():
        run = create_run(folder, config, experiment.training, experiment.tests)
    elif differing := differences((run := open_run(folder)).config, config):
        raise QuatcapsError(f"{folder} was begun with other settings ({told(differing)}): remove it to begin again")
    found = follow(run, experiment, options.last, console, options.device)
    write_json(path, replace(found, key=options.row, bilinear=options.bilinear).to_json())


if __name__ == "__main__":
    try:
        main(parsed(), standard_output())
    except QuatcapsError as error:
        sys.exit(f"error: {error}")

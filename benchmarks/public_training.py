"""VB's public code trained by itself on our images: does the code that published 97.1% come to it here?

    git clone https://github.com/fabio-deep/Variational-Capsule-Routing
    python benchmarks/public_training.py Variational-Capsule-Routing --seed 0
    QUATCAPS_PLUGINS=benchmarks/vb_example.py python benchmarks/late_epochs.py smallnorb/vb/published \\
        --set model=vb-example --last 100

The first command runs the Python code in the folder that it is given: give one that you trust. All that learns is its
own: the example with one layer of capsules of its README, its choice of validation images, its random windows, loss,
optimiser and loop. From here it gets smallNORB in the files that it reads, shrunk to 48×48, and a question after each
of the last epochs: what is the error on all test images? The second command asks the same of ours, from the same
images, and both records stand in the same table and picture. Needs torchvision, which that code imports; none of it is
part of this repository.

Its rate is constant, so that a run that --minutes ends before --epochs is a shorter run, and recorded as one.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy
import torch
from rich.console import Console
from torch import Tensor, nn

import vb_example
from late_epochs import RESULTS, RUNNING, Followed, configured, path_of
from public_clones import commit_of, importing_from
from quatcaps.bench.machine import usual_name
from quatcaps.console import say, standard_output
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError, at_least_one
from quatcaps.files import write_json
from quatcaps.models import parameter_count
from quatcaps.training.config import TrainingConfig
from quatcaps.training.run import choose_device, versions
from quatcaps.training.start import load_run_images

ROW, REPOSITORY = "smallnorb/vb/published", "fabio-deep/Variational-Capsule-Routing"
"""Ours with the same training, and where the code is from."""
MODULES = ("capsnet", "datasets", "evaluate", "layers", "train", "utils", "vb_routing")
"""Of that code, which are forgotten again: their names are common."""
ARCHITECTURE = [64, 8, 16, 16, 5]
"""The default of that code, of which the example takes the first and the third number."""


class TimeIsUpError(Exception):
    """The run has been given all its time."""


class Watch:
    """Stands where that code measures its validation images after every epoch, and measures the test images too after
    every so many from `first` on."""

    def __init__(
        self, evaluate: Callable[..., tuple[float, float]], tests: Any, options: argparse.Namespace, console: Console
    ) -> None:
        self.evaluate, self.tests, self.every, self.console = evaluate, tests, options.every, console
        self.first = 1 if options.minutes else options.epochs - options.last + 1
        self.until = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
        self.done = 0
        self.errors: dict[int, float] = {}

    def __call__(self, model: nn.Module, args: Any, images: Any) -> tuple[float, float]:
        found = self.evaluate(model, args, images)
        if images is self.tests:
            return found
        self.done += 1
        if self.done >= self.first and self.done % self.every == 0:
            self.errors[self.done] = 100 * (1 - self.evaluate(model, args, self.tests)[1])
            validation = 100 * (1 - found[1])
            say(
                self.console,
                f"epoch {self.done}: {self.errors[self.done]:.2f}% of test, {validation:.2f}% of validation",
            )
        if time.monotonic() > self.until:
            raise TimeIsUpError
        return found


def lay_out(images: ImageSet, names: tuple[str, ...], folder: Path) -> None:
    """A folder for each class, and in it a file for each image, views first."""
    for number, name in enumerate(names):
        (folder / f"{number}-{name}").mkdir(parents=True)
    for place, (image, label) in enumerate(zip(images.stored.numpy(), images.labels.tolist(), strict=True)):
        numpy.save(folder / f"{label}-{names[label]}" / f"{place:05d}.npy", image)


@contextmanager
def public_modules(folder: Path) -> Iterator[Mapping[str, ModuleType]]:
    """The modules of that code. Folders are read in the order of their names, as that numbers the classes in training and
    in testing."""
    listed = os.listdir
    with ExitStack() as held:
        held.enter_context(importing_from(folder / "src"))
        held.enter_context(patch("os.listdir", lambda path: sorted(listed(path))))
        if not torch.cuda.is_available():
            held.enter_context(patch.object(Tensor, "cuda", lambda tensor: tensor))
        try:
            yield {name: importlib.import_module(name) for name in MODULES}
        finally:
            for name in MODULES:
                sys.modules.pop(name, None)


def train(folder: Path, images: Mapping[str, ImageSet], options: argparse.Namespace, console: Console) -> Followed:
    """Trains the example of that code; the record says what its test errors were."""
    config = configured(ROW, options.seed, {"model": vb_example.NAME, "epochs": str(options.epochs)})
    with tempfile.TemporaryDirectory(dir=options.work) as work, public_modules(folder) as code:
        paths = {name: Path(work, name) for name in images}
        for name, path in paths.items():
            lay_out(images[name], images[name].classes, path)
        seed_everything(options.seed)
        args = arguments(config, Path(work))
        loaders = code["datasets"].smallnorb(args, {name: str(path) for name, path in paths.items()})
        model = code["capsnet"].tinyCapsuleNet(args).to(choose_device("auto"))
        watch = Watch(code["evaluate"].evaluate, loaders["test"], options, console)
        with patch.multiple(code["train"], evaluate=watch, tqdm=lambda batches: batches, logging=MagicMock()):
            try:
                code["train"].train(model, loaders, args)
            except TimeIsUpError:
                say(console, f"{options.minutes:g} minutes are up after epoch {watch.done}")
    epochs = tuple(epoch for epoch in watch.errors if epoch > watch.done - options.last)
    device = choose_device("auto")
    return Followed(
        key=ROW,
        config=config.changed({"epochs": watch.done}),
        parameters=parameter_count(model),
        images=len(images["test"]),
        machine=usual_name(device),
        versions=versions(device),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        epochs=epochs,
        errors={RUNNING: tuple(watch.errors[epoch] for epoch in epochs)},
        code=f"{REPOSITORY}@{commit_of(folder)}",
    )


def arguments(config: TrainingConfig, work: Path) -> SimpleNamespace:
    """What the command line of that code says by default, with the epochs that are wanted."""
    return SimpleNamespace(
        n_epochs=config.epochs,
        batch_size=config.batch,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        routing_iter=3,
        pose_dim=4,
        padding=4,
        brightness=0,
        contrast=0,
        patience=1e4,
        crop_dim=config.crop,
        arch=ARCHITECTURE,
        n_channels=2,
        test_affNIST=False,
        writer=MagicMock(),
        checkpoint_dir=work / "checkpoint.pt",
    )


def seed_everything(seed: int) -> None:
    random.seed(seed)
    numpy.random.seed(seed)  # noqa: NPY002  that code draws its validation images by it
    torch.manual_seed(seed)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a clone of that code")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--last", type=int, default=100, help="how many epochs are recorded, up to the last")
    parser.add_argument("--every", type=int, default=1, help="… of which every so many is measured")
    parser.add_argument("--minutes", type=float, default=0.0, help="end the run after so long; 0: train all epochs")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument(
        "--work", type=Path, help="where its files stand while it is trained (default: a temporary one)"
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser.parse_args()


def main(options: argparse.Namespace, console: Console) -> None:
    at_least_one("last", options.last)
    at_least_one("epochs", options.epochs)
    at_least_one("every", options.every)
    logging.getLogger().setLevel(logging.WARNING)
    config = configured(ROW, options.seed, {"model": vb_example.NAME, "epochs": str(options.epochs)})
    whole = config.changed({"validation": 0.0, "keep_best": False})  # that code holds images out by itself
    experiment = load_run_images(whole, options.data_dir, console)
    found = train(options.folder, {"train": experiment.training, **experiment.tests}, options, console)
    path = path_of(options.output, ROW, found.config, code=True)
    write_json(path, found.to_json())
    say(console, f"{path}: epochs {found.epochs[0]} to {found.epochs[-1]} of {found.config.epochs}")


if __name__ == "__main__":
    try:
        main(parsed(), standard_output())
    except QuatcapsError as error:
        sys.exit(f"error: {error}")

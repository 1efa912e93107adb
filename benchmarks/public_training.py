"""VB's public code trained by itself on our images: does the code that published 97.1% come to it here?

    git clone https://github.com/fabio-deep/Variational-Capsule-Routing
    python benchmarks/public_training.py Variational-Capsule-Routing --seed 0
    QUATCAPS_PLUGINS=benchmarks/vb_example.py python benchmarks/late_epochs.py smallnorb/vb/published \\
        --set model=vb-example --last 100

The first command runs the Python code in the folder that it is given: give one that you trust. All that learns is its
own: the example with one layer of capsules of its README, or with `--network vb-published` the network with three, its
choice of validation images, its random windows, loss, optimiser and loop. It gets smallNORB in the files that it reads,
shrunk to 48×48, and is asked after every so many epochs for its error on all test images. The second command asks the
same of ours, from the same images, and both records stand in the same table and picture. Needs torchvision, which that
code imports, and with three layers a GPU with tens of gigabytes, as that code holds all votes; none of it is part of
this repository.

The record is written again whenever test images were measured. Its rate is constant, so that a run that is ended early
is a shorter run, and recorded as one; it cannot go on, and the same command begins anew and replaces it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
import tempfile
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

from late_epochs import RESULTS, RUNNING, Followed, configured, path_of
from public_clones import commit_of, importing_from
from quatcaps.bench.machine import usual_name
from quatcaps.console import say, standard_output
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError, at_least_one
from quatcaps.files import make_folder, write_json
from quatcaps.models import parameter_count
from quatcaps.training.config import TrainingConfig
from quatcaps.training.run import choose_device, versions
from quatcaps.training.start import load_run_images

ROW, REPOSITORY = "smallnorb/vb/published", "fabio-deep/Variational-Capsule-Routing"
"""Ours with the same training, and where the code is from."""
MODULES = ("capsnet", "datasets", "evaluate", "layers", "train", "utils", "vb_routing")
"""Of that code, which are forgotten again: their names are common."""
NETWORKS: Mapping[str, tuple[str, list[int]]] = {
    "vb-example": ("tinyCapsuleNet", [64, 8, 16, 16, 5]),
    "vb-published": ("CapsuleNet", [64, 16, 32, 16, 5]),
}
"""By the names of ours: its class and widths there. The example takes the first and the third of the default ones; with
those of `vb-published` three layers have as many parameters as are published."""


class Watch:
    """Stands where that code measures its validation images after every epoch, and measures the test images too after
    those that are `due`; `found` is called with the errors so far, by epoch."""

    def __init__(
        self,
        evaluate: Callable[..., tuple[float, float]],
        tests: Any,
        due: Callable[[int], bool],
        found: Callable[[int, Mapping[int, float]], None],
        console: Console,
    ) -> None:
        self.evaluate, self.tests, self.due, self.found, self.console = evaluate, tests, due, found, console
        self.done = 0
        self.errors: dict[int, float] = {}

    def __call__(self, model: nn.Module, args: Any, images: Any) -> tuple[float, float]:
        measured = self.evaluate(model, args, images)
        if images is self.tests:  # which that code measures at its end
            return measured
        self.done += 1
        if self.due(self.done):
            test, validation = (100 * (1 - right) for _, right in (self.evaluate(model, args, self.tests), measured))
            self.errors[self.done] = test
            self.found(self.done, self.errors)
            say(self.console, f"epoch {self.done}: {test:.2f}% of test images, {validation:.2f}% of validation images")
        return measured


def lay_out(images: ImageSet, folder: Path) -> None:
    """A folder for each class, and in it a file for each image, views first."""
    folders = [folder / f"{number}-{name}" for number, name in enumerate(images.classes)]
    for each in folders:
        each.mkdir(parents=True)
    pixels = images.stored if images.rows is None else images.stored[images.rows]
    for place, (image, label) in enumerate(zip(pixels.numpy(), images.labels.tolist(), strict=True)):
        numpy.save(folders[label] / f"{place:05d}.npy", image)


@contextmanager
def public_modules(folder: Path) -> Iterator[Mapping[str, ModuleType]]:
    """The modules of that code. Folders are read in the order of their names: it numbers the classes, in training and
    in testing."""
    listed = os.listdir
    with ExitStack() as held:
        held.enter_context(importing_from(folder / "src"))
        held.enter_context(patch("os.listdir", lambda path=".": sorted(listed(path))))
        if not torch.cuda.is_available():
            held.enter_context(patch.object(Tensor, "cuda", lambda tensor: tensor))
        try:
            yield {name: imported(name) for name in MODULES}
        finally:
            for name in MODULES:
                sys.modules.pop(name, None)


def imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            raise
        raise QuatcapsError(f"that code imports {error.name}, which is not installed: install it first") from error


def train(
    folder: Path, images: Mapping[str, ImageSet], options: argparse.Namespace, path: Path, console: Console
) -> None:
    """Trains a network of that code. Its record is written again after every epoch that was measured, so that a run
    that is ended early leaves one."""
    config, device = configuration(options), choose_device("auto")
    with tempfile.TemporaryDirectory(dir=options.work) as work, public_modules(folder) as code:
        folders = {name: Path(work, name) for name in images}
        for name, each in folders.items():
            lay_out(images[name], each)
        seed_everything(options.seed)
        args = arguments(config, NETWORKS[options.network][1], Path(work))
        loaders = code["datasets"].smallnorb(args, {name: str(each) for name, each in folders.items()})
        model = getattr(code["capsnet"], NETWORKS[options.network][0])(args).to(device)

        def found(done: int, errors: Mapping[int, float]) -> None:
            epochs = tuple(epoch for epoch in errors if epoch > done - options.last)
            record = Followed(
                key=ROW,
                config=config.changed({"epochs": done}),
                parameters=parameter_count(model),
                images=len(images["test"]),
                machine=usual_name(device),
                versions=versions(device),
                date=datetime.now(UTC).strftime("%Y-%m-%d"),
                epochs=epochs,
                errors={RUNNING: tuple(errors[epoch] for epoch in epochs)},
                code=f"{REPOSITORY}@{commit_of(folder)}",
            )
            write_json(path, record.to_json())

        def due(done: int) -> bool:
            return done % options.every == 0 or done == options.epochs

        watch = Watch(code["evaluate"].evaluate, loaders["test"], due, found, console)
        with patch.multiple(code["train"], evaluate=watch, tqdm=lambda batches: batches, logging=MagicMock()):
            code["train"].train(model, loaders, args)


def configuration(options: argparse.Namespace) -> TrainingConfig:
    """Of our run with the same settings."""
    return configured(ROW, options.seed, {"model": options.network, "epochs": str(options.epochs)})


def arguments(config: TrainingConfig, widths: list[int], work: Path) -> SimpleNamespace:
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
        arch=widths,
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
    parser.add_argument("--network", choices=list(NETWORKS), default="vb-example")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument(
        "--every", type=int, default=2, help="test images are measured after so many epochs, and the last"
    )
    parser.add_argument("--last", type=int, default=100, help="of which epochs, up to the last, errors are recorded")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--work", type=Path, help="where its files stand meanwhile (default: where temporary ones do)")
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser.parse_args()


def main(options: argparse.Namespace, console: Console) -> None:
    for name in ("epochs", "every", "last"):
        at_least_one(name, getattr(options, name))
    path = path_of(options.output, ROW, configuration(options), code=True)
    if path.exists() and Followed.read(path).config.epochs == options.epochs:
        say(console, f"{path} is there already")
        return
    if options.work is not None:
        make_folder(options.work)
    whole = {"validation": 0.0, "keep_best": False}  # that code holds images out by itself
    experiment = load_run_images(configuration(options).changed(whole), options.data_dir, console)
    try:
        train(options.folder, {"train": experiment.training, **experiment.tests}, options, path, console)
    except KeyboardInterrupt:
        kept = f"{path} has what was measured of it" if path.exists() else "nothing had been measured"
        raise QuatcapsError(f"ended early: {kept}") from None
    say(console, f"recorded in {path}")


if __name__ == "__main__":
    try:
        main(parsed(), standard_output())
    except QuatcapsError as error:
        sys.exit(f"error: {error}")

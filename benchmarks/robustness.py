"""Robustness of QCN, rotors, a ResNet of as many parameters and the CNN on MNIST, CIFAR-10 and SVHN, in one command.

    python benchmarks/robustness.py [--dataset cifar10] [--images 1000] [--device cuda] [--side-by-side] [--list]

Trains what is missing under --work, with the images and epochs of `best` (minutes each on a GPU; a run that was stopped
goes on), then calls `quatcaps attack`, on MNIST with --affine too, and leaves attack.json, attack.png, affine.json and
affine.png in --output/DATASET. QCN is the published weights. --side-by-side trains all networks at once, then attacks
those of all datasets at once, which a GPU shares well under NVIDIA's MPS. --list prints what would be done.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import quatcaps
from quatcaps.cli import main
from quatcaps.paper.recipes import best
from quatcaps.paper.row import whole
from quatcaps.paper.rows import control
from quatcaps.training.config import TrainingConfig

EPSILONS = {
    "mnist": "0.016,0.031,0.063,0.1,0.2,0.3",
    "cifar10": "0.004,0.008,0.016,0.031,0.063,0.1",
    "svhn": "0.004,0.008,0.016,0.031,0.047,0.1",
}
"""With those of published protocols: 0.031 on CIFAR-10, 0.047 on SVHN."""
ATTACKS = "fgsm,bim,pgd,vote,autoattack,deepfool,cw"
EFFORT = ("--steps", "100", "--queries", "5000")
"""With which AutoAttack is the standard one."""
SYSTEMS = {
    "qcn-rotor": (best, {"model": "qcn-rotor-deep", "model_settings": {}}),
    "resnet": (control, {"model": "resnet-20", "model_settings": {"widths": (12, 24, 48)}}),
    "cnn": (control, {"model": "cnn", "model_settings": {}}),
}
"""Beside the published weights of QCN: the recipe, and what is changed of it."""


def configuration(system: str, dataset: str, seed: int) -> TrainingConfig:
    recipe, changes = SYSTEMS[system]
    return whole(recipe(dataset).changed({**changes, "seed": seed, "evaluate_every": 0}))


def commands(dataset: str, options: argparse.Namespace) -> Iterator[list[str]]:
    """The calls of `quatcaps attack` for one dataset."""
    beside = [word for system in SYSTEMS for word in ("--beside", str(options.work / f"{dataset}-{system}"))]
    shared = ["attack", "--weights", f"qcn-{dataset}", *beside, "--output", str(options.output / dataset)]
    shared += ["--device", options.device, *(["--data-dir", options.data_dir] if options.data_dir else [])]
    source = ["--from", str(options.work / f"{dataset}-resnet")]
    effort = ["--attacks", ATTACKS, "--epsilon", EPSILONS[dataset], "--images", str(options.images), *EFFORT]
    yield [*shared, *source, *effort]
    if dataset == "mnist":
        yield [*shared, "--affine"]


def train(system: str, dataset: str, options: argparse.Namespace) -> None:
    """Trains a network, goes on with it, or leaves it as it is."""
    folder = options.work / f"{dataset}-{system}"
    config = configuration(system, dataset, options.seed).changed({"device": options.device})
    begun = (folder / "run.json").exists()
    quatcaps.train(config.model, dataset, config, output=folder, resume=begun, data_dir=options.data_dir)


def attack(dataset: str, options: argparse.Namespace) -> None:
    for words in commands(dataset, options):
        sys.argv[1:] = words
        try:
            main()
        except SystemExit as stop:
            if stop.code:
                raise


def side_by_side(parts: Sequence[Sequence[str]], options: argparse.Namespace) -> None:
    """Does some parts of the work at once, each in a process of its own with one thread; an error where one fails."""
    given = ["--images", options.images, "--seed", options.seed, "--device", options.device]
    given += ["--work", options.work, "--output", options.output]
    given += ["--data-dir", options.data_dir] if options.data_dir else []
    start = [sys.executable, __file__, *map(str, given)]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    running = [(part, subprocess.Popen([*start, *part], env=environment)) for part in parts]
    failed = [shlex.join(part) for part, process in running if process.wait()]
    if failed:
        sys.exit(f"not done, as told above: {'; '.join(failed)}; the same command goes on")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", action="append", choices=list(EPSILONS))
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-dir")
    parser.add_argument("--work", type=Path, default=Path("runs/robustness"))
    parser.add_argument("--output", type=Path, default=Path("results/attacked"))
    parser.add_argument("--side-by-side", action="store_true")
    parser.add_argument("--train", choices=list(SYSTEMS), help="this network alone, and attack nothing")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def carry_out(options: argparse.Namespace) -> None:
    datasets = options.dataset or list(EPSILONS)
    wanted = [options.train] if options.train else list(SYSTEMS)
    if options.list:
        for dataset in datasets:
            for system in wanted:
                print(f"train {system} on {dataset}, into {options.work / f'{dataset}-{system}'}")
            for words in [] if options.train else commands(dataset, options):
                print(shlex.join(["quatcaps", *words]))
    elif options.side_by_side:
        side_by_side([("--dataset", each, "--train", system) for each in datasets for system in wanted], options)
        if not options.train:
            side_by_side([("--dataset", each) for each in datasets], options)
    else:
        for dataset in datasets:
            for system in wanted:
                train(system, dataset, options)
            if not options.train:
                attack(dataset, options)


if __name__ == "__main__":
    carry_out(parsed())

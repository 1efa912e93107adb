"""AutoAttack's public code beside ours, on a network of ours: which images each of them breaks.

    git clone https://github.com/fra31/auto-attack
    python benchmarks/beside_autoattack.py auto-attack
    python benchmarks/beside_autoattack.py auto-attack --weights qcn-cifar10 --images 30 --epsilon 0.002,0.004
    python benchmarks/beside_autoattack.py --tables

Runs the Python code in the folder that it is given: give one that you trust. Both attack the same test images of the
network's own dataset in the same arithmetic, with the same attacks in the same order, steps, starts and queries; they
draw different random numbers. So they need not break the same images: what should be alike is how many. Nothing of that
code is part of this repository.

Writes a line for each network and ε to beside-autoattack.json in --output; those of other networks stay.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from public_clones import commit_of, importing_from, record, recorded
from quatcaps.bench.machine import usual_name
from quatcaps.cli.attack import numbers_of
from quatcaps.console import say, standard_output
from quatcaps.data.store import data_folder
from quatcaps.errors import QuatcapsError, at_least_one
from quatcaps.report.tables import Table
from quatcaps.robustness import Effort, Victim, attack, some_images, under_attack
from quatcaps.robustness.trials import pixels_of
from quatcaps.training.run import load_images, versions
from quatcaps.training.trained import Trained
from quatcaps.weights.zoo import named_or_run

RESULTS = Path(__file__).parent / "results"
NAME = "beside-autoattack.json"
CPU = torch.device("cpu")
ORDER = ("apgd-ce", "apgd-t", "fab-t", "square")
"""The standard AutoAttack."""


def compare(
    trained: Trained, folder: Path, images: Any, epsilons: Sequence[float], effort: Effort, seed: int, console: Console
) -> list[dict[str, Any]]:
    """How many images both, ours alone and theirs alone break, at each ε; and how many are misclassified without."""
    victim = Victim(trained)
    pixels, labels = pixels_of(images, [victim], CPU), images.labels
    found = attack(
        trained, images, CPU, attacks=["autoattack"], epsilons=epsilons, effort=effort, masking=False, seed=seed
    )
    lines = []
    for epsilon, numbers in zip(found.epsilons, found.broken, strict=True):
        say(
            console, f"{trained.name}, ε = {epsilon:g}: ours broke {len(numbers)} of {len(labels)}; now the public code"
        )
        ours = torch.zeros(len(labels), dtype=torch.bool)
        ours[list(numbers)] = True
        theirs = broken_by_public(folder, victim, pixels, labels, epsilon, effort, seed)
        lines.append(
            {
                "epsilon": epsilon,
                "clean": found.clean.errors,
                "both": int((ours & theirs).sum()),
                "ours_alone": int((ours & ~theirs).sum()),
                "theirs_alone": int((theirs & ~ours).sum()),
            }
        )
    return lines


def broken_by_public(
    folder: Path, victim: Victim, pixels: Tensor, labels: Tensor, epsilon: float, effort: Effort, seed: int
) -> Tensor:
    """Which images the public code breaks."""
    attacker = public_code(folder).AutoAttack(
        victim,
        norm="Linf",
        eps=epsilon,
        version="custom",
        attacks_to_run=list(ORDER),
        device="cpu",
        verbose=False,
        seed=seed,
    )
    others = len(victim.trained.classes) - 1
    for one in (attacker.apgd, attacker.apgd_targeted, attacker.fab):
        one.n_iter, one.n_restarts = effort.steps, effort.restarts
    attacker.apgd_targeted.n_target_classes = attacker.fab.n_target_classes = min(9, others)
    attacker.square.n_queries = effort.queries
    with under_attack(victim):
        made = attacker.run_standard_evaluation(pixels, labels, bs=len(pixels))
        # Its images may lie a rounding beyond ε: they are judged where they lie.
        return victim(made).argmax(1) != labels


def public_code(folder: Path) -> Any:
    if not (folder / "autoattack").is_dir():
        raise QuatcapsError(f"{folder} has no folder autoattack: clone the public code, and give where it lies")
    with importing_from(folder):
        return importlib.import_module("autoattack")


def table_of(networks: Mapping[str, Any]) -> Table:
    lines = [
        (
            name,
            str(network["images"]),
            f"{line['epsilon']:g}",
            *(str(line[each]) for each in ("clean", "both", "ours_alone", "theirs_alone")),
        )
        for name, network in networks.items()
        for line in network["found"]
    ]
    columns = ("network", "images", "ε", "without", "broken by both", "by ours alone", "by the public code alone")
    return Table("AutoAttack's public code beside ours: images", columns, tuple(lines))


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where AutoAttack's public code lies")
    parser.add_argument("--weights", default="qcn-toys", help="a network: weights or the folder of a run")
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--epsilon", default="0.002,0.004,0.008")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="compare nothing, show what is recorded")
    return parser.parse_args(arguments)


def main(options: argparse.Namespace, console: Console) -> None:
    path = options.output / NAME
    found = recorded(path)
    if not options.tables:
        if options.folder is None:
            raise QuatcapsError("give where AutoAttack's public code lies, or --tables")
        at_least_one("images", options.images)
        effort = Effort(options.steps, options.restarts, options.queries)
        epsilons = numbers_of(options.epsilon)
        public_code(options.folder)
        trained = named_or_run(options.weights)
        tests = load_images(trained.config, "test", data_folder(options.data_dir))
        images = some_images(tests, options.images, options.seed)
        lines = compare(trained, options.folder, images, epsilons, effort, options.seed, console)
        found[trained.name] = {
            "repository": "fra31/auto-attack",
            "commit": commit_of(options.folder),
            "dataset": trained.config.dataset,
            "images": len(images),
            "effort": vars(effort),
            "seed": options.seed,
            "machine": usual_name(CPU),
            "versions": versions(CPU),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "found": lines,
        }
        record(path, found)
    if not found:
        raise QuatcapsError(f"{path} has no comparisons: compare a network first")
    console.print(table_of(found).rich(console.width))


if __name__ == "__main__":
    try:
        main(parsed(), standard_output())
    except QuatcapsError as error:
        sys.exit(f"error: {error}")

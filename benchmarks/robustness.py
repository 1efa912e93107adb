"""Robustness of QCN, rotors, a ResNet of as many parameters and the CNN on MNIST, CIFAR-10 and SVHN, in one command.

    python benchmarks/robustness.py [--dataset cifar10] [--images 1000] [--device cuda] [--side-by-side] [--list]

Trains the networks that it needs under --work, where `quatcaps reproduce evidence` trains the same runs (minutes each
on a GPU; a run that was stopped goes on), then calls `quatcaps attack` for each network, on MNIST with --affine too,
and leaves attack.json, attack.png, affine.json and affine.png in --output/DATASET. QCN is the published weights. What
stands there, attacked in the same way, is not attacked again. --side-by-side trains all networks at once, then attacks
all at once, which a GPU shares well under NVIDIA's MPS. --list prints what would be done.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import quatcaps
from quatcaps.cli import main
from quatcaps.console import standard_output
from quatcaps.errors import QuatcapsError
from quatcaps.files import read_json, write_json
from quatcaps.paper.rows import ROWS
from quatcaps.report.robustness import affine_figure, affine_table, attack_figure, attack_tables
from quatcaps.robustness import Affine, Attacked
from quatcaps.training.config import TrainingConfig

EPSILONS = {
    "mnist": "0.016,0.031,0.063,0.1,0.2,0.3",
    "cifar10": "0.004,0.008,0.016,0.031,0.063,0.1",
    "svhn": "0.004,0.008,0.016,0.031,0.047,0.1",
}
"""With those of published protocols: 0.031 on CIFAR-10, 0.047 on SVHN."""
ATTACKS = "fgsm,bim,pgd,vote,autoattack,deepfool,cw"
PLAIN_ATTACKS = ATTACKS.replace("vote,", "")
EFFORT = ("--steps", "100", "--queries", "5000")
"""With which AutoAttack is the standard one."""
PUBLISHED = "qcn"
"""Of which there are weights."""
TRAINED = ("qcn-rotor", "resnet-153k", "cnn")
"""Beside them: systems of `quatcaps reproduce evidence`."""
SYSTEMS = (PUBLISHED, *TRAINED)
SHOWN = {PUBLISHED: "qcn-{dataset}", "qcn-rotor": "qcn-rotor-deep"}
"""What tables and pictures call a system, where that is not its key: the weights, the network."""
SOURCE = "resnet-153k"
"""Its adversarial images are shown to the others too."""
FILES = ("attack.json", "affine.json")


def configuration(system: str, dataset: str, seed: int) -> TrainingConfig:
    return ROWS[f"evidence-{dataset}/{system}"].config(seed)


def commands(dataset: str, system: str, options: argparse.Namespace) -> Iterator[list[str]]:
    """The calls of `quatcaps attack` for one network."""
    network = ["--weights", f"qcn-{dataset}"] if system == PUBLISHED else [str(folder(system, dataset, options))]
    given = ["--output", str(attacked(system, dataset, options)), "--device", options.device]
    given += ["--data-dir", options.data_dir] if options.data_dir else []
    source = [] if system == SOURCE else ["--from", str(folder(SOURCE, dataset, options))]
    attacks = PLAIN_ATTACKS if system in (SOURCE, "cnn") else ATTACKS
    effort = ["--attacks", attacks, "--epsilon", EPSILONS[dataset], "--images", str(options.images), *EFFORT]
    yield ["attack", *network, *given, *source, *effort]
    if dataset == "mnist":
        yield ["attack", *network, *given, "--affine"]


def folder(system: str, dataset: str, options: argparse.Namespace) -> Path:
    """Of a run."""
    return Path(options.work, f"evidence-{dataset}", system, f"seed-{options.seed}")


def attacked(system: str, dataset: str, options: argparse.Namespace) -> Path:
    """Where what attacks made of one network stands until that of all is put together."""
    return Path(options.work, "attacked", dataset, f"{options.images}-images", system, f"seed-{options.seed}")


def put_at(dataset: str, options: argparse.Namespace) -> Path:
    """Where what was found of one dataset goes: of other seeds than 0 into a folder of its own."""
    return Path(options.output, dataset if not options.seed else f"{dataset}-seed-{options.seed}")


def train(system: str, dataset: str, options: argparse.Namespace) -> None:
    """Trains a network, goes on with it, or leaves it as it is."""
    place = folder(system, dataset, options)
    config = configuration(system, dataset, options.seed).changed({"device": options.device})
    begun = (place / "run.json").exists()
    quatcaps.train(config.model, dataset, config, output=place, resume=begun, data_dir=options.data_dir)


def attack(system: str, dataset: str, options: argparse.Namespace) -> None:
    for words in left(dataset, system, options):
        sys.argv[1:] = words
        try:
            main()
        except SystemExit as stop:
            if stop.code:
                raise


def found_of(dataset: str, file: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What attacks found, by system: what is in the output, if it was attacked in this way, and what is to go there."""
    found = {}
    if (earlier := put_at(dataset, options) / file).exists():
        value = read_json(earlier, "what attacks found")
        if file != "attack.json" or in_this_way(value, dataset, options):
            found = {network["name"]: {**value, "networks": [network]} for network in value["networks"]}
    names = {system: SHOWN.get(system, system).format(dataset=dataset) for system in SYSTEMS}
    for system, name in names.items():
        if (path := attacked(system, dataset, options) / file).exists():
            found[name] = named(name, read_json(path, "what attacks found"))
    return {system: found[name] for system, name in names.items() if name in found}


def in_this_way(value: Mapping[str, Any], dataset: str, options: argparse.Namespace) -> bool:
    """Whether as many images were attacked, in all of these ways, as far, and with this effort."""
    steps, queries = map(int, EFFORT[1::2])
    epsilons = [float(word) for word in EPSILONS[dataset].split(",")]

    def complete(network: Mapping[str, Any]) -> bool:
        tried = {*network["attacks"], *network["nearest"]}
        far = all([point["epsilon"] for point in curve] == epsilons for curve in network["attacks"].values())
        return (
            network["images"].endswith(f" {options.images:,} images") and far and tried >= set(PLAIN_ATTACKS.split(","))
        )

    same = value["effort"] == {"steps": steps, "restarts": 1, "queries": queries}
    return same and value["epsilon_unit"] == "pixels in [0, 1]" and all(map(complete, value["networks"]))


def put_together(dataset: str, options: argparse.Namespace) -> None:
    """The networks of one dataset in one file, one picture and one table each."""
    console, output = standard_output(), put_at(dataset, options)
    for file in FILES if dataset == "mnist" else FILES[:1]:
        if not (parts := list(found_of(dataset, file, options).values())):
            continue
        networks = [network for part in parts for network in part["networks"]]
        write_json(output / file, {**parts[0], "networks": networks})
        if file == "attack.json":
            found = [Attacked.from_json(network) for network in networks]
            attack_figure(found, output / "attack.png")
            tables = attack_tables(found)
        else:
            changed = [Affine.from_json(network) for network in networks]
            affine_figure(changed, output / "affine.png")
            tables = [affine_table(changed)]
        for table in tables:
            console.print(table.rich(console.width))


def named(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """What was found of one network under another name than the path of its run."""
    (network,) = value["networks"]
    network = {**network, "name": name}
    for path, curve in network.get("transfer", {}).items():
        network["transfer"] = {SOURCE: curve}
        network["masking"] = [{**sign, "words": sign["words"].replace(path, SOURCE)} for sign in network["masking"]]
    return {**value, **({"from": SOURCE} if "from" in value else {}), "networks": [network]}


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
    parser.add_argument("--images", type=whole_from(1), default=1000)
    parser.add_argument("--seed", type=whole_from(0), default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-dir")
    parser.add_argument("--work", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--output", type=Path, default=Path("results/attacked"))
    parser.add_argument("--side-by-side", action="store_true")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--train", choices=TRAINED, help="this network alone, and attack nothing")
    one.add_argument("--attack", choices=SYSTEMS, help="this network alone, and train nothing")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def whole_from(least: int) -> Callable[[str], int]:
    def whole(word: str) -> int:
        if not word.isdecimal() or int(word) < least:
            raise argparse.ArgumentTypeError(f"{word} must be a whole number of at least {least}")
        return int(word)

    return whole


def left(dataset: str, system: str, options: argparse.Namespace) -> list[list[str]]:
    """The calls of `quatcaps attack` for one network of which nothing stands yet."""
    calls = zip(commands(dataset, system, options), FILES, strict=False)
    return [words for words, file in calls if system not in found_of(dataset, file, options)]


def missing(dataset: str, options: argparse.Namespace) -> list[str]:
    """The networks that what is left takes: those that are attacked, and the one whose images others are shown."""
    calls = {system: left(dataset, system, options) for system in SYSTEMS}
    shown = any("--from" in words for found in calls.values() for words in found)
    return [system for system in TRAINED if calls[system] or (system == SOURCE and shown)]


def carry_out(options: argparse.Namespace) -> None:
    datasets = options.dataset or list(EPSILONS)
    training = {
        dataset: [] if options.attack else [options.train] if options.train else missing(dataset, options)
        for dataset in datasets
    }
    attacking = () if options.train else (options.attack,) if options.attack else SYSTEMS
    if options.list:
        lines = []
        for dataset in datasets:
            for system in training[dataset]:
                lines.append(f"train {system} on {dataset}, into {folder(system, dataset, options)}")
            for system in attacking:
                lines += [shlex.join(["quatcaps", *words]) for words in left(dataset, system, options)]
        print("\n".join(lines) or "nothing is left to do")
        return
    if options.side_by_side:
        networks = [(dataset, system) for dataset in datasets for system in training[dataset]]
        side_by_side([("--dataset", dataset, "--train", system) for dataset, system in networks], options)
        networks = [(dataset, system) for dataset in datasets for system in attacking if left(dataset, system, options)]
        side_by_side([("--dataset", dataset, "--attack", system) for dataset, system in networks], options)
    else:
        for dataset in datasets:
            for system in training[dataset]:
                train(system, dataset, options)
            for system in attacking:
                attack(system, dataset, options)
    if attacking == SYSTEMS:
        for dataset in datasets:
            put_together(dataset, options)


if __name__ == "__main__":
    try:
        carry_out(parsed())
    except QuatcapsError as error:
        sys.exit(f"error: {error}")

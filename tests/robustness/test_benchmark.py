"""`benchmarks/robustness.py`: what it would train, and the commands that it calls."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path

from typer.main import get_command

from quatcaps import cli, weights
from quatcaps.robustness.attacks import ATTACKS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "robustness.py"


def test_its_commands_are_commands() -> None:
    script = runpy.run_path(str(SCRIPT))
    options = argparse.Namespace(work=Path("runs"), output=Path("out"), device="cpu", data_dir=None, images=7)
    calls = [words for dataset in script["EPSILONS"] for words in script["commands"](dataset, options)]
    assert [words[2] for words in calls] == ["qcn-mnist", "qcn-mnist", "qcn-cifar10", "qcn-svhn"]
    assert set(script["ATTACKS"].split(",")) <= set(ATTACKS)
    group = get_command(cli.app)
    for name, *rest in calls:
        parsed = group.commands[name].make_context(name, list(rest)).params  # type: ignore[attr-defined]
        assert len(parsed["beside"]) == len(script["SYSTEMS"])
        assert parsed["weights"] in weights.names()


def test_networks_have_the_images_of_best() -> None:
    script = runpy.run_path(str(SCRIPT))
    for dataset in script["EPSILONS"]:
        configs = [script["configuration"](system, dataset, 3) for system in script["SYSTEMS"]]
        card = weights.card(f"qcn-{dataset}")
        for config in configs:
            assert config.seed == 3
            for name in ("dataset", "epochs", "batch", "image_size", "crop", "pad", "rotation", "standardise"):
                assert getattr(config, name) == getattr(card.config, name), (dataset, name)

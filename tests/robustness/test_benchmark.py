"""`benchmarks/robustness.py`: what it would train, and the commands that it calls."""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
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


@pytest.mark.parametrize("status", [0, 1])
def test_side_by_side_all_are_trained_before_any_is_attacked(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    script, begun = runpy.run_path(str(SCRIPT)), []

    class Process:
        def __init__(self, command: list[str], env: dict[str, str]) -> None:
            assert command[:2] == [sys.executable, str(SCRIPT)]
            monkeypatch.setattr(sys, "argv", command[1:])
            begun.append(script["parsed"]())

        def wait(self) -> int:
            return status

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--images", "7", "--data-dir", "there", "--side-by-side"])
    options = script["parsed"]()
    if status:
        with pytest.raises(SystemExit, match=r"--dataset mnist --train cnn; .* the same command goes on"):
            script["carry_out"](options)
    else:
        script["carry_out"](options)
    datasets, systems = list(script["EPSILONS"]), list(script["SYSTEMS"])
    training = [([dataset], system) for dataset in datasets for system in systems]
    attacking = [([dataset], None) for dataset in datasets]
    assert [(each.dataset, each.train) for each in begun] == (training if status else [*training, *attacking])
    assert all((each.images, each.data_dir, each.side_by_side) == (7, "there", False) for each in begun)

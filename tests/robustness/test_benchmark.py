"""`benchmarks/robustness.py`: what it would train, and the commands that it calls."""

from __future__ import annotations

import argparse
import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from quatcaps import cli, weights
from quatcaps.robustness.attacks import ATTACKS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "robustness.py"
ATTACKED = Path(__file__).parents[2] / "results" / "attacked"


def options(folder: Path) -> argparse.Namespace:
    return argparse.Namespace(work=folder, output=folder / "out", device="cpu", data_dir=None, images=7, seed=0)


def test_its_commands_are_commands() -> None:
    script, group = runpy.run_path(str(SCRIPT)), get_command(cli.app)
    for dataset in script["EPSILONS"]:
        for system in script["SYSTEMS"]:
            calls = list(script["commands"](dataset, system, options(Path("runs"))))
            assert len(calls) == (2 if dataset == "mnist" else 1)
            for name, *rest in calls:
                parsed = group.commands[name].make_context(name, list(rest)).params  # type: ignore[attr-defined]
                capsules = system.startswith("qcn")
                assert (parsed["weights"] in weights.names()) == (system == "qcn")
                assert (parsed["run"] is None) == (system == "qcn")
                if not parsed["affine"]:
                    attacks = parsed["attacks"].split(",")
                    assert set(attacks) <= set(ATTACKS)
                    assert ("vote" in attacks) == capsules
                    assert (parsed["source"] is None) == (system == "resnet-153k")


def test_networks_have_the_images_of_best() -> None:
    script = runpy.run_path(str(SCRIPT))
    for dataset in script["EPSILONS"]:
        configs = [script["configuration"](system, dataset, 3) for system in script["TRAINED"]]
        card = weights.card(f"qcn-{dataset}")
        for config in configs:
            assert config.seed == 3
            for name in ("dataset", "epochs", "batch", "image_size", "crop", "pad", "rotation", "standardise"):
                assert getattr(config, name) == getattr(card.config, name), (dataset, name)


@pytest.mark.parametrize("status", [0, 1])
def test_side_by_side_all_are_trained_before_any_is_attacked(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    script, begun, together = runpy.run_path(str(SCRIPT)), [], []

    class Process:
        def __init__(self, command: list[str], env: dict[str, str]) -> None:
            assert command[:2] == [sys.executable, str(SCRIPT)]
            monkeypatch.setattr(sys, "argv", command[1:])
            begun.append(script["parsed"]())

        def wait(self) -> int:
            return status

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setitem(script["carry_out"].__globals__, "put_together", lambda dataset, _: together.append(dataset))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--images", "7", "--data-dir", "there", "--side-by-side"])
    given = script["parsed"]()
    if status:
        with pytest.raises(SystemExit, match=r"--dataset mnist --train cnn; .* the same command goes on"):
            script["carry_out"](given)
    else:
        script["carry_out"](given)
    datasets = list(script["EPSILONS"])
    training = [([dataset], system, None) for dataset in datasets for system in script["TRAINED"]]
    attacking = [([dataset], None, system) for dataset in datasets for system in script["SYSTEMS"]]
    wanted = training if status else [*training, *attacking]
    assert [(each.dataset, each.train, each.attack) for each in begun] == wanted
    assert together == ([] if status else datasets)
    assert all((each.images, each.data_dir, each.side_by_side) == (7, "there", False) for each in begun)


@pytest.fixture
def found() -> dict[str, dict[str, Any]]:
    """By file, what an attack with the standard effort might have found on seven images."""
    value = {
        "attack.json": json.loads((ATTACKED / "qcn-toys/attack.json").read_text(encoding="utf-8")),
        "affine.json": json.loads((ATTACKED / "qcn-mnist-28/affine.json").read_text(encoding="utf-8")),
    }
    (network,) = value["attack.json"]["networks"]
    network["images"] = "MNIST test, 7 images"
    curve, reached = network["attacks"]["pgd"], (0.016, 0.031, 0.063, 0.1, 0.2, 0.3)
    curve = [{**curve[-1], "epsilon": epsilon} for epsilon in reached]
    network["attacks"] = dict.fromkeys(("fgsm", "bim", "pgd", "autoattack"), curve)
    network["strongest"], network["epsilons"] = curve, list(reached)
    network["nearest"] = {name: {"found": 7, "images": 7, "mean": 1.0, "median": 1.0} for name in ("deepfool", "cw")}
    source = "runs/evidence-mnist/resnet-153k/seed-0"
    network["transfer"] = {source: network["strongest"]}
    network["masking"].append({"check": "transfer", "seen": False, "words": f"examples made on {source} broke 1.0%"})
    value["attack.json"]["effort"] = {"steps": 100, "restarts": 1, "queries": 5000}
    return value


def test_what_attacks_found_is_put_together(
    found: dict[str, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One network after the other; what was attacked already is not attacked again, unless in another way."""
    script, given = runpy.run_path(str(SCRIPT)), options(tmp_path)
    called: list[str] = []
    names = ["qcn-mnist", "qcn-rotor-deep", "resnet-153k", "cnn"]
    monkeypatch.setitem(script["attack"].__globals__, "main", lambda: called.append(sys.argv[2]))
    for count, system in enumerate(script["SYSTEMS"], 1):
        script["attack"](system, "mnist", given)
        assert len(called) == 2, "attack and affine"
        called.clear()
        part = script["attacked"](system, "mnist", given)
        part.mkdir(parents=True)
        for file, value in found.items():
            value["networks"][0]["name"] = str(part)
            (part / file).write_text(json.dumps(value), encoding="utf-8")
        script["put_together"]("mnist", given)
        shutil.rmtree(part)
        script["attack"](system, "mnist", given)
        assert not called
        for file in found:
            written = json.loads((tmp_path / "out/mnist" / file).read_text(encoding="utf-8"))
            assert [network["name"] for network in written["networks"]] == names[:count]
            assert (tmp_path / "out/mnist" / file).with_suffix(".png").exists()
            assert "seed-0" not in json.dumps(written), "no path of a run"
            if file == "attack.json":
                assert written["from"] == "resnet-153k"
                assert {name for network in written["networks"] for name in network["transfer"]} == {"resnet-153k"}
    assert script["missing"]("mnist", given) == [], "nothing is trained of which all is found"
    assert not any(script["left"]("mnist", system, given) for system in script["SYSTEMS"])
    for changes, words in (({}, "nothing is left to do"), ({"seed": 1}, "train cnn on mnist, into ")):
        rest = {"dataset": ["mnist"], "train": None, "attack": None, "list": True}
        script["carry_out"](argparse.Namespace(**{**vars(given), **rest, **changes}))
        assert words in capsys.readouterr().out
    for other in ({"images": 8}, {"seed": 1}):
        called.clear()
        changed = argparse.Namespace(**{**vars(given), **other})
        assert script["missing"]("mnist", changed) == list(script["TRAINED"])
        script["attack"]("cnn", "mnist", changed)
        assert called, "on other images, or other networks"
    file = tmp_path / "out/mnist/attack.json"
    for part, changed in (("attacks", {}), ("nearest", {}), ("attacks", {"fgsm": [{"epsilon": 0.1}]})):
        value = json.loads(file.read_text(encoding="utf-8"))
        value["networks"][0][part] = changed and {**value["networks"][0][part], **changed}
        assert not script["in_this_way"](value, "mnist", given), "by fewer attacks, or less far"


def test_one_network_that_is_left_needs_the_one_whose_images_it_is_shown(
    found: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    script, given = runpy.run_path(str(SCRIPT)), options(tmp_path)
    for system in ("qcn-rotor", "resnet-153k", "cnn"):
        part = script["attacked"](system, "mnist", given)
        part.mkdir(parents=True)
        for file, value in found.items():
            (part / file).write_text(json.dumps(value), encoding="utf-8")
    assert [system for system in script["SYSTEMS"] if script["left"]("mnist", system, given)] == ["qcn"]
    assert script["missing"]("mnist", given) == ["resnet-153k"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--images", "0"), "argument --images: 0 must be a whole number of at least 1"),
        (("--seed", "-2"), "argument --seed: -2 must be a whole number of at least 0"),
        (("--train", "cnn", "--attack", "cnn"), "not allowed with argument --train"),
    ],
)
def test_what_it_refuses(
    given: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *given])
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT))["parsed"]()
    assert words in capsys.readouterr().err

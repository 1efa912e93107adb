"""The scripts in examples/ run, without a warning; those that train learn."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import quatcaps
from quatcaps.training.preprocess import Preprocessing

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXPORTS = ROOT / "examples" / "export_onnx.py"


def run(*arguments: str) -> str:
    """What Python prints, with warnings as errors, on this tree's package."""
    environment = os.environ | {"PYTHONPATH": str(Path(quatcaps.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    outcome = subprocess.run(
        [sys.executable, "-W", "error", *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_there_are_examples() -> None:
    assert {"own_pose", "own_routing", EXPORTS.stem} <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path != EXPORTS], ids=lambda path: path.stem)
def test_examples_run(path: Path) -> None:
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", run(str(path)))]
    assert losses[-1] < losses[0] / 2


def test_the_example_of_exporting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, and of a network that is quickly exported: a CNN with quaternions for poses."""
    network = quatcaps.build("cnn-small", channels=1, classes=3, seed=0, poses=True)
    network.class_names = ("one", "two", "three")
    network.preprocessing = Preprocessing(quatcaps.TrainingConfig(image_size=32, crop=28), 1, (32, 32))
    script = runpy.run_path(str(EXPORTS))
    script["main"](str(network.save(tmp_path / "mine.safetensors")), str(tmp_path / "mine.onnx"))
    said = capsys.readouterr().out
    assert float(re.findall(r"largest difference from the network (\S+)", said)[0]) <= 1e-5
    assert len(re.findall(r"^(?:one|two|three), activation 0\.\d{3}$", said, re.M)) == 3
    assert "poses (3, 3, 4)" in said
    assert (tmp_path / "mine.onnx").stat().st_size > 50_000


@pytest.mark.usefixtures("own_names")
def test_the_command_line_takes_an_example_by_its_path(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "own_pose", raising=False)
    outcome = command("--plugin", ROOT / "examples" / "own_pose.py", "models")
    assert outcome.code == 0, outcome.err
    assert re.search(r"poses: .*\bcomplex\b", outcome.out)
    monkeypatch.delitem(sys.modules, "own_pose")

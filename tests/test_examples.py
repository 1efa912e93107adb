"""The scripts in examples/ run, without a warning, and learn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import quatcaps

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(*arguments: str) -> str:
    """What Python prints, with warnings as errors, on this tree's package."""
    environment = os.environ | {"PYTHONPATH": str(Path(quatcaps.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    outcome = subprocess.run(
        [sys.executable, "-W", "error", *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_there_are_examples() -> None:
    assert {"own_pose", "own_routing"} <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path) -> None:
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", run(str(path)))]
    assert losses[-1] < losses[0] / 2


@pytest.mark.usefixtures("own_names")
def test_the_command_line_takes_an_example_by_its_path(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "own_pose", raising=False)
    outcome = command("--plugin", ROOT / "examples" / "own_pose.py", "models")
    assert outcome.code == 0, outcome.err
    assert re.search(r"poses: .*\bcomplex\b", outcome.out)
    monkeypatch.delitem(sys.modules, "own_pose")

"""The scripts in examples/ run, without a warning, and learn."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import jaxtyping
import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    written = {"fine_tuning", "own_data", "own_pose", "own_routing", "several_processes", "training_loop"}
    assert written <= {path.stem for path in EXAMPLES}


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, whose warnings are errors: another would take seconds to import torch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    jaxtyping.config.update("jaxtyping_disable", True)  # as they run for a reader
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", capsys.readouterr().out)]
    assert losses[-1] < losses[0] / 2
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


@pytest.mark.usefixtures("own_names")
def test_the_command_line_takes_an_example_by_its_path(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "own_pose", raising=False)
    outcome = command("--plugin", ROOT / "examples" / "own_pose.py", "models")
    assert outcome.code == 0, outcome.err
    assert re.search(r"poses: .*\bcomplex\b", outcome.out)
    monkeypatch.delitem(sys.modules, "own_pose")

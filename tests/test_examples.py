"""The scripts in examples/ run, without a warning; those that train learn."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import jaxtyping
import pytest

import quatcaps
from quatcaps.training.preprocess import Preprocessing

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXPORTS = ROOT / "examples" / "export_onnx.py"


def test_there_are_examples() -> None:
    written = {"fine_tuning", "own_data", "own_pose", "own_routing", "several_processes", "training_loop", EXPORTS.stem}
    assert written <= {path.stem for path in EXAMPLES}


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("path", [path for path in EXAMPLES if path != EXPORTS], ids=lambda path: path.stem)
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


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that the example of exporting wrote to, and its words; in this process, and of a network that is
    quickly exported: a CNN with quaternions for poses."""
    pytest.importorskip("onnxruntime")
    folder, said = tmp_path_factory.mktemp("exported"), io.StringIO()
    network = quatcaps.build("cnn-small", channels=1, classes=10, seed=0, poses=True)
    network.class_names = tuple(map(str, range(10)))
    network.preprocessing = Preprocessing(quatcaps.TrainingConfig(image_size=28, crop=28), 1, (28, 28))
    source = network.save(folder / "network.safetensors")
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(EXPORTS))["main"](str(source), str(folder / "mnist.onnx"))
    return folder, said.getvalue()


def test_the_example_of_exporting(exported: tuple[Path, str]) -> None:
    folder, said = exported
    assert float(re.findall(r"largest difference from the network (\S+)", said)[0]) <= 1e-5
    assert len(re.findall(r"^\d, activation 0\.\d{3}$", said, re.M)) == 3
    assert "poses (3, 10, 4)" in said
    assert (folder / "mnist.onnx").stat().st_size > 50_000


def test_what_is_told_of_exporting_runs(
    exported: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of docs/export.md as they stand, on files of that network."""
    monkeypatch.chdir(exported[0])
    quatcaps.export("./network.safetensors", "mnist.pt2")
    text = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    blocks, names = re.findall(r"```python\n(.*?)```", text, re.S), {}
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, "export.md", "exec"), names)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "('round', 'straight') (28, 28)"
    assert said[1] in "0123456789"
    assert said[2] == "torch.Size([7, 10])"
    links = re.findall(r"\]\(([^)#]+)", text)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


@pytest.mark.usefixtures("own_names")
def test_the_command_line_takes_an_example_by_its_path(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "own_pose", raising=False)
    outcome = command("--plugin", ROOT / "examples" / "own_pose.py", "models")
    assert outcome.code == 0, outcome.err
    assert re.search(r"poses: .*\bcomplex\b", outcome.out)
    monkeypatch.delitem(sys.modules, "own_pose")

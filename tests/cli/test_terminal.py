"""What reaches a terminal: names as they are, and nothing that moves its cursor."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from quatcaps.console import Counter, bar, plain_warnings
from quatcaps.data.imageset import ImageSet
from quatcaps.report.tables import Table
from quatcaps.training import checkpoint
from quatcaps.training.checkpoint import Position
from quatcaps.training.config import TrainingConfig
from quatcaps.training.run import create_run
from quatcaps.weights import zoo

ESCAPE = "\x1b"
RED = f"{ESCAPE}[31mred{ESCAPE}]0;title\x07"
SEEN = r"\x1b[31mred\x1b]0;title\x07"


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.new("L", (32, 32), 128).save(tmp_path / "grey.png")
    return tmp_path / "grey.png"


@pytest.fixture
def own_images(tmp_path: Path) -> Path:
    pixels, labels = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 1), dtype=np.uint8), np.arange(24) % 2
    np.savez(tmp_path / "own[i].npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    return tmp_path / "own[i].npz"


@pytest.mark.parametrize("name", ["qcn[lr=0.1]", "x[", "x[/b]", "[red]x[/red]", "[bold]"])
def test_brackets_in_paths_are_printed_as_they_are(
    name: str, own_images: Path, picture: Path, tmp_path: Path, command: Callable
) -> None:
    folder = tmp_path / "runs" / name
    settings = ["--dataset", own_images, "--model", "cnn-small", "--image-size", 0, "--crop", 28, "--epochs", 1]
    trained = command("train", *settings, "--batch", 8, "--device", "cpu", "--output", folder, "--data-dir", tmp_path)
    assert trained.code == 0, trained.err
    assert f"run in {folder}" in trained.out
    assert f"quatcaps evaluate {folder}" in trained.out
    measured = command("evaluate", folder, "--device", "cpu", "--data-dir", tmp_path)
    assert measured.code == 0, measured.err
    assert f"numbers and picture in {folder / 'evaluation-test'}.json" in measured.out
    named = command("predict", folder, picture, "--device", "cpu")
    assert named.code == 0, named.err
    assert f"{picture}: " in named.out
    again = command("train", *settings, "--output", folder, "--data-dir", tmp_path)
    assert again.code == 1
    assert f"{folder} is not empty" in again.err
    weights = tmp_path / name
    exported = command("weights", "export", folder, "--name", "w", "--output", weights, "--data-dir", tmp_path)
    assert exported.code == 0, exported.err
    assert f"{weights / 'w.safetensors'} (" in exported.out
    for arguments in (
        ["weights", "show", weights / "w.safetensors"],
        ["predict", "--weights", weights / "w.safetensors"],
    ):
        shown = command(*arguments, *([picture] if arguments[0] == "predict" else []))
        assert shown.code == 0, shown.err


BOTH = """
import sys
from quatcaps.__main__ import main
for command in ("data", "weights"):
    sys.argv = ["quatcaps", command, "list"]
    try:
        main()
    except SystemExit as stop:
        print("ends with", stop.code)
"""


def test_terminal_of_ascii(tmp_path: Path) -> None:
    """Both lists, in a program of its own."""
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "QUATCAPS_DATA_DIR": str(tmp_path)}
    finished = subprocess.run([sys.executable, "-c", BOTH], capture_output=True, text=True, check=True, env=environment)
    datasets, weights, rest = re.split(r"ends with (?:0|None)\n", finished.stdout)
    assert "smallnorb" in datasets
    assert "smallnorb" in weights
    assert rest == ""
    assert finished.stderr == ""


def test_class_names_of_a_run(noise_images: ImageSet, picture: Path, tmp_path: Path, command: Callable) -> None:
    config = TrainingConfig(model="cnn-small", image_size=32, crop=28, device="cpu", epochs=1)
    run = create_run(tmp_path / "run", config, noise_images)
    network = run.network()
    checkpoint.save(run.checkpoints, network, torch.optim.Adam(network.parameters()), Position(epoch=1))
    description = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps(description | {"classes": [RED] * 3}))
    named = command("predict", run.folder, picture, "--device", "cpu")
    assert named.code == 0, named.err
    assert SEEN in named.out
    assert ESCAPE not in named.out


def test_words_of_a_card(tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    card = json.loads((zoo.PUBLISHED / "qcn-mnist.json").read_text())
    card["classes"][3], card["licence"], card["measured_on"] = RED, RED, "cpu"
    card["configuration"]["dataset"] = card["data"]["dataset"] = f"./{RED}"
    card["configuration"]["model_settings"] = {RED: 1}
    (tmp_path / "qcn-mnist.json").write_text(json.dumps(card))
    (tmp_path / "qcn-mnist.safetensors").write_bytes((zoo.PUBLISHED / "qcn-mnist.safetensors").read_bytes())
    monkeypatch.setattr(zoo, "PUBLISHED", tmp_path)
    for arguments in (["list"], ["show", "qcn-mnist"], ["verify"]):
        shown = (
            command("weights", *arguments, "--data-dir", tmp_path)
            if arguments == ["verify"]
            else command("weights", *arguments)
        )
        assert ESCAPE not in shown.out + shown.err
        assert r"\x1b" in shown.out + shown.err


def test_errors_and_warnings(tmp_path: Path, command: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    refused = command("evaluate", tmp_path / RED)
    assert refused.code == 1
    assert SEEN in refused.err
    assert ESCAPE not in refused.err
    with plain_warnings():
        text = warnings.formatwarning(UserWarning(RED), UserWarning, "file.py", 3)  # what Python prints
    assert text == f"warning: {SEEN}\n"


def test_titles_columns_and_bars() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=None, legacy_windows=False)
    console.print(Table(RED, (RED, "b"), ((RED, "1"),)).rich(80))
    assert SEEN in file.getvalue()
    assert f"{ESCAPE}[31m" not in file.getvalue()
    with bar(console, "{task.description}") as drawn:
        Counter(drawn, RED)(1, 2)
    assert f"{ESCAPE}[31m" not in file.getvalue()
    assert f"{ESCAPE}]0;" not in file.getvalue()

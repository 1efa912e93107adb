"""What programs read: --json on standard output alone; and `predict` of many files, some of which are none."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import quatcaps
from quatcaps.data.imageset import ImageSet
from quatcaps.models import MODELS
from quatcaps.training import checkpoint, predict
from quatcaps.training.checkpoint import Position
from quatcaps.training.config import TrainingConfig
from quatcaps.training.run import Run, create_run
from quatcaps.weights import zoo

ODD = 'quote " bracket [red] \x1b line\nend'


@pytest.fixture
def run(noise_images: ImageSet, tmp_path: Path) -> Run:
    """A run that was never trained, of classes with odd names."""
    config = TrainingConfig(model="cnn-small", image_size=32, crop=28, device="cpu", epochs=1)
    run = create_run(tmp_path / "run", config, noise_images)
    description = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps(description | {"classes": [ODD, "two", "three"]}))
    network = run.network()
    checkpoint.save(run.checkpoints, network, torch.optim.Adam(network.parameters()), Position(epoch=1))
    return run


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of pictures at several depths, with files that are none."""
    folder = tmp_path / "pictures"
    generator = np.random.default_rng(0)
    for name in ("b.png", "a.png", "deep/er/c.JPG", ".hidden/d.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (40, 40), dtype=np.uint8)).save(folder / name)
    (folder / "broken.png").write_bytes(b"no picture")
    (folder / "notes.txt").write_text("no picture either")
    return folder


def test_lists_for_programs(tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quatcaps.report.networks.MODELS", ["qcn", "cnn-small"])  # all of them take seconds
    models = json.loads(command("models", "--json").out)
    assert [each["name"] for each in models["models"]] == ["qcn", "cnn-small"]
    assert models["models"][0]["parameters"]["smallnorb"] == 187_762
    assert models["models"][1]["summary"] == MODELS["cnn-small"].summary
    assert models["models"][1]["votes"] == 0
    assert models["models"][0]["multiply_adds"] > 0
    assert "rotor" in models["poses"]
    weights = json.loads(command("weights", "list", "--json").out)
    assert weights["weights"] == [zoo.card(name).to_json() for name in zoo.names()]
    odd = tmp_path / 'da"ta'
    data = json.loads(command("data", "list", "--json", "--data-dir", odd).out)
    assert data["folder"] == str(odd)
    named = {each["name"]: each for each in data["datasets"]}
    assert named["smallnorb"]["test"] == named["toys"]["test"] == 24_300
    assert named["cifar10"]["shape"] == [3, 32, 32]


def test_predictions_for_programs(run: Run, pictures: Path, command: Callable) -> None:
    outcome = command("predict", run.folder, pictures, "nowhere.png", "--top", 9, "--json", "--device", "cpu")
    assert outcome.code == 1
    found = json.loads(outcome.out)
    assert found["network"] == str(run.folder)
    assert found["checkpoint"] is None
    assert found["classes"] == [ODD, "two", "three"]
    files = ("a.png", "b.png", "broken.png", "deep/er/c.JPG")
    assert [image["path"] for image in found["images"]] == [*(str(pictures / name) for name in files), "nowhere.png"]
    first, *_, last = found["images"]
    wanted = quatcaps.predict(run.folder, pictures / "a.png", device="cpu")[0]
    assert first["class"] == wanted.name
    assert first["activation"] == pytest.approx(wanted.activation, abs=1e-6)
    assert len(first["top"]) == 3, "no more than there are classes"
    assert [each["activation"] for each in first["top"]] == sorted(wanted.activations.values(), reverse=True)
    assert last["error"] == "nowhere.png: there is no such file"
    errors = outcome.err.splitlines()
    assert [line.startswith("error: ") for line in errors] == [True, True, False]
    assert "broken.png is not an image" in errors[0]
    assert errors[2] == "2 of 5 could not be read"


def test_predictions_as_a_table(run: Run, pictures: Path, command: Callable) -> None:
    outcome = command("predict", run.folder, pictures / "b.png", pictures / "a.png", "--csv", "--device", "cpu")
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    assert [row["path"] for row in rows] == [str(pictures / name) for name in ("b.png", "a.png")]
    assert float(rows[0]["activation 1"]) >= float(rows[0]["activation 2"])
    assert {row[f"class {place}"] for row in rows for place in (1, 2)} <= {ODD, "two", "three"}


def test_predictions_do_not_depend_on_how_many_are_read_at_once(
    run: Run, pictures: Path, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = command("predict", run.folder, pictures, "--device", "cpu")
    monkeypatch.setattr(predict, "AT_ONCE", 2)
    parts = command("predict", run.folder, pictures, "--device", "cpu")
    assert whole.out.count(f"{pictures}/") == 3
    assert parts == whole
    one = command("predict", run.folder, pictures / "a.png", "--top", 1, "--device", "cpu")
    assert "(next:" not in one.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [(("--top", 0), "--top 0: at least 1"), (("--json", "--csv"), "give one of them")],
)
def test_flags_that_make_no_sense(
    flags: tuple[object, ...], words: str, run: Run, pictures: Path, command: Callable
) -> None:
    outcome = command("predict", run.folder, pictures, *flags)
    assert outcome.code == 1
    assert words in outcome.err
    assert outcome.out == ""


def test_folder_without_images(run: Run, tmp_path: Path, command: Callable) -> None:
    (tmp_path / "empty").mkdir()
    outcome = command("predict", run.folder, tmp_path / "empty", "--device", "cpu")
    assert outcome.code == 1
    assert (
        outcome.err == f"error: {tmp_path / 'empty'} is a folder without images: give image files, or folders of them\n"
    )


def test_evaluation_for_programs(tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quatcaps.report.figures.evaluation_figure", lambda *arguments: None)
    pixels, labels = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 1), dtype=np.uint8), np.arange(24) % 2
    np.savez(tmp_path / "own.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    dataset = str(tmp_path / "own.npz")
    images = quatcaps.data.load(dataset, "test", folder=tmp_path, size=32)
    config = TrainingConfig(model="cnn-small", dataset=dataset, image_size=32, crop=28, device="cpu", epochs=1)
    run = create_run(tmp_path / "run", config, images)
    network = run.network()
    checkpoint.save(run.checkpoints, network, torch.optim.Adam(network.parameters()), Position(epoch=1))
    outcome = command("evaluate", run.folder, "--json", "--data-dir", tmp_path, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["network"] == str(run.folder)
    assert (found["split"], found["checkpoint"]) == ("test", None)
    assert found["evaluations"] == json.loads((run.folder / "evaluation-test.json").read_text())
    assert "% error" in outcome.err, "people read the same beside it"
    refused = command("evaluate", run.folder, "--json", "--checkpoint", "best")
    assert refused.code == 1
    assert refused.out == ""
    assert "keeps no best checkpoint" in refused.err

"""A run knows its images: other ones do not pass for them."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from quatcaps import data
from quatcaps.data.imageset import ImageSet, concatenate
from quatcaps.data.splits import Experiment, hold_out
from quatcaps.errors import QuatcapsError
from quatcaps.models import Network, build
from quatcaps.paper.record import read_record, record_path, write_record
from quatcaps.paper.recording import make_record
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import check_images
from quatcaps.training.run import Run, create_run, open_run
from quatcaps.training.start import train_run
from quatcaps.training.trained import Trained
from quatcaps.weights.export import export_run

CONFIG = TrainingConfig(model="cnn-small", image_size=32, crop=28, epochs=1, batch=16, device="cpu", evaluate_every=0)
OWN, OTHER = "a" * 64, "b" * 64
CPU = torch.device("cpu")


@pytest.fixture
def images(noise_images: ImageSet) -> ImageSet:
    return replace(noise_images, source="made up", digest=OWN)


@pytest.fixture
def run(images: ImageSet, tmp_path: Path) -> Run:
    return create_run(tmp_path / "run", CONFIG, images, {"test": images})


def train(run: Run, training: ImageSet, test: ImageSet | None = None) -> str:
    printed = io.StringIO()
    train_run(run, Experiment(training, {"test": test or training}), Console(file=printed, width=300))
    return printed.getvalue()


def test_parts_of_a_dataset_keep_its_digest(images: ImageSet) -> None:
    parts = [images.select(images.labels == 1), images.part(3, 9, "part"), *hold_out(images, 0.3, 0)]
    assert {part.digest for part in parts} == {OWN}
    assert concatenate([images, images], "both").digest == OWN
    assert concatenate([images, replace(images, digest=OTHER)], "both").digest not in (OWN, OTHER, "")
    assert concatenate([images, replace(images, digest="")], "both").digest == ""


def test_run_is_resumed_on_its_own_images_alone(run: Run, images: ImageSet) -> None:
    moved = replace(images, source="a copy elsewhere")
    other = replace(images, source="others", digest=OTHER)
    again = open_run(run.folder)
    assert again == run
    assert again.digests == {"training": OWN, "test": OWN}
    words = (
        r"made with other training images \(made up, digest aaaaaaaaaaaa\) than are here \(noise: others, digest bbbb"
    )
    with pytest.raises(QuatcapsError, match=words) as caught:
        train(again, other)
    assert str(caught.value).endswith(": put its own images back, or begin a new run")
    with pytest.raises(QuatcapsError, match="made with other test images"):
        train(again, images, other)
    assert not (run.folder / "log.jsonl").exists()
    assert "trained 1 epochs" in train(again, moved)


def test_nothing_is_compared_where_a_digest_is_unknown(run: Run, images: ImageSet) -> None:
    """Runs of earlier versions say where their images came from, in words."""
    description = json.loads((run.folder / "run.json").read_text())
    del description["digests"]
    (run.folder / "run.json").write_text(json.dumps(description))
    old = open_run(run.folder)
    assert old.digests == {}
    assert "does not say which images" not in train(old, images)
    assert "begun with, but that they were made up; here are others" in train(old, replace(images, source="others"))
    old.check_images(Experiment(replace(images, digest=OTHER), {}))
    run.check_images(Experiment(replace(images, digest=""), {}))


@pytest.mark.parametrize(
    ("split", "viewpoints", "protocol"),
    [("train", "all", "strict"), ("validation", "all", "strict"), ("test", "azimuth", "pooled")],
)
def test_training_error_is_of_training_images(split: str, viewpoints: str, protocol: str, images: ImageSet) -> None:
    config = CONFIG.changed({"viewpoints": viewpoints, "protocol": protocol, "validation": 0.3})
    network = open_network(images)
    trained = Trained("x", network, config, 2, images.classes, images.size, digests={"training": OWN, "test": OWN})
    assert check_images(trained, images, split) is None
    with pytest.raises(QuatcapsError, match="x was made with other training images"):
        check_images(trained, replace(images, digest=OTHER), split)


def test_other_test_images_are_announced(images: ImageSet) -> None:
    known = {"training": OWN, "test": OWN}
    trained = Trained("x", open_network(images), CONFIG, 2, images.classes, images.size, digests=known)
    assert check_images(trained, images, "test") is None
    notice = check_images(trained, replace(images, digest=OTHER), "test")
    assert notice is not None
    assert "x was made with other test images" in notice
    assert check_images(replace(trained, digests={}), replace(images, digest=OTHER), "test") is None


def open_network(images: ImageSet) -> Network:
    return build("cnn-small", channels=2, classes=len(images.classes), seed=0)


def test_records_and_cards_keep_the_digests(run: Run, images: ImageSet, tmp_path: Path) -> None:
    train(run, images)
    experiment = Experiment(images, {"test": images})
    record = make_record("noise/cnn", "control", run, experiment, "cpu")
    path = record_path(tmp_path, record.key, record.seed)
    write_record(path, record)
    assert read_record(path) == record
    assert record.digests == {"training": OWN, "test": OWN}
    value = json.loads(path.read_text())
    del value["digests"]
    path.write_text(json.dumps(value))
    assert read_record(path).digests == {}
    card = export_run(run, "noise", tmp_path, lambda split: images, CPU)
    assert card.digests == record.digests
    other = replace(images, digest=OTHER)
    with pytest.raises(QuatcapsError, match="made with other training images"):
        make_record("noise/cnn", "control", run, Experiment(other, {"test": other}), "cpu")
    with pytest.raises(QuatcapsError, match="made with other training images"):
        export_run(run, "others", tmp_path, lambda split: other, CPU)
    assert not (tmp_path / "others.json").exists()


def test_replaced_file_on_the_command_line(tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way, with digests of the pixels."""
    load = data.load

    def with_digest(*arguments: object, **options: object) -> ImageSet:
        images = load(*arguments, **options)  # type: ignore[arg-type]
        return replace(images, digest=hashlib.sha256(images.images.numpy().tobytes()).hexdigest())

    monkeypatch.setattr(data, "load", with_digest)
    source, run = tmp_path / "own.npz", tmp_path / "run"

    def write(seed: int) -> None:
        chance = np.random.default_rng(seed)
        pixels = chance.integers(0, 256, (40, 32, 32, 1), dtype=np.uint8)
        labels = np.arange(40) % 2
        np.savez(source, x_train=pixels, y_train=labels, x_test=pixels[::-1], y_test=labels)

    write(0)
    settings = [
        "--dataset",
        source,
        "--model",
        "cnn-small",
        "--image-size",
        0,
        "--crop",
        28,
        "--batch",
        8,
        "--epochs",
        1,
    ]
    trained = command("train", *settings, "--device", "cpu", "--output", run, "--data-dir", tmp_path)
    assert trained.code == 0, trained.err
    write(1)
    for arguments in (["train", "--resume", run], ["evaluate", run, "--split", "train", "--device", "cpu"]):
        refused = command(*arguments, "--data-dir", tmp_path)
        assert refused.code == 1
        assert refused.err.startswith(f"error: {run} was made with other training images")
        assert refused.err.count("\n") == 1
    measured = command("evaluate", run, "--device", "cpu", "--data-dir", tmp_path)
    assert measured.code == 0
    assert "was made with other test images" in measured.out
    write(0)
    assert command("train", "--resume", run, "--data-dir", tmp_path).code == 0

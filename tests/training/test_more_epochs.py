"""A run that is given more epochs: what it did stays, and the rest is that of a longer run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import quatcaps
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.training.checkpoint import checkpoints
from quatcaps.training.config import TrainingConfig
from quatcaps.training.log import read_log
from quatcaps.training.loop import Trainer
from quatcaps.training.run import Stretch, create_run, open_run, record_epochs, with_epochs
from quatcaps.training.schedule import learning_rate

CONFIG = TrainingConfig(
    model="cnn-small",
    image_size=32,
    crop=28,
    epochs=2,
    batch=20,
    log_every=1,
    evaluate_every=0,
    checkpoint_every=100,
    schedule="cosine",
    device="cpu",
)


class CutError(Exception):
    pass


class CutAt:
    def __init__(self, step: int = 0) -> None:
        self.last = step

    def step(self, step: int, *state: object) -> None:
        if step == self.last:
            raise CutError

    def epoch(self, *state: object) -> None: ...


def go_on(folder: Path, images: ImageSet, cut: int = 0) -> None:
    Trainer(open_run(folder), Experiment(images, {"test": images})).train(CutAt(cut))


def more(folder: Path, epochs: int) -> None:
    record_epochs(with_epochs(open_run(folder), epochs))


@pytest.mark.parametrize("schedule", ["cosine", "staircase"])
def test_the_rate_is_that_of_the_epochs_that_the_run_had(schedule: str, noise_images: ImageSet, tmp_path: Path) -> None:
    config = CONFIG.changed({"schedule": schedule})
    create_run(tmp_path, config, noise_images)
    go_on(tmp_path, noise_images)
    more(tmp_path, 4)
    go_on(tmp_path, noise_images)
    rates = [record["learning_rate"] for record in read_log(tmp_path / "log.jsonl") if record["kind"] == "step"]
    longer = config.changed({"epochs": 4})
    assert rates == [learning_rate(config, step, 6) for step in range(6)] + [
        learning_rate(longer, step, 12) for step in range(6, 12)
    ]
    epochs = [record["epoch"] for record in read_log(tmp_path / "log.jsonl") if record["kind"] == "epoch"]
    assert epochs == [0, 1, 2, 3]
    run = open_run(tmp_path)
    assert (run.config, run.stretches) == (longer, (Stretch(6, 2),))


def test_it_comes_to_the_same_wherever_it_is_broken(noise_images: ImageSet, tmp_path: Path) -> None:
    weights = []
    for name, cut in (("whole", 0), ("broken", 8)):
        folder = tmp_path / name
        create_run(folder, CONFIG.changed({"checkpoint_every": 7}), noise_images)
        go_on(folder, noise_images)
        more(folder, 4)
        if cut:
            with pytest.raises(CutError):
                go_on(folder, noise_images, cut)
        go_on(folder, noise_images)
        weights.append((checkpoints(folder / "checkpoints")[-1] / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_a_run_that_has_not_begun_has_nothing_to_remember(noise_images: ImageSet, tmp_path: Path) -> None:
    create_run(tmp_path, CONFIG, noise_images)
    more(tmp_path, 3)
    assert "stretches" not in json.loads((tmp_path / "run.json").read_text())
    assert open_run(tmp_path).config.epochs == 3
    with pytest.raises(
        QuatcapsError, match=r"2 epochs for .* configured for 3 and has done 0: .* more epochs, not fewer"
    ):
        with_epochs(open_run(tmp_path), 2)
    assert with_epochs(open_run(tmp_path), 3) == open_run(tmp_path)


@pytest.mark.parametrize("stretches", ["[3]", '[{"step": 1}]', '[{"step": "1", "epochs": 2}]', "7"])
def test_a_damaged_description_is_named(stretches: str, noise_images: ImageSet, tmp_path: Path) -> None:
    create_run(tmp_path, CONFIG, noise_images)
    text = (tmp_path / "run.json").read_text()
    (tmp_path / "run.json").write_text(text.replace('"channels"', f'"stretches": {stretches}, "channels"'))
    with pytest.raises(QuatcapsError, match=r"run\.json is not a run's description"):
        open_run(tmp_path)


def test_from_python(noise_images: ImageSet, tmp_path: Path) -> None:
    data = (noise_images, noise_images)
    settings = {name: getattr(CONFIG, name) for name in ("image_size", "crop", "batch", "device")}
    quatcaps.train("cnn-small", data, {**settings, "epochs": 1}, output=tmp_path, quiet=True)
    run = quatcaps.train("cnn-small", data, {**settings, "epochs": 2}, output=tmp_path, resume=True, quiet=True)
    assert run.config.epochs == 2
    assert open_run(tmp_path).stretches == (Stretch(3, 1),)

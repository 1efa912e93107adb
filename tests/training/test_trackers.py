"""Weights & Biases, by a module that stands in for it: no network."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.training.config import TrainingConfig
from quatcaps.training.log import read_log
from quatcaps.training.loop import Trainer
from quatcaps.training.run import create_run, open_run
from quatcaps.training.start import checked

CONFIG = TrainingConfig(
    model="cnn-small", image_size=32, crop=28, epochs=1, batch=20, log_every=1, device="cpu", wandb="toys"
)


class Silent:
    def step(self, *state: object) -> None: ...

    def epoch(self, *state: object) -> None: ...


class Stub:
    """What of wandb is used."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def init(self, **settings: Any) -> SimpleNamespace:
        self.begun.append(settings)
        return SimpleNamespace(log=self.log, finish=self.finish)

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.logged.append((step, numbers))

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    stub = Stub()
    monkeypatch.setitem(sys.modules, "wandb", stub)
    return stub


def test_everything_in_the_log_is_logged(stub: Stub, noise_images: ImageSet, tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", CONFIG, noise_images)
    for _ in range(2):  # again as if resumed: nothing is left to do
        Trainer(run, Experiment(noise_images, {"test": noise_images})).train(Silent())
    first, second = stub.begun
    assert (first["project"], first["name"], first["dir"]) == ("toys", "run", str(tmp_path / "run"))
    assert first["config"] == CONFIG.whole()
    assert "mode" not in first, "WANDB_MODE decides"
    assert first["id"] == second["id"], "a run that is resumed goes on with its own"
    assert first["resume"] == "allow"
    records = read_log(tmp_path / "run" / "log.jsonl")
    assert [step for step, _ in stub.logged] == [record["step"] for record in records]
    for (_, numbers), record in zip(stub.logged, records, strict=True):
        kind = record["kind"]
        values = {name: value for name, value in record.items() if name not in ("kind", "step") and value is not None}
        assert numbers == {f"{kind}/{name}": value for name, value in values.items()}
    assert stub.finished == 2
    assert open_run(tmp_path / "run").config.wandb == "toys"


def test_what_wandb_refuses_is_one_line(
    stub: Stub, noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**settings: object) -> None:
        raise ConnectionError("no account")

    monkeypatch.setattr(stub, "init", refuse)
    run = create_run(tmp_path, CONFIG, noise_images)
    with pytest.raises(QuatcapsError, match="cannot log to the project 'toys': no account; WANDB_MODE=offline"):
        Trainer(run, Experiment(noise_images, {"test": noise_images})).train(Silent())


def test_without_wandb_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(QuatcapsError, match=r"pip install 'quatcaps\[wandb\]'"):
        checked(CONFIG)

"""The running average of weights: its formula, and that it is what a run measures and keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.paper.recording import make_record
from quatcaps.training import checkpoint
from quatcaps.training.averaging import Average
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import errors_on
from quatcaps.training.log import read_log
from quatcaps.training.loop import Trainer
from quatcaps.training.measure import evaluate
from quatcaps.training.predictions import activations_of
from quatcaps.training.run import create_run
from quatcaps.training.trained import trained_run

CONFIG = TrainingConfig(
    model="qcn-small", image_size=32, crop=28, epochs=2, batch=20, averaging=0.9, learning_rate=0.03, device="cpu"
)


class Silent:
    def step(self, *state: object) -> None: ...

    def epoch(self, *state: object) -> None: ...


def test_formula() -> None:
    network, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    average = Average(network, other, 0.8)
    expected: torch.Tensor | None = None
    for step in range(60):
        with torch.no_grad():
            network.weight.normal_()
            network.running_mean.fill_(step)
            network.num_batches_tracked.fill_(step)
        average.follow(step)
        average.update()
        decay = min(0.8, step / (step + 10))
        now = network.weight.detach().clone()
        expected = now if expected is None else decay * expected + (1 - decay) * now
    torch.testing.assert_close(other.weight, expected)
    assert 50 < other.running_mean[0] < 59
    assert other.num_batches_tracked == 59
    assert not other.training


def test_the_average_is_measured_and_kept(noise_images: ImageSet, tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", CONFIG, noise_images)
    trainer = Trainer(run, Experiment(noise_images, {"test": noise_images}))
    trainer.train(Silent())
    kept = run.trained_network()
    last = checkpoint.checkpoints(run.checkpoints)[-1]
    weights = run.network()
    checkpoint.load_weights(last, weights)
    name = "primary.pose_head.0.weight"
    assert not torch.equal(kept.state_dict()[name], weights.state_dict()[name])
    found = activations_of(kept, noise_images, CONFIG, torch.device("cpu"))
    assert torch.equal(found, activations_of(trainer.kept, noise_images, CONFIG, torch.device("cpu")))
    logged = [record for record in read_log(run.folder / "log.jsonl") if record["kind"] == "epoch"][-1]
    assert logged["test_error"] == evaluate(noise_images, found).total.percent / 100


def test_training_is_the_same_with_and_without(noise_images: ImageSet, tmp_path: Path) -> None:
    written = []
    for name, averaging in (("with", 0.9), ("without", 0.0)):
        run = create_run(tmp_path / name, dataclasses.replace(CONFIG, averaging=averaging, epochs=1), noise_images)
        Trainer(run, Experiment(noise_images, {"test": noise_images})).train(Silent())
        last = checkpoint.checkpoints(run.checkpoints)[-1]
        written.append((last / "weights.safetensors").read_bytes())
        assert (last / "average.safetensors").exists() == bool(averaging)
    assert written[0] == written[1]


def test_an_average_beside_the_weights_changes_nothing_of_the_run(noise_images: ImageSet, tmp_path: Path) -> None:
    """Weights, optimiser, best epoch and log are those of a run without; the average is that of `averaging`."""
    experiment = Experiment(noise_images, {"test": noise_images}, noise_images)
    runs = {}
    for name, averages in (("beside", (0.0, 0.9)), ("kept", (0.9, 0.0)), ("none", (0.0, 0.0))):
        averaging, beside = averages
        changes = {"averaging": averaging, "averaging_beside": beside, "validation": 0.2, "keep_best": True}
        runs[name] = create_run(tmp_path / name, CONFIG.changed(changes), noise_images)
        Trainer(runs[name], experiment).train(Silent())

    def file(name: str, place: str) -> bytes:
        return (checkpoint.checkpoints(runs[name].checkpoints)[-1] / place).read_bytes()

    for place in ("weights.safetensors", "training.safetensors"):
        assert file("beside", place) == file("none", place)
    assert file("beside", "average.safetensors") == file("kept", "average.safetensors")
    logs = [
        [{**record, "seconds": 0} for record in read_log(runs[name].folder / "log.jsonl")]
        for name in ("beside", "none")
    ]
    assert logs[0] == logs[1]
    for which in ("last", "best"):
        beside, none = (runs[name].trained_network(which).state_dict() for name in ("beside", "none"))
        assert all(torch.equal(beside[name], none[name]) for name in none)
    average, kept = runs["beside"].trained_network("average").state_dict(), runs["kept"].trained_network("last")
    assert all(torch.equal(average[name], value) for name, value in kept.state_dict().items())


def test_an_average_beside_the_weights_is_used_where_it_is_asked_for(noise_images: ImageSet, tmp_path: Path) -> None:
    config = CONFIG.changed({"averaging": 0.0, "averaging_beside": 0.9})
    experiment = Experiment(noise_images, {"test": noise_images})
    run = create_run(tmp_path / "run", config, noise_images)
    Trainer(run, experiment).train(Silent())
    used = {which: trained_run(run, which) for which in (None, "last", "average")}
    assert [each.checkpoint for each in used.values()] == ["last", "last", "average"]
    assert used["average"].checkpoint_words == "the average of the last checkpoint's weights"
    errors = {which: errors_on(trained, experiment.tests, torch.device("cpu")) for which, trained in used.items()}
    record = make_record("key", "recipe", run, experiment, "cpu")
    assert (record.final, record.averaged) == (errors["last"], errors["average"])
    assert errors["average"] != errors["last"]
    with pytest.raises(QuatcapsError, match="keeps no best checkpoint"):
        trained_run(run, "best")


def test_a_run_without_an_average_says_how_to_have_one(noise_images: ImageSet, tmp_path: Path) -> None:
    config = CONFIG.changed({"averaging": 0.0, "epochs": 1})
    run = create_run(tmp_path / "run", config, noise_images)
    experiment = Experiment(noise_images, {"test": noise_images})
    Trainer(run, experiment).train(Silent())
    with pytest.raises(QuatcapsError, match=r"has no average of its weights: .*--averaging-beside 0\.998"):
        run.trained_network("average")
    assert make_record("key", "recipe", run, experiment, "cpu").averaged == {}

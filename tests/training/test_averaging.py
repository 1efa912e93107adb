"""The running average of weights: its formula, and that it is what a run measures and keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import nn

from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.training import checkpoint
from quatcaps.training.averaging import Average
from quatcaps.training.config import TrainingConfig
from quatcaps.training.log import read_log
from quatcaps.training.loop import Trainer
from quatcaps.training.measure import evaluate
from quatcaps.training.predictions import activations_of
from quatcaps.training.run import create_run

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

"""Statistics of batch normalisation, measured anew: those of the batches, and nothing else changes."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from quatcaps.bench.machine import usual_name
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.layers.residual import ResidualTrunk
from quatcaps.models import build
from quatcaps.paper.recording import make_record
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import errors_on, predicted
from quatcaps.training.loop import Trainer
from quatcaps.training.measure import Rate
from quatcaps.training.run import Run, create_run, open_run, versions
from quatcaps.training.statistics import is_normalised, measure_statistics, renormalised
from quatcaps.training.trained import trained_run

CPU = torch.device("cpu")
CONFIG = TrainingConfig(model="qcn-small", image_size=32, crop=28, epochs=2, batch=20, learning_rate=1e-3, device="cpu")


class Silent:
    def step(self, *state: object) -> None: ...

    def epoch(self, *state: object) -> None: ...


@pytest.fixture(scope="module")
def run(noise_images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = create_run(tmp_path_factory.mktemp("run"), CONFIG, noise_images)
    Trainer(made, Experiment(noise_images, {"test": noise_images})).train(Silent())
    return made


def test_they_are_the_means_over_the_batches() -> None:
    network = nn.Sequential(nn.Conv2d(1, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5)).train()
    network[1].eval()
    before = copy.deepcopy(network)
    batches = torch.randn(4, 5, 1, 6, 6)
    measure_statistics(network, batches)
    with torch.no_grad():
        seen = [network[0](batch) for batch in batches]
    wanted = [(each.mean((0, 2, 3)), each.var((0, 2, 3))) for each in seen]
    mean, variance = (torch.stack(values).mean(0) for values in zip(*wanted, strict=True))
    torch.testing.assert_close(network[1].running_mean, mean)
    torch.testing.assert_close(network[1].running_var, variance)
    assert network[1].momentum == before[1].momentum
    assert [module.training for module in network.modules()] == [module.training for module in before.modules()]
    for one, other in zip(network.parameters(), before.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_network_with_spoilt_statistics_is_mended(run: Run, noise_images: ImageSet) -> None:
    trained = trained_run(run)
    assert is_normalised(trained.network)
    wanted = renormalised(trained, noise_images, CPU, 3).network.state_dict()
    for norm in trained.network.modules():
        if isinstance(norm, _BatchNorm):
            norm.running_mean.add_(5)
    tracked = {int(values) for name, values in wanted.items() if name.endswith("num_batches_tracked")}
    assert tracked == {3}, "all of them, those in residual blocks too"
    spoilt = copy.deepcopy(trained.network.state_dict())
    again = renormalised(trained, noise_images, CPU, 3)
    for name, values in again.network.state_dict().items():
        assert torch.equal(values, wanted[name]), "from the weights and the batches alone, and the same every time"
    for name, values in trained.network.state_dict().items():
        assert torch.equal(values, spoilt[name]), "a copy"
    assert {getattr(module, "backend", "auto") for module in again.network.modules()} == {"auto"}
    (epoch,) = {
        int(values)
        for name, values in renormalised(trained, noise_images, CPU).network.state_dict().items()
        if name.endswith("num_batches_tracked")
    }
    assert epoch == 3, "60 images are an epoch of three batches"
    other = renormalised(trained, noise_images, CPU, 2).network.state_dict()
    assert any(not torch.equal(values, wanted[name]) for name, values in other.items())


def test_blocks_are_left_to_the_modules_that_keep_statistics() -> None:
    network, seen = build("qcn-small", channels=2, classes=5), []
    trunks = [module for module in network.modules() if isinstance(module, ResidualTrunk)]
    for trunk in trunks:
        trunk.register_forward_pre_hook(lambda trunk, images: seen.append(trunk.backend))
    measure_statistics(network, torch.rand(2, 3, 2, 32, 32))
    assert seen == ["reference"] * (2 * len(trunks))
    assert trunks
    assert {trunk.backend for trunk in trunks} == {"auto"}


def test_a_record_has_them_where_asked_for(run: Run, noise_images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment(noise_images, {"test": noise_images})
    assert make_record("key", "recipe", run, experiment, "cpu").renormalised == {}
    found = make_record("key", "recipe", run, experiment, "cpu", renormalised=True)
    assert found.renormalised == errors_on(renormalised(trained_run(run), noise_images, CPU), experiment.tests, CPU)
    monkeypatch.setattr("quatcaps.paper.recording.is_normalised", lambda network: False)
    assert make_record("key", "recipe", run, experiment, "cpu", renormalised=True).renormalised == {}


def test_a_record_names_the_machine_that_trained(run: Run, noise_images: ImageSet, tmp_path: Path) -> None:
    """Not the one that measured in the end."""
    experiment = Experiment(noise_images, {"test": noise_images})
    here = make_record("key", "recipe", run, experiment, "cpu")
    assert (here.machine, here.versions) == (usual_name(CPU), versions(CPU))
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    description = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    trained = {**description["versions"], "gpu": "Some GPU", "torch": "2.11.0+cu130"}
    changed = {**description, "config": {**description["config"], "device": "cuda"}, "versions": trained}
    (folder / "run.json").write_text(json.dumps(changed), encoding="utf-8")
    moved = make_record("key", "recipe", open_run(folder), experiment, "cpu")
    assert (moved.machine, moved.versions) == ("Some GPU", trained)


def test_a_record_says_which_images_were_misclassified(run: Run, noise_images: ImageSet, tmp_path: Path) -> None:
    """Where they show no toys; and nothing that a machine which rounds otherwise counts otherwise."""
    plain = replace(noise_images, info={name: noise_images.info[name] for name in ("azimuth",)})
    experiments = [Experiment(images, {"test": images}) for images in (noise_images, plain)]
    toys, images = (make_record("key", "recipe", run, each, "cpu") for each in experiments)
    assert (toys.missed, images.by_toy) == ({}, {})
    assert toys.by_toy
    named = predicted(trained_run(run), plain, CPU).activations.argmax(1)
    assert images.missed == {"test": tuple(n for n in range(60) if named[n] != plain.labels[n])}
    assert 0 < len(images.missed["test"]) == images.final["test"].errors < 60
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    log = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    last = json.loads(log[-1])
    last["test_error"] += 1 / 60
    (folder / "log.jsonl").write_text("\n".join([*log[:-1], json.dumps(last)]) + "\n", encoding="utf-8")
    toys, images = (make_record("key", "recipe", open_run(folder), each, "cpu") for each in experiments)
    assert toys.by_toy == images.missed == {}
    assert toys.final == images.final == {"test": Rate(round(60 * last["test_error"]), 60)}


def test_matrix_capsules_without_normalisation_have_none() -> None:
    assert not is_normalised(build("em-published", channels=2, classes=5))
    assert is_normalised(build("qcn-small", channels=2, classes=5))

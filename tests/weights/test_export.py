"""From a run to a file and its card: what they say, and which runs are refused."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from quatcaps import data
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.paper.recipes import RECIPES, paper
from quatcaps.routing import VB
from quatcaps.training.config import TrainingConfig
from quatcaps.training.predictions import activations_of
from quatcaps.training.run import Run
from quatcaps.training.start import checked
from quatcaps.weights import export
from quatcaps.weights.cards import read_card
from quatcaps.weights.export import command_of, export_run

CPU = torch.device("cpu")


def test_card_says_what_the_run_is(exported: Path, toys_run: Run, toys_folder: Path) -> None:
    source = exported / "qcn-toys.safetensors"
    card = read_card(exported / "qcn-toys.json")
    description = json.loads((toys_run.folder / "run.json").read_text())
    assert card.config == toys_run.config
    assert card.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert card.bytes == source.stat().st_size
    assert card.provenance == description["data"]
    assert card.versions == description["versions"]
    assert (card.seconds, card.parameters, card.size) == (12.3, 29_682, (48, 48))
    assert card.images == {"training": 900, "test": 900}
    assert card.chosen == "after the last of 3 epochs, seed 5; the only one"
    images = data.load("toys-mini", "test", folder=toys_folder)
    named = activations_of(toys_run.trained_network(), images, toys_run.config, CPU).argmax(1)
    assert card.error["test"].errors == int((named != images.labels).sum())
    assert card.measured_on == "cpu"


def test_file_has_parameters_and_buffers(exported: Path, toys_run: Run) -> None:
    tensors, wanted = load_file(exported / "qcn-toys.safetensors"), toys_run.trained_network().state_dict()
    assert tensors.keys() == wanted.keys()
    assert {name for name, tensor in tensors.items() if tensor.dtype != torch.float32} == {
        name for name in wanted if name.endswith("num_batches_tracked")
    }
    assert all(torch.equal(tensors[name], wanted[name]) for name in wanted)


def test_same_run_gives_the_same_file(noise_run: Callable[..., Run], noise_images: ImageSet, tmp_path: Path) -> None:
    run = noise_run()
    cards = [export_run(run, name, tmp_path / "out", lambda split: noise_images, CPU) for name in ("a", "b")]
    assert cards[0].sha256 == cards[1].sha256


def test_viewpoints_have_two_errors(noise_run: Callable[..., Run], noise_images: ImageSet, tmp_path: Path) -> None:
    run = noise_run(viewpoints="azimuth", validation=0.3)
    card = export_run(run, "a", tmp_path / "out", lambda split: noise_images, CPU)
    assert card.error.keys() == {"test", "novel"}
    assert card.images.keys() == {"training", "validation", "test", "novel"}
    assert card.images["test"] + card.images["novel"] == len(noise_images)
    assert read_card(tmp_path / "out" / "a.json") == card


def test_unfinished_run(noise_run: Callable[..., Run], noise_images: ImageSet, tmp_path: Path) -> None:
    run = noise_run(epoch=2)
    with pytest.raises(QuatcapsError, match="is trained for 2 of its 3 epochs: finish it with quatcaps train --resume"):
        export_run(run, "a", tmp_path / "out", lambda split: noise_images, CPU)
    assert not (tmp_path / "out").exists()


def test_run_without_test_images(noise_run: Callable[..., Run], tmp_path: Path) -> None:
    run = noise_run(validation=0.3, test=False)
    with pytest.raises(QuatcapsError, match="was trained with --no-test: a card has an error on test images"):
        export_run(run, "a", tmp_path / "out", lambda split: pytest.fail("measured"), CPU)
    assert not (tmp_path / "out").exists()


def test_large_network(noise_run: Callable[..., Run], tmp_path: Path) -> None:
    run = noise_run(model_settings={"primary": 1000})
    with pytest.raises(QuatcapsError, match=r"take .* bytes: files with a card stay below 1,000,000"):
        export_run(run, "a", tmp_path / "out", lambda split: pytest.fail("measured"), CPU)
    assert not (tmp_path / "out").exists()


def test_the_papers_network_fits() -> None:
    from quatcaps.models import build

    tensors = export.plain_tensors(build("qcn", channels=3, classes=10, seed=0))
    assert 700_000 < sum(tensor.nbytes for tensor in tensors.values()) < 900_000


@pytest.mark.parametrize("name", ["", "Q", "../a", "a/b", "-a", "a" * 65, "a b"])
def test_bad_name(name: str, noise_run: Callable[..., Run], tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="give small letters"):
        export_run(noise_run(), name, tmp_path / "out", lambda split: pytest.fail("measured"), CPU)


def test_name_that_is_taken(noise_run: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.json").write_text("precious")
    with pytest.raises(QuatcapsError, match=r"a\.json exists: remove .* or give another --name"):
        export_run(noise_run(), "a", tmp_path / "out", lambda split: pytest.fail("measured"), CPU)
    assert [path.read_text() for path in (tmp_path / "out").iterdir()] == ["precious"]


def test_both_files_or_neither(
    noise_run: Callable[..., Run], noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "save_tensors", full)
    with pytest.raises(QuatcapsError, match="the disk is full"):
        export_run(noise_run(), "a", tmp_path / "out", lambda split: noise_images, CPU)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    "config",
    [
        *(recipe("cifar10") for recipe in RECIPES.values()),
        paper("smallnorb").changed(
            {
                "cuda_graph": False,
                "tensorboard": True,
                "standardise": "channel",
                "mean": [0.1, 0.2],
                "deviation": [0.5, 1e-3],
                "rotation": 15.0,
                "learning_rate": 1e-3,
                "seed": 4,
                "model_settings": {"capsules": [[8, 3, 2], [8, 3, 1]], "branched": False, "activation": "logistic"},
            }
        ),
        paper("mnist").changed(
            {"model_settings": {"routing": VB(prior_scale=2.0), "pose": "rotor", "primary": 8, "branched": False}}
        ),
        paper("mnist").changed(
            {"model_settings": {"routing": "vb", "routing.prior_mean": 1, "routing.activation": "mass"}}
        ),
        paper("mnist").changed({"model": "em", "model_settings": {"stem": None}, "standardise": "none", "mean": ()}),
    ],
)
def test_command_trains_the_same(config: TrainingConfig, command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr("quatcaps.training.start.start_run", lambda *arguments: started.append(arguments))
    config = checked(config)
    assert command(*shlex.split(command_of(config))[1:]).code == 0
    assert checked(started[0][0]) == config


def test_command_is_for_any_device() -> None:
    config = paper("mnist")
    assert command_of(config.changed({"device": "cuda:1", "seed": 4})) == command_of(config.changed({"seed": 4}))


def test_licence_names_the_dataset() -> None:
    assert "CIFAR-10" in export.licence_of("cifar10")
    assert export.licence_of("toys").startswith("MIT")
    assert export.licence_of("./mine").startswith("not stated")

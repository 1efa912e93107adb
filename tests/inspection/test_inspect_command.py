"""`quatcaps inspect`: tables, numbers and a picture; what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quatcaps import data
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.inspection import inspect
from quatcaps.training import checkpoint
from quatcaps.training.checkpoint import Position
from quatcaps.training.config import TrainingConfig
from quatcaps.training.run import create_run
from quatcaps.weights.zoo import trained

ROTOR = {"primary": 4, "pose_blocks": ((8, 2), (8, 2)), "activation_blocks": ((8, 4),), "capsules": ((4, 3, 2),)}
RESNET = {"widths": (8, 8), "blocks": 1, "poses": True}


def run_of(folder: Path, toys: Path, model: str, settings: dict[str, object], **config: object) -> Path:
    """A run whose network nobody trained."""
    chosen = TrainingConfig(dataset="toys-mini", model=model, model_settings=settings, epochs=1, device="cpu", **config)
    run = create_run(folder, chosen, data.load("toys-mini", "train", folder=toys))
    network = run.network()
    optimiser = torch.optim.Adam(network.parameters())
    checkpoint.save(run.checkpoints, network, optimiser, Position(step=1, epoch=1, seconds=1.0))
    return folder


def test_two_networks_side_by_side(command: Callable, toys_folder: Path, tmp_path: Path) -> None:
    rotor = run_of(tmp_path / "rotor", toys_folder, "qcn-rotor", ROTOR, pose_weight=1.0)
    resnet = run_of(tmp_path / "resnet[1]", toys_folder, "resnet-20", RESNET, pose_weight=1.0)
    outcome = command("inspect", rotor, "--beside", resnet, "--toys", 3, "--data-dir", toys_folder, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    for words in ("rotor", "resnet[1]", "residual of class poses", "° turn, other toys", "orientation error"):
        assert words in outcome.out
    found = json.loads((rotor / "poses.json").read_text())["networks"]
    assert [each["name"] for each in found] == [str(rotor), str(resnet)]
    capsules, features = found
    assert capsules["residual"]["poses"] < 1e-5
    assert features["residual"] is None
    assert list(capsules["within"]) == ["primary", "capsules 1", "classes"]
    assert list(features["within"]) == ["stage 1", "stage 2", "classes"]
    assert capsules["orientation"]["median_degrees"] == pytest.approx(capsules["chance_degrees"], abs=60)
    assert (rotor / "poses.png").read_bytes().startswith(b"\x89PNG")
    assert not list(resnet.glob("poses.*"))


def test_the_same_numbers_every_time(command: Callable, toys_folder: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", toys_folder, "qcn-small", {})
    written = []
    for number in range(2):
        place = tmp_path / str(number)
        outcome = command("inspect", run, "--toys", 2, "--output", place, "--data-dir", toys_folder, "--device", "cpu")
        assert outcome.code == 0, outcome.err
        written.append((place / "poses.json").read_bytes())
    assert written[0] == written[1]
    assert not (run / "poses.json").exists()
    assert "--beside RUN" in outcome.out


def test_what_cannot_be_compared(command: Callable, toys_folder: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", toys_folder, "qcn-small", {})
    outcome = command("inspect", run, "--beside", "qcn-smallnorb", "--data-dir", toys_folder)
    assert outcome.code == 1
    assert "qcn-smallnorb was trained on smallnorb" in outcome.err


def test_a_network_without_poses_or_known_layers(command: Callable, toys_folder: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", toys_folder, "cnn-small", {})
    outcome = command("inspect", run, "--toys", 2, "--data-dir", toys_folder, "--device", "cpu")
    assert outcome.code == 1
    assert "the classes of a SmallCNN have no poses" in outcome.err
    assert "resnet" in outcome.err
    assert not list(run.glob("poses.*"))


def test_data_without_viewpoints(noise_images: ImageSet) -> None:
    weights = trained("qcn-mnist")
    with pytest.raises(QuatcapsError, match=r"noise has no viewpoints of known toys: .* smallnorb"):
        inspect(weights, replace(noise_images, info={}), torch.device("cpu"))
    with pytest.raises(QuatcapsError, match="noise has 2 channels and 3 classes, the network of qcn-mnist 1 and 10"):
        inspect(weights, noise_images, torch.device("cpu"))

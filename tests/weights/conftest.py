"""Weights that nobody trained: a run made by hand from a random network, and a folder of what was exported from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from quatcaps import data
from quatcaps.data.imageset import ImageSet
from quatcaps.training import checkpoint
from quatcaps.training.checkpoint import Position
from quatcaps.training.config import TrainingConfig
from quatcaps.training.run import Run, create_run
from quatcaps.weights import zoo
from quatcaps.weights.export import export_run

NAME = "qcn-toys"
CONFIG = TrainingConfig(dataset="toys-mini", model="qcn-small", epochs=3, seed=5, device="cpu")


def made_by_hand(folder: Path, images: ImageSet, config: TrainingConfig, epoch: int = 3) -> Run:
    """A run's folder as `epoch` epochs of training leave it; all numbers of the network are random."""
    run = create_run(folder, config, images)
    network, generator = run.network(), torch.Generator().manual_seed(1)
    for name, buffer in network.named_buffers():
        if buffer.is_floating_point():
            buffer += torch.rand(buffer.shape, generator=generator)
        else:
            assert name.endswith("num_batches_tracked")
            buffer += 7
    optimiser = torch.optim.Adam(network.parameters())
    checkpoint.save(run.checkpoints, network, optimiser, Position(step=9, epoch=epoch, seconds=12.34))
    return run


@pytest.fixture(scope="session")
def toys_run(toys_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run on `toys-mini`."""
    images = data.load("toys-mini", "train", folder=toys_folder)
    return made_by_hand(tmp_path_factory.mktemp("runs") / "toys", images, CONFIG)


@pytest.fixture(scope="session")
def exported(toys_run: Run, toys_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what was exported from that run."""
    folder = tmp_path_factory.mktemp("weights")
    export_run(
        toys_run,
        NAME,
        folder,
        lambda split: data.load("toys-mini", split, folder=toys_folder),
        torch.device("cpu"),
        note="the only one",
    )
    return folder


@pytest.fixture
def published(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder which passes for the package's own."""
    folder = tmp_path / "published"
    shutil.copytree(exported, folder)
    monkeypatch.setattr(zoo, "PUBLISHED", folder)
    return folder


@pytest.fixture
def nothing_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder which passes for the package's own."""
    folder = tmp_path / "nothing"
    folder.mkdir()
    monkeypatch.setattr(zoo, "PUBLISHED", folder)
    return folder


@pytest.fixture
def noise_run(noise_images: ImageSet, tmp_path: Path) -> Callable[..., Run]:
    """Makes a run on random images; takes the epochs that are done and changes to its configuration."""

    def make(epoch: int = 3, **changes: object) -> Run:
        config = CONFIG.changed({"image_size": 32, "crop": 28, **changes})
        return made_by_hand(tmp_path / "run", noise_images, config, epoch)

    return make

"""Runs that begin with the weights of another network."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from quatcaps import data
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.models import build
from quatcaps.training.checkpoint import checkpoints, read_position
from quatcaps.training.config import TrainingConfig
from quatcaps.training.initial import HEADS, begin_with, check_initial, described
from quatcaps.training.run import create_run, open_run
from quatcaps.training.start import resume_run, start_run
from quatcaps.training.trained import Trained

pytestmark = pytest.mark.usefixtures("unchecked")
CONFIG = TrainingConfig(
    dataset="toys-mini",
    viewpoints="azimuth",
    model="qcn-small",
    epochs=1,
    seed=3,
    device="cpu",
    evaluate_every=0,
    validation=0.2,
    test=False,
)


def other(classes: tuple[str, ...], model: str = "qcn-small", channels: int = 2) -> Trained:
    """A network with weights of its own."""
    network = build(model, channels=channels, classes=len(classes), seed=9)
    return Trained("somebody", network, CONFIG.changed({"model": model}), channels, classes, (48, 48))


@pytest.fixture
def images(toys_folder: Path) -> ImageSet:
    return data.load("toys-mini", "train", folder=toys_folder)


@pytest.mark.parametrize("averaging", [0.0, 0.99])
def test_all_weights_are_taken_where_classes_are_the_same(images: ImageSet, tmp_path: Path, averaging: float) -> None:
    run = create_run(tmp_path / "run", CONFIG.changed({"averaging": averaging}), images)
    initial = other(images.classes)
    begin_with(run, initial)
    (saved,) = checkpoints(run.checkpoints)
    assert read_position(saved).step == 0
    for name, value in run.trained_network().state_dict().items():
        assert torch.equal(value, initial.network.state_dict()[name]), name


def test_other_classes_begin_anew(images: ImageSet, tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", CONFIG, images)
    initial = other(("cat", "dog", "owl"))
    begin_with(run, initial)
    own, given = run.network().state_dict(), initial.network.state_dict()
    for name, value in run.trained_network().state_dict().items():
        assert torch.equal(value, own[name] if name.startswith(HEADS) else given[name]), name
    renamed = other(("a", "b", "c", "d", "e"))
    assert check_initial(renamed, run.network(), images.classes), "as many classes that mean something else"


@pytest.mark.parametrize(
    ("model", "channels", "words"),
    [("cnn-small", 2, "is not in this network"), ("qcn-small", 3, r"has shape .* there, .* here")],
)
def test_what_does_not_fit_is_named(images: ImageSet, model: str, channels: int, words: str) -> None:
    network = build("qcn-small", channels=2, classes=5)
    with pytest.raises(QuatcapsError, match=rf"weights of somebody \({model}\) do not fit: .*{words}.*same model"):
        check_initial(other(images.classes, model, channels), network, images.classes)


def test_the_description_tells_the_weights_apart(images: ImageSet) -> None:
    one, same = other(images.classes), other(images.classes)
    assert described(one) == described(same)
    next(same.network.parameters()).data[0] += 1e-3
    assert described(one) != described(same)


def test_it_trains_on_from_them_and_resumes(toys_folder: Path, images: ImageSet, tmp_path: Path) -> None:
    console = Console(quiet=True)
    run = start_run(CONFIG, tmp_path / "run", toys_folder, console, other(images.classes))
    assert json.loads((run.folder / "run.json").read_text())["initial"].startswith("somebody, sha256")
    assert open_run(run.folder).initial == run.initial
    # As if it had been killed at the end of its first step: from the weights that it began with it comes to the same.
    again = create_run(tmp_path / "again", replace(run).config, images)
    begin_with(again, other(images.classes))
    resume_run(again.folder, toys_folder, console)
    wanted = run.trained_network().state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in again.trained_network().state_dict().items())
    scratch = start_run(CONFIG, tmp_path / "scratch", toys_folder, console)
    assert any(not torch.equal(value, wanted[name]) for name, value in scratch.trained_network().state_dict().items())


def test_killed_before_the_weights_were_written(toys_folder: Path, images: ImageSet, tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", CONFIG, images)
    description = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps({**description, "initial": "somebody, sha256 of the weights 1"}))
    with pytest.raises(QuatcapsError, match=r"stopped before the weights of somebody, .* begin again"):
        resume_run(run.folder, toys_folder, Console(quiet=True))


def test_command(command: Callable, toys_folder: Path, tmp_path: Path) -> None:
    given = ("--dataset", "toys-mini", "--epochs", 1, "--data-dir", toys_folder, "--device", "cpu", "--no-test")
    given = (*given, "--recipe", "small", "--validation", 0.2, "--evaluate-every", 0, "--viewpoints", "azimuth")
    outcome = command("train", *given, "--init-from", "qcn-mnist", "--output", tmp_path / "run")
    assert outcome.code == 1
    assert "the weights of qcn-mnist (qcn-deep) do not fit" in outcome.err
    assert not (tmp_path / "run").exists()
    first = command("train", *given, "--output", tmp_path / "first")
    assert first.code == 0, first.err
    second = command("train", *given, "--init-from", tmp_path / "first", "--output", tmp_path / "second")
    assert second.code == 0, second.err
    assert f"from the weights of {tmp_path / 'first'}" in second.out.replace("\n", "")
    assert "afresh" not in second.out
    assert open_run(tmp_path / "second").config.model == "qcn-small"
    refused = command("train", "--resume", tmp_path / "second", "--init-from", tmp_path / "first")
    assert refused.code == 1
    assert "--init-from cannot change a run that is resumed" in refused.err

"""`quatcaps train`: what it does with little said, with a file, and where a run goes."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import quatcaps
from quatcaps.paper.recipes import configured
from quatcaps.training import estimate
from quatcaps.training.config import TrainingConfig
from quatcaps.training.estimate import Estimate, images_to_measure
from quatcaps.training.folders import default_folder, make_numbered, numbered
from quatcaps.training.run import open_run


@pytest.fixture
def own_images(tmp_path: Path) -> Path:
    """24 images of two classes, as an .npz file."""
    pixels, labels = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 1), dtype=np.uint8), np.arange(24) % 2
    np.savez(tmp_path / "own.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    return tmp_path / "own.npz"


@pytest.fixture
def tiny(own_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """The flags of a run that is over at once, in an empty working directory."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    data = ("--dataset", own_images, "--data-dir", tmp_path / "data", "--image-size", 0, "--crop", 28)
    return (*data, "--model", "cnn-small", "--epochs", 1, "--batch", 8, "--device", "cpu")


@pytest.mark.parametrize(("device", "recipe"), [("cpu", "demo"), ("cuda", "paper")])
def test_bare_train_follows_the_device(
    device: str, recipe: str, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[TrainingConfig] = []
    monkeypatch.setattr("quatcaps.training.run.choose_device", lambda name: torch.device(device))
    monkeypatch.setattr("quatcaps.training.start.start_run", lambda config, *rest: begun.append(config))
    outcome = command("train", "--seed", 3)
    assert begun == [configured(recipe, {"seed": 3})]
    assert ("qcn-rotor-small on toys-one-lamp (--recipe demo)" in outcome.out) == (device == "cpu")
    assert ("--recipe paper" in outcome.out) == (device == "cpu")


@pytest.mark.parametrize("named", [("--recipe", "paper"), ("--dataset", "toys"), ("--model", "qcn")])
def test_what_is_named_is_the_papers_on_every_device(
    named: tuple[str, str], command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[TrainingConfig] = []
    monkeypatch.setattr("quatcaps.training.start.start_run", lambda config, *rest: begun.append(config))
    outcome = command("train", "--device", "cpu", *named)
    assert begun == [configured("paper", {"device": "cpu"})]
    assert outcome.out == ""


class Time:
    """A clock that goes on by a number of seconds each time it is read."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def perf_counter(self) -> float:
        self.now += self.seconds
        return self.now


@pytest.mark.parametrize(("seconds", "on_cpu", "long"), [(1.0, True, False), (40.0, True, True), (40.0, False, False)])
def test_the_first_steps_say_how_long_it_takes(
    seconds: float, on_cpu: bool, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "time", Time(seconds))
    file = io.StringIO()
    told = Estimate(Console(file=file), TrainingConfig(batch=10), 240, on_cpu=on_cpu)
    for step in range(11, 31):
        told.step(step, 205, 0, 1.0, 0.5)
    step_of_words = 14 if seconds < 10 else 12  # the first is not timed, and three are, or one that is slow
    wanted = seconds * (205 - step_of_words + 240 / 10 / 3)
    lines = file.getvalue().splitlines()
    assert lines[0].startswith(f"about {estimate.in_words(wanted)} to go")
    assert file.getvalue().count("to go,") == 1
    assert ("--recipe small" in file.getvalue()) == long


def test_a_few_seconds_are_not_worth_saying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "time", Time(1.0))
    file = io.StringIO()
    told = Estimate(Console(file=file), TrainingConfig(), 0, on_cpu=True)
    for step in range(1, 14):
        told.step(step, 13, 0, 1.0, 0.5)
    assert file.getvalue() == ""


def test_a_measurement_between_steps_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Time(1.0)
    monkeypatch.setattr(estimate, "time", clock)
    file = io.StringIO()
    told = Estimate(Console(file=file), TrainingConfig(), 0, on_cpu=True)
    for step in range(1, 4):
        told.step(step, 103, 0, 1.0, 0.5)
    clock.now += 1000
    told.epoch(0, 2, 1.0, 0.5, {}, {})
    told.step(4, 103, 1, 1.0, 0.5)
    assert file.getvalue().startswith("about 99 seconds to go")


def test_how_many_images_a_run_measures() -> None:
    config = TrainingConfig(epochs=10, evaluate_every=3, test_crops=2)
    assert images_to_measure(config, 0, 100, 1000) == (3 * 100 + 1000) * 4
    assert images_to_measure(config, 4, 100, 1000) == (2 * 100 + 1000) * 4
    assert images_to_measure(config.changed({"evaluate_every": 0}), 0, 100, 1000) == 4000


def test_a_batch_larger_than_the_dataset_becomes_the_dataset(tiny: tuple[object, ...], command: Callable) -> None:
    outcome = command("train", *tiny, "--batch", 5000, "--output", "run")
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("the batch of 5,000 is larger than the 24 training images: it becomes 24\n") == 1
    assert open_run(Path("run")).config.batch == 24


def test_runs_of_a_kind_are_numbered(tiny: tuple[object, ...], own_images: Path, command: Callable) -> None:
    for _ in range(2):
        assert command("train", *tiny).code == 0
    made = quatcaps.train(
        "cnn-small",
        str(own_images),
        {"epochs": 1, "batch": 8, "image_size": 0, "crop": 28, "device": "cpu"},
        data_dir=own_images.parent / "data",
        quiet=True,
    )
    names = sorted(path.name for path in Path("runs").iterdir())
    assert names == ["own-cnn-small-0", "own-cnn-small-0-2", "own-cnn-small-0-3"]
    assert made.folder == Path("runs/own-cnn-small-0-3")
    refused = command("train", *tiny, "--output", "runs/own-cnn-small-0")
    assert refused.code == 1
    assert "is not empty" in refused.err, "a folder that is named is taken at its word"


def test_a_place_where_no_run_can_go_is_named_before_any_image_is_read(
    tiny: tuple[object, ...], command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quatcaps.training.start.load_run_images", lambda *arguments: pytest.fail("read"))
    Path("runs").write_text("no folder")
    outcome = command("train", *tiny)
    assert outcome.code == 1
    assert f"a file stands where a folder is needed at {Path('runs').absolute()}" in outcome.err


def test_of_several_each_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    base, found = tmp_path / "runs" / "x", []
    threads = [threading.Thread(target=lambda: found.append(make_numbered(base))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 9))
    assert all(numbered(base, number).is_dir() for number in found)
    assert default_folder(TrainingConfig(dataset="photos/")).name == "photos-qcn-0"
    assert default_folder(TrainingConfig(dataset=".")).name == f"{Path.cwd().name}-qcn-0"


def test_more_epochs_from_the_command_line(tiny: tuple[object, ...], tmp_path: Path, command: Callable) -> None:
    assert command("train", *tiny, "--output", "run").code == 0
    more = command("train", "--resume", "run", "--epochs", 3, "--data-dir", tmp_path / "data")
    assert more.code == 0, more.err
    assert "run goes on from 1 to 3 epochs" in more.out
    assert "epoch 3/3" in more.out
    described = json.loads(Path("run/run.json").read_text())
    assert described["config"]["epochs"] == 3
    assert described["stretches"] == [{"step": 3, "epochs": 1}]
    before = Path("run/run.json").read_bytes()
    again = command("train", "--resume", "run", "--epochs", 3, "--data-dir", tmp_path / "data")
    assert "is trained to its end, 3 epochs" in " ".join(again.out.split())
    fewer = command("train", "--resume", "run", "--epochs", 2, "--data-dir", tmp_path / "data")
    assert fewer.code == 1
    assert "configured for 3 and has done 3: a run that is resumed can get more epochs, not fewer" in fewer.err
    assert Path("run/run.json").read_bytes() == before


def test_weights_of_other_classes_from_the_command_line(
    tiny: tuple[object, ...], tmp_path: Path, command: Callable
) -> None:
    assert command("train", *tiny, "--output", "two").code == 0
    pixels, labels = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 1), dtype=np.uint8), np.arange(24) % 3
    np.savez(tmp_path / "three.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    flags = [tmp_path / "three.npz" if each == tmp_path / "own.npz" else each for each in tiny if each != "cnn-small"]
    flags.remove("--model")
    outcome = command("train", *flags, "--init-from", "two", "--output", "three", "--lr", 1e-9)
    assert outcome.code == 0, outcome.err
    assert "the classes are not those of two: what belongs to them starts afresh" in " ".join(outcome.out.split())
    assert "cnn-small" in outcome.out
    two, three = (quatcaps.load(name).state_dict() for name in ("two", "three"))
    kept = [name for name in two if not name.startswith("classify.") and two[name].is_floating_point()]
    assert any(torch.allclose(two[name], three[name], atol=1e-6) for name in kept)
    assert len(open_run(Path("three")).classes) == 3


CONFIGURATION = "recipe: small\ndataset: toys-mini\nlearning_rate: 1e-3\nepochs: 9\nmodel_settings:\n  iterations: 3\n"


def test_settings_from_a_file(tmp_path: Path, command: Callable) -> None:
    (tmp_path / "c.yaml").write_text(CONFIGURATION)
    given = ("--device", "cpu", "--print-config")
    outcome = command("train", "--config", tmp_path / "c.yaml", "--epochs", 2, *given)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    wanted = configured("small", {"dataset": "toys-mini", "learning_rate": 1e-3, "epochs": 2, "device": "cpu"})
    assert found == {**wanted.whole(), "model_settings": {"iterations": 3}}
    (tmp_path / "c.json").write_text(outcome.out)
    assert command("train", "--config", tmp_path / "c.json", *given).out == outcome.out
    other = command("train", "--config", tmp_path / "c.json", "--model", "cnn-small", *given)
    assert json.loads(other.out)["model_settings"] == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.json", "c.yaml"], "nothing was trained"


def test_a_run_is_repeated_from_its_description(tiny: tuple[object, ...], tmp_path: Path, command: Callable) -> None:
    data = ("--data-dir", tmp_path / "data")
    assert command("train", *tiny, "--output", "first").code == 0
    assert command("train", "--config", "first/run.json", "--output", "second", *data).code == 0
    assert open_run(Path("second")).config == open_run(Path("first")).config
    first, second = (quatcaps.load(name).state_dict() for name in ("first", "second"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert command("train", "--resume", "first", "--epochs", 2, *data).code == 0
    noted = command("train", "--config", "first/run.json", "--print-config")
    assert "first/run.json: it was given more epochs" in noted.err
    assert json.loads(noted.out)["epochs"] == 2


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("c.yaml", "epoch: 3\n", "unknown setting 'epoch': did you mean 'epochs'?"),
        ("c.json", '{"epochs": "many"}', "epochs = 'many': it must be a whole number"),
        ("c.json", "epochs: 3", "c.json is not a configuration"),
        ("c.yaml", "epochs: [", "it is no JSON and no YAML"),
        ("c.yaml", "a: &a [1]\nb: *a\n", "it has aliases"),
        ("c.yaml", "!!python/object/apply:os.getcwd []", "it is no JSON and no YAML"),
        ("c.yaml", "- 3", "it holds no settings by name"),
        ("c.yaml", "recipe: 3", "recipe = 3: it must be a name"),
        ("c.yaml", "model_settings: 3", "model_settings = 3: it must be values by name"),
        ("c.yaml", "1: 2", "unknown setting '1'"),
        ("c.yaml", "recipe: papr", "unknown recipe 'papr': did you mean 'paper'"),
        ("run.json", '{"format": 2, "config": {"epoch": 3}}', "unknown setting 'epoch'"),
    ],
)
def test_files_that_are_no_configuration(name: str, text: str, words: str, tmp_path: Path, command: Callable) -> None:
    (tmp_path / name).write_text(text)
    outcome = command("train", "--config", tmp_path / name, "--output", tmp_path / "run")
    assert outcome.code == 1
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert words in outcome.err
    assert not (tmp_path / "run").exists()


def test_yaml_that_cannot_be_read_says_what_to_install(
    tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "c.yaml").write_text("epochs: 3\n")
    outcome = command("train", "--config", tmp_path / "c.yaml")
    assert outcome.code == 1
    assert "pip install 'quatcaps[yaml]'" in outcome.err

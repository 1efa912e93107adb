"""`benchmarks/public_training.py`: what it asks of public code, and what it leaves of a run that was ended. Public code
is no part of the tests; files with the same functions stand in its place."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

import late_epochs
import public_training
from late_epochs import Followed, table_of
from public_training import ROW, main, parsed
from quatcaps.console import standard_output
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.files import write_json
from quatcaps.paper.rows import ROWS

FILES = {
    "layers": "",
    "utils": "",
    "vb_routing": "",
    "capsnet": """
import torch
from torch import nn

class tinyCapsuleNet(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.learned, self.args = nn.Parameter(args.learning_rate * torch.ones(3)), args

class CapsuleNet(tinyCapsuleNet):
    def __init__(self, args):
        super().__init__(args)
        self.more = nn.Parameter(torch.ones(sum(args.arch)))
""",
    "evaluate": """
def evaluate(model, args, images):
    return 0.5, 1 - images["errors"](model.epoch) / len(images["labels"])
""",
    "datasets": """
import os
from types import SimpleNamespace
import numpy

def read(folder):
    names = os.listdir(folder)
    files = [os.path.join(folder, name, file) for name in names for file in os.listdir(os.path.join(folder, name))]
    labels = [number for number, name in enumerate(names) for _ in os.listdir(os.path.join(folder, name))]
    return numpy.stack([numpy.load(file) for file in files]), labels, names

def smallnorb(args, folders):
    test, train = read(folders["test"]), read(folders["train"])
    assert args.batch_size == 128 and args.n_epochs == 5 and args.crop_dim == 32
    found = dict(pixels=test[0], labels=test[1], names=test[2], errors=lambda epoch: epoch)
    return dict(train=train, valid=dict(labels=train[1], errors=lambda epoch: 0), test=found)
""",
    "train": """
import logging
from tqdm import tqdm
from evaluate import *

def train(model, loaders, args):
    for epoch in range(args.n_epochs):
        model.epoch = epoch + 1
        if getattr(args, "stop_after", None) == epoch:
            raise KeyboardInterrupt
        for _ in tqdm(loaders["train"]):
            pass
        evaluate(model, args, loaders["valid"])
    evaluate(model, args, loaders["test"])
""",
}
NAMES = ("animal", "human", "airplane", "truck", "car")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where public code would be."""
    (tmp_path / "code" / "src").mkdir(parents=True)
    for name, text in FILES.items():
        (tmp_path / "code" / "src" / f"{name}.py").write_text(text)
    return tmp_path / "code"


@pytest.fixture(autouse=True)
def images(monkeypatch: pytest.MonkeyPatch) -> ImageSet:
    """Ten images of five classes in the place of smallNORB; each holds its number."""
    pixels = torch.arange(10, dtype=torch.uint8)[:, None, None, None].expand(-1, 2, 48, 48).contiguous()
    found = ImageSet("smallnorb", pixels, torch.arange(10) * 3 % 5, NAMES)
    given = Experiment(training=found, validation=None, tests={"test": found})
    monkeypatch.setattr(public_training, "load_run_images", lambda *_: given)
    return found


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> list[Followed]:
    output = folder.parent / "records"
    monkeypatch.setattr(sys, "argv", ["public_training.py", str(folder), "--output", str(output), *words])
    main(parsed(), standard_output())
    return [Followed.read(path) for path in output.iterdir()]


def test_errors_are_those_of_all_test_images_after_every_so_many_epochs(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = run(monkeypatch, folder, "--epochs", "5", "--every", "1", "--last", "3", "--seed", "7")
    assert found.epochs == (3, 4, 5)
    assert found.errors == {late_epochs.RUNNING: pytest.approx((30.0, 40.0, 50.0))}
    assert (found.images, found.parameters, found.config.seed, found.config.epochs) == (10, 3, 7, 5)
    assert found.code == f"{public_training.REPOSITORY}@unknown"
    assert "epoch 2: 20.00% of test images, 0.00% of validation images" in capsys.readouterr().out


def test_a_run_that_is_ended_leaves_what_it_found(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    given = public_training.arguments

    def stopping(*words: object) -> object:
        args = given(*words)  # type: ignore[arg-type]
        args.stop_after = 3
        return args

    monkeypatch.setattr(public_training, "arguments", stopping)
    with pytest.raises(QuatcapsError, match=r"ended early: .*seed-0\.json has what was measured of it"):
        run(monkeypatch, folder, "--epochs", "5", "--every", "1", "--work", str(folder.parent / "new" / "folder"))
    (found,) = (Followed.read(path) for path in (folder.parent / "records").iterdir())
    assert (found.epochs, found.config.epochs) == ((1, 2, 3), 3)
    monkeypatch.setattr(public_training, "arguments", given)
    (found,) = run(monkeypatch, folder, "--epochs", "5", "--every", "2")
    assert (found.epochs, found.config.epochs) == ((2, 4, 5), 5), "which is no reason not to train it"


def test_a_longer_run_leaves_the_record_of_a_shorter_one(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (ours,) = run(monkeypatch, folder, "--epochs", "5", "--every", "1")
    shorter = late_epochs.path_of(folder.parent / "records", ROW, ours.config.changed({"epochs": 3}), code=True)
    write_json(shorter, Followed(**{**vars(ours), "config": ours.config.changed({"epochs": 3})}).to_json())
    next(path for path in shorter.parent.iterdir() if path != shorter).unlink()
    assert len(run(monkeypatch, folder, "--epochs", "5", "--every", "1")) == 2
    assert Followed.read(shorter).config.epochs == 3


def test_it_has_a_line_of_its_own_beside_ours(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (theirs,) = run(monkeypatch, folder, "--epochs", "5", "--every", "5")
    ours = Followed(**{**vars(theirs), "code": ""})
    lines = table_of([ours, theirs]).rows
    assert [line[0] for line in lines] == [
        f"{ROW}, vb-example, 5 epochs",
        f"{ROW}, public code, vb-example, 5 epochs",
    ]


def test_three_layers(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (found,) = run(monkeypatch, folder, "--epochs", "5", "--network", "vb-published")
    assert (found.config.model, found.parameters) == ("vb-published", 3 + 64 + 16 + 32 + 16 + 5)
    assert found.config.model_settings == ROWS[ROW].config(0).model_settings
    assert found.name == f"{ROW}, public code, vb-published, 5 epochs"


def test_classes_have_the_same_numbers_in_training_and_testing(
    monkeypatch: pytest.MonkeyPatch, folder: Path, images: ImageSet
) -> None:
    """However the system lists the folders."""
    listed = os.listdir
    monkeypatch.setattr("os.listdir", lambda path: sorted(listed(path), reverse="test" in str(path)))
    with public_training.public_modules(folder) as modules:
        public_training.lay_out(images, folder / "test")
        pixels, labels, names = modules["datasets"].read(str(folder / "test"))
    assert names == [f"{number}-{name}" for number, name in enumerate(NAMES)]
    assert {int(image[0, 0, 0]): label for image, label in zip(pixels, labels, strict=True)} == dict(
        enumerate((torch.arange(10) * 3 % 5).tolist())
    )


def test_its_modules_are_forgotten(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    run(monkeypatch, folder, "--epochs", "5")
    assert not {"capsnet", "datasets", "evaluate", "layers", "train", "utils"} & sys.modules.keys()


def test_a_record_is_not_made_twice(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, folder, "--epochs", "5", "--every", "1")
    capsys.readouterr()
    run(monkeypatch, folder, "--epochs", "5", "--every", "1")
    assert "is there already" in " ".join(capsys.readouterr().out.split())


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with pytest.raises(QuatcapsError, match="every"):
        run(monkeypatch, folder, "--every", "0")
    with pytest.raises(QuatcapsError, match="last"):
        run(monkeypatch, folder, "--last", "0")
    (folder / "src" / "datasets.py").write_text("import a_library_that_is_not_here")
    with pytest.raises(QuatcapsError, match="imports a_library_that_is_not_here, which is not installed"):
        run(monkeypatch, folder, "--epochs", "5")
    (folder / "src" / "datasets.py").unlink()
    with pytest.raises(QuatcapsError, match="is not the public code that this was written for"):
        run(monkeypatch, folder, "--epochs", "5")

"""Custom datasets, from a folder or an .npz file, through the whole program."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from quatcaps import data
from quatcaps.data import custom
from quatcaps.errors import QuatcapsError

RNG = np.random.default_rng(0)


def picture(path: Path, value: int, size: tuple[int, int] = (40, 36)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = RNG.integers(0, 40, (*size, 3)) + value
    Image.fromarray(noise.astype(np.uint8)).save(path)


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    """12 pictures of each of three classes, without a split."""
    for label, name in enumerate(("aster", "poppy", "rose")):
        for number in range(12):
            picture(tmp_path / "flowers" / name / f"{number}.png", 70 * label)
    return tmp_path / "flowers"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """An .npz file with splits, 24×24 grey."""
    path = tmp_path / "digits.npz"
    labels = {"train": np.arange(60) % 3, "test": np.arange(30) % 3}
    images = {
        split: (RNG.integers(0, 40, (len(of), 24, 24)) + 70 * of[:, None, None]).astype(np.uint8)
        for split, of in labels.items()
    }
    np.savez_compressed(
        path, x_train=images["train"], y_train=labels["train"], x_test=images["test"], y_test=labels["test"]
    )
    return path


def test_a_folder_without_a_split_is_carved(flowers: Path, tmp_path: Path) -> None:
    parts = {split: data.load(str(flowers), split, folder=tmp_path, size=32) for split in ("train", "test", "all")}
    assert [len(images) for images in parts.values()] == [30, 6, 36]
    assert parts["train"].classes == ("aster", "poppy", "rose")
    assert (parts["train"].size, parts["train"].channels) == ((32, 32), 3)
    shown = [{image.numpy().tobytes() for image in parts[split].images} for split in ("train", "test")]
    assert not shown[0] & shown[1]
    assert torch.bincount(parts["test"].labels).tolist() == [2, 2, 2]
    other = data.load(str(flowers), "test", folder=tmp_path, size=32, seed=1)
    assert {image.numpy().tobytes() for image in other.images} != shown[1]


def test_a_folder_is_read_once_and_again_when_it_changes(
    flowers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, calls = custom.read_custom, []

    def counted(*arguments: object) -> object:
        calls.append(1)
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(custom, "read_custom", counted)
    for _ in range(2):
        data.load(str(flowers), "all", folder=tmp_path, size=32)
    assert len(calls) == 1
    os.utime(flowers / "rose" / "3.png", ns=(1, 1))
    picture(flowers / "rose" / "new.png", 100)
    assert len(data.load(str(flowers), "all", folder=tmp_path, size=32)) == 37
    assert len(calls) == 2


def test_an_npz_file_keeps_its_split(digits: Path, tmp_path: Path) -> None:
    training, test = (data.load(str(digits), split, folder=tmp_path) for split in ("train", "test"))
    assert (len(training), len(test), training.size) == (60, 30, (24, 24))
    with np.load(digits) as stored:
        assert np.array_equal(training.images[:, 0].numpy(), stored["x_train"])
        assert np.array_equal(test.labels.numpy(), stored["y_test"])
    assert data.load(str(digits), "test", folder=tmp_path, size=12).size == (12, 12)
    assert data.load(str(digits), "test", folder=tmp_path, size=9).size == (9, 9)
    with pytest.raises(QuatcapsError, match="images of 24×24 only shrink, to sizes from 1 to 24"):
        data.load(str(digits), "test", folder=tmp_path, size=25)


def test_a_digest_follows_the_content_alone(flowers: Path, digits: Path, tmp_path: Path) -> None:
    digests = []
    for source in (flowers, digits):
        first = data.load(str(source), "all", folder=tmp_path)
        copy = tmp_path / "elsewhere" / source.name
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            copy.parent.mkdir(exist_ok=True)
            with np.load(source) as stored:
                np.savez(copy, **stored)  # not compressed
        for split in ("train", "test", "all"):
            assert data.load(str(copy), split, folder=tmp_path / "other").digest == first.digest
        digests.append(first.digest)
    assert data.load(str(flowers), "test", folder=tmp_path, size=16).digest == digests[0]
    os.rename(flowers / "rose" / "3.png", flowers / "rose" / "33.png")
    digests.append(data.load(str(flowers), "all", folder=tmp_path).digest)
    picture(flowers / "rose" / "33.png", 100)
    digests.append(data.load(str(flowers), "all", folder=tmp_path).digest)
    with np.load(digits) as stored:
        np.savez(digits, **(dict(stored) | {"y_test": (stored["y_test"] + 1) % 3}))
    digests.append(data.load(str(digits), "all", folder=tmp_path).digest)
    assert len(set(digests)) == 5
    assert all(len(digest) == 64 for digest in digests)


def test_a_file_of_the_same_length_and_date_is_another(flowers: Path, tmp_path: Path) -> None:
    path = flowers / "rose" / "3.png"
    first, state = data.load(str(flowers), "all", folder=tmp_path).digest, path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # behind the picture
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert data.load(str(flowers), "all", folder=tmp_path).digest != first


@pytest.mark.parametrize("name", ["./nowhere", "nowhere.npz"])
def test_nothing_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match=f"dataset {name}: there is no such folder or file"):
        data.load(name, "train", folder=tmp_path)


def test_training_evaluating_and_predicting(flowers: Path, tmp_path: Path, command: Callable) -> None:
    run = tmp_path / "run"
    arguments = ("--recipe", "small", "--epochs", 4, "--batch", 10, "--device", "cpu", "--data-dir", tmp_path / "data")
    outcome = command("train", "--dataset", flowers, *arguments, "--output", run)
    assert outcome.code == 0, outcome.err
    assert "on 30 images of" in outcome.out
    assert "images/s" in outcome.out
    outcome = command("evaluate", run, "--data-dir", tmp_path / "data", "--device", "cpu")
    assert outcome.code == 0, outcome.err
    assert "of 6 images" in outcome.out
    outcome = command("predict", run, flowers / "rose" / "0.png", "--device", "cpu")
    assert outcome.code == 0, outcome.err
    assert "activation" in outcome.out


def test_an_npz_file_trains_as_it_is_stored(digits: Path, tmp_path: Path, command: Callable) -> None:
    arguments = ("--recipe", "small", "--epochs", 1, "--batch", 10, "--device", "cpu", "--data-dir", tmp_path / "data")
    outcome = command(
        "train",
        "--dataset",
        digits,
        *arguments,
        "--model",
        "cnn-small",
        "--loss",
        "cross-entropy",
        "--validation",
        0.2,
        "--output",
        tmp_path / "run",
    )
    assert outcome.code == 0, outcome.err
    assert "on 48 images of" in outcome.out
    assert "  validation " in outcome.out
    outcome = command("evaluate", tmp_path / "run", "--split", "validation", "--data-dir", tmp_path / "data")
    assert outcome.code == 0, outcome.err
    assert "of 12 images" in outcome.out


def test_images_that_are_too_small_for_the_network(digits: Path, tmp_path: Path, command: Callable) -> None:
    outcome = command(
        "train",
        "--dataset",
        digits,
        "--device",
        "cpu",
        "--batch",
        10,
        "--image-size",
        12,
        "--data-dir",
        tmp_path,
        "--output",
        tmp_path / "run",
    )
    assert outcome.code == 1
    assert "12×12 is too small" in outcome.err
    assert not (tmp_path / "run").exists()

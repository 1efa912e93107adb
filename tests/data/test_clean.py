"""`quatcaps data clean`: what is of no use goes, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from quatcaps import data
from quatcaps.data import store
from quatcaps.data.clean import clean, leftovers
from quatcaps.data.toys.version import renderer_version
from quatcaps.files import locked

IMAGES = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)


def npz(path: Path, value: int = 0) -> Path:
    np.savez(path, images=np.full((20, 8, 8), value, np.uint8), labels=np.arange(20) % 2)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with something of everything, of no use where its name says `old`."""
    place = tmp_path / "data"
    for name, renderer in (("new", renderer_version()), ("old", "00000000")):
        store.write(place / "toys" / f"toys-{name}.safetensors", {"renderer": renderer}, {"images": IMAGES})
    for name in ("kept", "oldgone", "oldchanged"):
        data.load(str(npz(tmp_path / f"{name}.npz")), "all", folder=place)
    (tmp_path / "oldgone.npz").unlink()
    npz(tmp_path / "oldchanged.npz", 1)
    prepared = place / "prepared"
    for name, contents in (
        ("mnist-28", {"dataset": "mnist", "size": 28, "format": store.FORMAT}),
        ("oldmnist-28", {"dataset": "mnist", "size": 28, "format": 0}),
        ("oldown-1", {"own": "00ff", "size": 28, "format": 1}),
    ):
        store.write(prepared / f"{name}.safetensors", contents, {"images": IMAGES})
    (prepared / "olddamaged.safetensors").write_bytes(b"half")
    (prepared / ".oldmnist-14.safetensors.0123456789abcdef.part.safetensors").write_bytes(b"half")
    (prepared / "oldnothing.lock").touch()
    (prepared / "mnist-28.lock").touch()
    (place / "mnist").mkdir()
    for name in ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz.part", "t10k-images-idx3-ubyte.gz.part.json"):
        (place / "mnist" / name).write_bytes(b"came")
    (place / "mnist" / ".lock").touch()
    return place


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_what_is_of_no_use_is_listed_and_removed(folder: Path, command: Callable) -> None:
    before = names(folder)
    outcome = command("data", "clean", "--data-dir", folder)
    assert outcome.code == 0, outcome.err
    assert names(folder) == before
    for words in ("another renderer", "is gone", "has changed", "damaged", "another version", "killed", "a lock of"):
        assert words in outcome.out
    assert "MB in " in outcome.out
    assert "quatcaps data clean --yes removes them" in outcome.out
    outcome = command("data", "clean", "--yes", "--data-dir", folder)
    assert outcome.code == 0, outcome.err
    gone = before - names(folder)
    assert all("old" in name for name in gone), gone
    assert not any("old" in name for name in names(folder)), names(folder)
    assert "nothing in" in command("data", "clean", "--data-dir", folder).out


def test_downloads_go_only_when_asked_for(folder: Path) -> None:
    clean(leftovers(folder))
    assert len(names(folder / "mnist")) == 4
    items = leftovers(folder, downloads=True)
    assert len(items) == 3
    assert all(item.size == 4 for item in items)
    clean(items)
    assert names(folder / "mnist") == {".lock"}
    assert names(folder / "prepared") > {"mnist-28.safetensors"}


def test_what_is_in_use_stays(folder: Path) -> None:
    items = leftovers(folder)
    busy = [item for item in items if "damaged" in item.why or "killed" in item.why]
    assert len(busy) == 2
    with locked(folder / "prepared" / "olddamaged.lock"), locked(folder / "prepared" / "oldmnist-14.lock"):
        assert not {item.path for item in busy} & {item.path for item in leftovers(folder)}
        gone = clean(items)
        assert all(item.path.exists() for item in busy)
    assert set(items) - set(gone) == set(busy)
    clean(leftovers(folder))
    assert not any(item.path.exists() for item in busy)


def test_an_empty_folder(tmp_path: Path, command: Callable) -> None:
    outcome = command("data", "clean", "--yes", "--data-dir", tmp_path / "nowhere")
    assert outcome.code == 0
    assert "nothing in" in outcome.out
    assert not os.path.exists(tmp_path / "nowhere")

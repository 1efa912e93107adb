"""Prepared datasets: both splits in one file, with what is known about where they came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from quatcaps.data import store
from quatcaps.data.imageset import ImageSet, concatenate
from quatcaps.data.store import Stored
from quatcaps.errors import QuatcapsError, unknown_name

FORMAT = 1
"""Changes whenever the same sources would be stored as something else."""
SPLITS = ("train", "test", "all")
UNKNOWN = "unknown"
"""What `sources` calls content that is neither as published nor a known copy."""
UNVERIFIED = "NOT VERIFIED: content unknown"


def prepared_path(folder: Path, name: str, size: int) -> Path:
    """Where a dataset lies at one size of its images."""
    return folder / "prepared" / f"{name}-{size}.safetensors"


def described(name: str, size: int) -> dict[str, object]:
    """What a prepared file must say it holds."""
    return {"dataset": name, "size": size, "format": FORMAT}


def pack(
    path: Path, contents: Mapping[str, object], splits: Mapping[str, ImageSet], notes: Mapping[str, object]
) -> None:
    """Stores the `train` and the `test` images, or `all` where there is no split."""
    whole = concatenate(list(splits.values()), "all")
    tensors = {"images": whole.stored, "labels": whole.labels}
    tensors |= {f"info/{name}": column for name, column in whole.info.items()}
    counts = {split: len(images) for split, images in splits.items()}
    store.write(path, contents, tensors, {**notes, "classes": whole.classes, "counts": counts})


def prepared_once(
    path: Path,
    contents: Mapping[str, object],
    make: Callable[[], tuple[Mapping[str, ImageSet], Mapping[str, object]]],
) -> Stored:
    """What is stored at `path`; where it is not, or not whole, `make` gives the splits and the notes to store first.

    Of several processes one makes it, and the others read what it left.
    """
    if (stored := read_prepared(path, contents)) is not None:
        return stored
    store.check_writable(path.parent)
    with FileLock(path.with_suffix(".lock")):
        if (stored := read_prepared(path, contents)) is None:
            splits, notes = make()
            pack(path, contents, splits, notes)
            stored = read_prepared(path, contents)
    if stored is None:
        raise QuatcapsError(f"{path} cannot be read back after it was written: check the disk")
    return stored


def unpack(stored: Stored, split: str, title: str) -> ImageSet:
    """A split of a prepared file, or `all` of it; its pixels stay in the file."""
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    tensors, counts = stored.tensors, stored.notes["counts"]
    whole = ImageSet(
        name=title,
        stored=tensors["images"],
        labels=tensors["labels"].clone(),
        classes=tuple(stored.notes["classes"]),
        info={
            name.removeprefix("info/"): column.clone() for name, column in tensors.items() if name.startswith("info/")
        },
        source=provenance(stored),
    )
    if split == "all":
        return whole
    start, stop = (0, counts["train"]) if split == "train" else (counts["train"], len(whole))
    return whole.part(start, stop, f"{title} {split}")


def provenance(stored: Stored) -> str:
    """Where prepared data came from, in a few words."""
    if "source" in stored.notes:
        return f"read from {stored.notes['source']}"
    words = list(dict.fromkeys(str(file["words"]) for file in stored.notes.get("files", [])))
    if words == ["published"]:
        return "content as published"
    others = [each for each in words if each != "published"]
    return "; ".join(UNVERIFIED if each == UNKNOWN else each for each in others)


def read_prepared(path: Path, contents: Mapping[str, object]) -> Stored | None:
    """A prepared file, or None where it must be prepared (again)."""
    stored = store.read(path, contents)
    return stored if stored is not None and _whole(stored) else None


def _whole(stored: Stored) -> bool:
    notes: dict[str, Any] = stored.notes
    images, labels = stored.tensors.get("images"), stored.tensors.get("labels")
    if images is None or labels is None or not isinstance(notes.get("counts"), dict):
        return False
    return images.dtype == torch.uint8 and len(images) == len(labels) == sum(notes["counts"].values())

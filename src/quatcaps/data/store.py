"""Prepared data, and where they are kept: one safetensors file with all splits and notes on what they were made from.

A file is trusted only if it says that it holds what is asked for, and if it is whole: its checksum covers the notes and
the names, types and shapes of the tensors, and another one their bytes. Files of earlier versions lack the first; who
reads them must know what their notes have to say.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import torch
from torch import Tensor

from quatcaps.data.catalogue import PUBLISHED
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError, is_out_of_memory, unknown_name
from quatcaps.files import explained, locked, make_folder, new_file
from quatcaps.tensors import save_tensors

VARIABLE = "QUATCAPS_DATA_DIR"
FORMAT = 1
"""Changes whenever the same sources would be stored as something else."""
SPLITS = ("train", "test", "all")
PART_OF_MEMORY = 1 / 3
"""That the pixels of a custom dataset may take: while they are stored, they are in memory twice."""
UNKNOWN = "unknown"
"""What notes call a file whose content is neither as published nor a known copy."""
UNVERIFIED = "NOT VERIFIED: content unknown"


class Stored(NamedTuple):
    """What a file holds. The tensors lie in the file: pixels are read when they are used."""

    tensors: dict[str, Tensor]
    notes: dict[str, Any]


class Made(NamedTuple):
    """What is to be stored: all images, the training images first, and how many belong to each split.

    counts: of "train" and "test", or of "all" alone where the source does not say which images are for testing.
    """

    images: ImageSet
    counts: dict[str, int]


def data_folder(chosen: str | Path | None = None) -> Path:
    """`chosen`, or the environment's QUATCAPS_DATA_DIR, or a folder in the user's cache."""
    if place := chosen or os.environ.get(VARIABLE):
        return Path(place).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quatcaps"


def read(path: Path, contents: Mapping[str, object], earlier: Callable[[Stored], bool] | None = None) -> Stored | None:
    """What is stored at `path`, or None if there is nothing, or something else, or it is damaged.

    contents: what the file must say it holds. earlier: whether a file without a checksum of its notes, as earlier
    versions wrote it, has the tensors and the notes that it must have.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("contents") != _described(contents):
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        notes = json.loads(header.get("notes", ""))
        if header.get("sha256") != _digest(tensors) or not isinstance(notes, dict):
            return None
        stored = Stored(tensors, notes)
        if "checksum" in header:
            return stored if header["checksum"] == _checksum(header, tensors) else None
        return stored if earlier is not None and earlier(stored) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, safetensors.SafetensorError):
        return None  # a damaged header makes its readers raise any of these


def write(
    path: Path, contents: Mapping[str, object], tensors: Mapping[str, Tensor], notes: Mapping[str, object] | None = None
) -> None:
    """Stores tensors so that `path` holds either all of them or what it held before."""
    header = {"contents": _described(contents), "sha256": _digest(tensors), "notes": json.dumps(notes or {})}
    header["checksum"] = _checksum(header, tensors)
    with new_file(path) as temporary:
        save_tensors(temporary, tensors, header)


def header_of(path: Path) -> dict[str, Any] | None:
    """What a file says it holds (`contents`) and its notes, unchecked; None where that cannot be read."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
        found = {key: json.loads(header.get(key, "")) for key in ("contents", "notes")}
    except (OSError, ValueError, safetensors.SafetensorError):
        return None
    return found if all(isinstance(value, dict) for value in found.values()) else None


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Of several processes, one at a time makes what is stored at `path`; an error if nothing can be written there."""
    make_folder(path.parent)
    with explained(f"write to the data folder {path.parent}"), tempfile.TemporaryFile(dir=path.parent):
        pass
    with locked(lock_of(path)):
        yield


def lock_of(path: Path) -> Path:
    """The file that is locked while what is stored at `path` is made or removed."""
    return path.with_suffix(".lock")


def read_prepared(
    path: Path, contents: Mapping[str, object], earlier: Callable[[Stored], bool] | None = None
) -> Stored | None:
    """A prepared dataset, or None where it must be prepared (again)."""
    stored = read(path, contents, earlier)
    if stored is None:
        return None
    images, labels, counts = stored.tensors.get("images"), stored.tensors.get("labels"), stored.notes.get("counts")
    if images is None or labels is None or not isinstance(counts, dict) or images.dtype != torch.uint8:
        return None
    return stored if len(images) == len(labels) == sum(counts.values()) else None


def prepared_once(
    path: Path, contents: Mapping[str, object], make: Callable[[], Made], notes: Mapping[str, object]
) -> Stored:
    """The prepared dataset at `path`; made first where there is none, or none that is whole."""
    if (stored := read_prepared(path, contents)) is not None:
        return stored
    with alone(path):
        return read_prepared(path, contents) or pack(path, contents, make, notes)


def pack(path: Path, contents: Mapping[str, object], make: Callable[[], Made], notes: Mapping[str, object]) -> Stored:
    """Stores what `make` gives, and reads it back; an error in one line where it takes more memory than there is."""
    try:
        images, counts = make()
        tensors = {"images": images.images, "labels": images.labels}
        tensors |= {f"info/{name}": column for name, column in images.info.items()}
        write(path, contents, tensors, {**notes, "digest": images.digest, "classes": images.classes, "counts": counts})
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise QuatcapsError(
            f"out of memory while {path.stem} is prepared: give fewer or smaller images (--size), or free some memory"
        ) from error
    stored = read_prepared(path, contents)
    if stored is None:
        raise QuatcapsError(f"{path} cannot be read back after it was written: check the disk")
    return stored


def memory() -> int:
    """Bytes of memory that there are for this process: the machine's, or its container's where that has less."""
    known = []
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(ValueError, OSError):
            known.append(int(Path(limit).read_text(encoding="ascii")))
    return min((each for each in known if each > 0), default=8 << 30)


def check_room(source: Path, needed: int, remedy: str, limit: int | None = None) -> None:
    """Raises where the pixels of a dataset take more bytes than the limit: a part of the memory, or the one given."""
    limit = int(PART_OF_MEMORY * memory()) if limit is None else limit
    if needed > limit:
        raise QuatcapsError(
            f"the images of {source} take {needed / 2**30:,.1f} GiB, more than the limit of {limit / 2**30:,.1f} GiB "
            f"on this machine: {remedy}"
        )


def unpack(stored: Stored, split: str, title: str) -> ImageSet:
    """A split of a prepared dataset, or `all` of it; its pixels stay in the file."""
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
        digest=stored.notes["digest"],
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
    if words == [PUBLISHED]:
        return "content as published"
    others = [each for each in words if each != PUBLISHED]
    return "; ".join(UNVERIFIED if each == UNKNOWN else each for each in others)


def _described(contents: Mapping[str, object]) -> str:
    return json.dumps(contents, sort_keys=True)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()


def _checksum(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Of everything but the tensors' bytes, which have a digest of their own."""
    kinds = [(name, str(tensors[name].dtype), tuple(tensors[name].shape)) for name in sorted(tensors)]
    text = json.dumps([header["contents"], header["notes"], header["sha256"], kinds])
    return hashlib.sha256(text.encode()).hexdigest()

"""Custom datasets: a folder of images by class, or an .npz file; read once and kept as one compact file.

An .npz file holds arrays of images and labels, whole or as a training and a test part.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from quatcaps.data import store
from quatcaps.data.formats.npz import Archive, Array, Declared, opened
from quatcaps.data.imageset import (
    LONGEST_NAME,
    MOST_CLASSES,
    VIEWPOINT_FIELDS,
    ImageSet,
    Progress,
    Stage,
    check_classes,
    digest_of,
    shrink,
)
from quatcaps.data.pictures import folder_fingerprint, read_folder
from quatcaps.data.splits import hold_out
from quatcaps.data.store import FORMAT, Made, check_room
from quatcaps.errors import QuatcapsError
from quatcaps.pipelines import Pipeline

TEST_PART = 0.2
"""Of every class that becomes the test split where the source has none."""
CONVENTIONS = (
    ("images", "labels", {"all": "{}"}),
    ("images", "labels", {"train": "train_{}", "test": "test_{}"}),
    ("x", "y", {"train": "{}_train", "test": "{}_test"}),
)
"""What an .npz file's arrays of images and labels are called, and how their names say to which split they belong."""
MOST_EXPANSION, LEAST_EXPANDED = 250, 256 << 20
"""How many times larger than its file an .npz file's content may be, where it is larger than so many bytes."""

_HOLDS = "images, labels; or train_images, train_labels, test_images, test_labels; or x_train, y_train, x_test, y_test"
_LAST_CODES = {"azimuth": (35, "tens of degrees"), "elevation": (12, "steps of 5° from 30°")}
_LAST_CODE = (2**31 - 1, "numbers")
_NAMES_SHOWN = 12


def is_path(name: str) -> bool:
    """Whether a dataset's name is the path of a custom one."""
    return "/" in name or "\\" in name or name.endswith(".npz") or Path(name).is_dir()


def custom_pipeline(name: str) -> Pipeline:
    """Images as they are in an .npz file, 32×32 from a folder; seen whole, each standardised by itself."""
    return Pipeline(image_size=0 if name.endswith(".npz") else 32, crop=0)


def described(path: Path, size: int) -> dict[str, object]:
    """What the prepared file of a custom dataset must say it holds; it changes whenever the source does."""
    fingerprint = npz_fingerprint(path) if path.is_file() else folder_fingerprint(path, size)
    return {"custom": fingerprint, "size": size, "format": FORMAT}


def load_custom(name: str, split: str, place: Path, size: int, seed: int, stage: Stage | None = None) -> ImageSet:
    """A split of a custom dataset, or `all` of it; `place` keeps what was read.

    Where it has no split, `seed` chooses a fifth of every class for testing.
    """
    path = Path(name).expanduser()
    if not path.exists():
        raise QuatcapsError(f"dataset {name}: there is no such folder or file")
    contents, title = described(path, size), path.resolve().stem
    kept = place / "prepared" / f"custom-{title}-{size}-{str(contents['custom'])[:12]}.safetensors"
    notes = {"source": str(path.resolve())}
    stored = store.prepared_once(kept, contents, lambda: read_custom(path, size, stage), notes)
    if split != "all" and "train" not in stored.notes["counts"]:
        training, test = hold_out(store.unpack(stored, "all", title), TEST_PART, seed, "test")
        return training if split == "train" else test
    return store.unpack(stored, split, title)


def read_custom(path: Path, size: int, stage: Stage | None) -> Made:
    """The images of a folder or an .npz file, at the size that is asked for."""
    progress = stage(f"reading the images of {path.name}") if stage is not None else None
    if not path.is_file():
        return read_folder(path, size=size, progress=progress)
    images, counts = read_npz(path, progress=progress)
    return Made(smaller(images, size), counts)


def smaller(images: ImageSet, size: int) -> ImageSet:
    """Square images shrunk to size × size by means over areas; 0: as they are."""
    if size == 0 or images.size == (size, size):
        return images
    if images.size[0] != images.size[1]:
        height, width = images.size
        raise QuatcapsError(f"{images.name} has images of {height}×{width}: only square ones shrink to {size}×{size}")
    return replace(images, stored=torch.from_numpy(shrink(images.images.numpy(), size)), rows=None)


def read_npz(path: Path, *, progress: Progress | None = None, limit: int | None = None) -> Made:
    """The images and labels in a .npz file.

    Images are uint8 of shape (N, height, width), (N, height, width, channels) or (N, channels, height, width); labels
    integers of shape (N,) or (N, 1). Optional: `classes`, their names, and viewpoint columns named like the images.
    Images come as they are stored: to scale them is the caller's part. `limit`: in bytes, a third of the memory unless
    told otherwise; more are refused before any is read. `progress` counts images.
    """
    with opened(path) as archive:
        splits = _splits(archive)
        arrays = [array for part in splits.values() for array in part.values()]
        needed, compressed = sum(array.nbytes for array in arrays), sum(array.entry.compress_size for array in arrays)
        check_room(path, needed, "store fewer or smaller images", limit)
        if needed > LEAST_EXPANDED and needed > MOST_EXPANSION * max(1, compressed):  # images do not compress that well
            raise QuatcapsError(
                f"the {compressed / 1e6:,.1f} MB of {path} expand to {needed / 1e6:,.0f} MB, "
                f"{needed // max(1, compressed):,}-fold, above the limit of {MOST_EXPANSION}: store it uncompressed, "
                "with numpy.savez, if that is meant"
            )
        columns = {field: _column(archive, splits, field) for field in next(iter(splits.values())) if field != "images"}
        labels = columns.pop("labels")
        classes = _classes(archive, 1 + int(labels.max()))
        counts = {split: part["images"].shape[0] for split, part in splits.items()}
        total, done = sum(counts.values()), 0
        stored = torch.empty((total, *_shape(arrays[0])), dtype=torch.uint8)
        for part in splits.values():
            images, before = part["images"], done
            done += images.shape[0]

            def count(nbytes: int, each: int = math.prod(images.shape[1:]), before: int = before) -> None:
                if progress is not None:
                    progress(before + nbytes // each, total)

            archive.fill(_as_stored(stored[before:done], images), images, count)
        digest = digest_of(sorted(archive.digests.items()))
    return Made(ImageSet(path.stem, stored, labels, classes, columns, digest=digest), counts)


def npz_fingerprint(path: Path) -> str:
    """64 hexadecimal digits that change with the arrays: from their names, lengths and checksums."""
    digest = hashlib.sha256()
    with opened(path) as archive:
        for name, entry in sorted(archive.entries.items()):
            digest.update(f"{name!a}\0{entry.file_size}\0{entry.CRC}\0".encode())
    return digest.hexdigest()


def _splits(archive: Archive) -> dict[str, dict[str, Declared]]:
    """The arrays of each split, `images`, `labels` and viewpoints, checked against each other by their headers."""
    found = [
        convention
        for convention in CONVENTIONS
        if any(pattern.format(convention[0]) in archive.entries for pattern in convention[2].values())
    ]
    if len(found) != 1:
        names = [f"{name[:40]!a}" for name in list(archive.entries)[:_NAMES_SHOWN]]
        more = ", …" if len(archive.entries) > _NAMES_SHOWN else ""
        what = "several sets of images" if found else "no images"
        raise QuatcapsError(
            f"{archive.path} holds {what} ({', '.join(names)}{more}): store {_HOLDS}, and only one of these"
        )
    ((images, labels, patterns),) = found
    needed = [pattern.format(what) for pattern in patterns.values() for what in (images, labels)]
    missing = [name for name in needed if name not in archive.entries]
    if missing:
        raise QuatcapsError(f"{archive.path} has no {', '.join(missing)}: store {_HOLDS}")
    splits: dict[str, dict[str, Declared]] = {}
    for split, pattern in patterns.items():
        part = splits[split] = {"images": _checked_images(archive, pattern.format(images))}
        for field, name in ({"labels": labels} | {field: field for field in VIEWPOINT_FIELDS}).items():
            if pattern.format(name) in archive.entries:
                part[field] = _checked_column(archive, pattern.format(name), part["images"])
    first, last = next(iter(splits.values())), part
    if _shape(first["images"]) != _shape(last["images"]):
        raise QuatcapsError(
            f"{archive.path}: {first['images'].name} has shape {first['images'].shape} and {last['images'].name} "
            f"{last['images'].shape}: store images of the same size and channels"
        )
    if first.keys() != last.keys():
        odd = ", ".join(sorted(first.keys() ^ last.keys()))
        raise QuatcapsError(f"{archive.path} has {odd} for one of train and test only: store it for both or neither")
    return splits


def _checked_images(archive: Archive, name: str) -> Declared:
    array = archive.declared(name)
    where, shape = f"{name} in {archive.path}", array.shape
    if array.dtype.kind == "f":
        raise QuatcapsError(f"{where} is {array.dtype}: store (255 * images).round().astype('uint8') if it is 0 … 1")
    if array.dtype != np.uint8:
        raise QuatcapsError(f"{where} is {array.dtype}: store bytes from 0 to 255, as images.astype('uint8')")
    if len(shape) == 4 and shape[1] <= 4 and shape[3] <= 4:
        raise QuatcapsError(
            f"{where} has shape {shape}, whose channels may be first or last: store (N, H, W, C) with sides of 5 "
            "pixels or more"
        )
    if len(shape) not in (3, 4) or (len(shape) == 4 and min(shape[1], shape[3]) > 4):
        raise QuatcapsError(f"{where} has shape {shape}: store (N, H, W), or (N, H, W, C) with 1 to 4 channels")
    return array


def _checked_column(archive: Archive, name: str, images: Declared) -> Declared:
    column, count = archive.declared(name), images.shape[0]
    if column.dtype.kind not in "iu":
        raise QuatcapsError(f"{name} in {archive.path} is {column.dtype}: store integers")
    if column.shape not in ((count,), (count, 1)):
        raise QuatcapsError(
            f"{name} in {archive.path} has shape {column.shape}: store ({count},), one for each of {images.name}"
        )
    return column


def _column(archive: Archive, splits: Mapping[str, Mapping[str, Declared]], field: str) -> Tensor:
    """(N,) int64: the labels or viewpoint codes of all splits."""
    last, unit = (MOST_CLASSES - 1, "") if field == "labels" else _LAST_CODES.get(field, _LAST_CODE)
    remedy = f"store {unit}, from 0 to {last}" if unit else f"number classes from 0, up to {last} at most"
    parts = []
    for declared in (part[field] for part in splits.values()):
        values = archive.read(declared).reshape(-1)
        lowest, highest = int(values.min()), int(values.max())
        if lowest < 0 or highest > last:
            raise QuatcapsError(f"{declared.name} in {archive.path} runs from {lowest} to {highest}: {remedy}")
        parts.append(torch.from_numpy(values.astype(np.int64)))
    return torch.cat(parts)


def _classes(archive: Archive, count: int) -> tuple[str, ...]:
    """The stored names, or the numbers of the classes."""
    names = tuple(map(str, range(count)))
    if "classes" in archive.entries:
        declared, where = archive.declared("classes"), f"classes in {archive.path}"
        if declared.dtype.kind != "U" or len(declared.shape) != 1:
            raise QuatcapsError(
                f"{where} is {declared.dtype} of shape {declared.shape}: store numpy.array(list_of_names)"
            )
        if declared.shape[0] > MOST_CLASSES or declared.dtype.itemsize > 4 * LONGEST_NAME:
            raise QuatcapsError(
                f"{where} has {declared.shape[0]:,} names of up to {declared.dtype.itemsize // 4:,} letters: at most "
                f"{MOST_CLASSES:,} of {LONGEST_NAME} are read"
            )
        values = archive.read(declared)
        # NumPy would make strings of any 32 bits, which are no text in Python, or an error inside it.
        if values.astype(values.dtype.newbyteorder("<")).view("<u4").max() > sys.maxunicode:
            raise QuatcapsError(f"{where} is damaged (it has characters that do not exist): write the file again")
        names = tuple(map(str, values.tolist()))
        if len(names) < count:
            raise QuatcapsError(
                f"{where} names {len(names)} classes, but labels run up to {count - 1}: name all {count}"
            )
    check_classes(archive.path, names)
    return names


def _shape(images: Declared) -> tuple[int, int, int]:
    """Channels, height and width."""
    sides = images.shape[1:]
    if len(sides) == 2:
        return 1, sides[0], sides[1]
    return (sides[2], sides[0], sides[1]) if sides[2] <= 4 else (sides[0], sides[1], sides[2])


def _as_stored(images: Tensor, declared: Declared) -> Array:
    """(N, channels, height, width) in the order of dimensions in which the file has them; a view."""
    values = images.numpy()
    if len(declared.shape) == 3:
        return values[:, 0]
    return values.transpose(0, 2, 3, 1) if declared.shape[3] <= 4 else values

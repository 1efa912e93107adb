"""A NumPy archive (.npz) of images and labels, whole or as a training and a test part."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from quatcaps.data.custom.archive import Archive, Array, Declared
from quatcaps.data.custom.limits import (
    LONGEST_NAME,
    MOST_CLASSES,
    Custom,
    Progress,
    check_classes,
    check_expansion,
    check_room,
    most_bytes,
    new_images,
)
from quatcaps.data.imageset import VIEWPOINT_FIELDS, ImageSet, digest_of
from quatcaps.errors import QuatcapsError


class Convention(NamedTuple):
    """What the arrays of images and of labels are called, and how their names say to which split they belong."""

    images: str
    labels: str
    splits: dict[str, str]


CONVENTIONS = (
    Convention("images", "labels", {"all": "{}"}),
    Convention("images", "labels", {"train": "train_{}", "test": "test_{}"}),
    Convention("x", "y", {"train": "{}_train", "test": "{}_test"}),
)
_HOLDS = "images, labels; or train_images, train_labels, test_images, test_labels; or x_train, y_train, x_test, y_test"
_LAST_CODES = {"azimuth": (35, "tens of degrees"), "elevation": (12, "steps of 5° from 30°")}
_LAST_CODE = 2**31 - 1
_NAMES_SHOWN = 12


@dataclass(frozen=True)
class Part:
    """The arrays of one split, as declared."""

    images: Declared
    labels: Declared
    info: dict[str, Declared]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.images, self.labels, *self.info.values()))

    @property
    def compressed(self) -> int:
        """Bytes of the file."""
        return sum(array.entry.compress_size for array in (self.images, self.labels, *self.info.values()))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, channels, height, width) of the images."""
        sides = self.images.shape
        if len(sides) == 3:
            return sides[0], 1, sides[1], sides[2]
        return (sides[0], sides[3], sides[1], sides[2]) if sides[3] <= 4 else (sides[0], sides[1], sides[2], sides[3])


def read(path: Path, *, progress: Progress | None = None, limit: int | None = None) -> Custom:
    """The images and labels in a .npz file.

    Images are uint8 of shape (N, height, width), (N, height, width, channels) or (N, channels, height, width); labels
    integers of shape (N,) or (N, 1). Optional: `classes`, their names, and viewpoint columns named like the images.
    Images come as they are stored: to scale them is the caller's part. `limit`: in bytes, a third of the memory unless
    told otherwise; more are refused before any is read. `progress` counts images.
    """
    with Archive(path) as archive:
        parts = _parts(archive)
        needed = sum(part.nbytes for part in parts.values())
        check_room(path, needed, most_bytes(limit), "store fewer or smaller images")
        check_expansion(path, needed, sum(part.compressed for part in parts.values()))
        labels = {split: _labels(archive, part.labels) for split, part in parts.items()}
        classes = _classes(archive, labels)
        info = [_viewpoints(archive, part.info) for part in parts.values()]
        counts = {split: part.shape[0] for split, part in parts.items()}
        total, done = sum(counts.values()), 0
        stored = new_images(path, (total, *next(iter(parts.values())).shape[1:]))
        for part in parts.values():
            each, before = part.images.nbytes // part.shape[0], done

            def count(nbytes: int, each: int = each, before: int = before) -> None:
                if progress is not None:
                    progress(before + nbytes // each, total)

            done += part.shape[0]
            archive.fill(_as_stored(stored[before:done], part.images), part.images, count)
        images = ImageSet(
            name=path.stem,
            stored=stored,
            labels=torch.cat(list(labels.values())),
            classes=classes,
            info={field: torch.cat([columns[field] for columns in info]) for field in info[0]},
            digest=digest_of(sorted(archive.digests.items())),
        )
    return Custom(images, counts)


def fingerprint(path: Path) -> str:
    """64 hexadecimal digits that change with the arrays: from their names, lengths and checksums."""
    digest = hashlib.sha256()
    with Archive(path) as archive:
        for name, entry in sorted(archive.entries.items()):
            digest.update(f"{name!a}\0{entry.file_size}\0{entry.CRC}\0".encode())
    return digest.hexdigest()


def _parts(archive: Archive) -> dict[str, Part]:
    """The arrays of each split, checked against each other by what their headers say."""
    found = [
        convention
        for convention in CONVENTIONS
        if any(pattern.format(convention.images) in archive.entries for pattern in convention.splits.values())
    ]
    if len(found) != 1:
        names = [f"{name[:40]!a}" for name in list(archive.entries)[:_NAMES_SHOWN]]
        more = ", …" if len(archive.entries) > _NAMES_SHOWN else ""
        what = "several sets of images" if found else "no images"
        raise QuatcapsError(
            f"{archive.path} holds {what} ({', '.join(names)}{more}): store {_HOLDS}, and only one of these"
        )
    (convention,) = found
    images, labels, splits = convention
    needed = [pattern.format(what) for pattern in splits.values() for what in (images, labels)]
    missing = [name for name in needed if name not in archive.entries]
    if missing:
        raise QuatcapsError(f"{archive.path} has no {', '.join(missing)}: store {_HOLDS}")
    parts: dict[str, Part] = {}
    for split, pattern in splits.items():
        columns = {field: pattern.format(field) for field in VIEWPOINT_FIELDS}
        parts[split] = Part(
            _checked_images(archive, pattern.format(images)),
            archive.declared(pattern.format(labels)),
            {field: archive.declared(name) for field, name in columns.items() if name in archive.entries},
        )
        for column in (parts[split].labels, *parts[split].info.values()):
            _check_column(archive.path, column, parts[split].images)
    first, last = parts[next(iter(parts))], parts[list(parts)[-1]]
    if first.shape[1:] != last.shape[1:]:
        raise QuatcapsError(
            f"{archive.path}: {first.images.name} has shape {first.images.shape} and {last.images.name} "
            f"{last.images.shape}: store images of the same size and channels"
        )
    if first.info.keys() != last.info.keys():
        odd = ", ".join(sorted(first.info.keys() ^ last.info.keys()))
        raise QuatcapsError(f"{archive.path} has {odd} for one of train and test only: store it for both or neither")
    return parts


def _checked_images(archive: Archive, name: str) -> Declared:
    array = archive.declared(name)
    where = f"{name} in {archive.path}"
    if array.dtype.kind == "f":
        raise QuatcapsError(f"{where} is {array.dtype}: store (255 * images).round().astype('uint8') if it is 0 … 1")
    if array.dtype != np.uint8:
        raise QuatcapsError(f"{where} is {array.dtype}: store bytes from 0 to 255, as images.astype('uint8')")
    if len(array.shape) == 4 and array.shape[1] <= 4 and array.shape[3] <= 4:
        raise QuatcapsError(
            f"{where} has shape {array.shape}, whose channels may be first or last: store (N, H, W, C) "
            "with sides of 5 pixels or more"
        )
    if len(array.shape) not in (3, 4) or (len(array.shape) == 4 and min(array.shape[1], array.shape[3]) > 4):
        raise QuatcapsError(f"{where} has shape {array.shape}: store (N, H, W), or (N, H, W, C) with 1 to 4 channels")
    return array


def _check_column(path: Path, column: Declared, images: Declared) -> None:
    if column.dtype.kind not in "iu":
        raise QuatcapsError(f"{column.name} in {path} is {column.dtype}: store integers")
    count = images.shape[0]
    if column.shape not in ((count,), (count, 1)):
        raise QuatcapsError(
            f"{column.name} in {path} has shape {column.shape}: store ({count},), one for each of {images.name}"
        )


def _labels(archive: Archive, declared: Declared) -> Tensor:
    """(N,) int64."""
    values = archive.read(declared).reshape(-1)
    lowest, highest = int(values.min()), int(values.max())
    if lowest < 0 or highest >= MOST_CLASSES:
        raise QuatcapsError(
            f"{declared.name} in {archive.path} runs from {lowest} to {highest}: number classes from 0, up to "
            f"{MOST_CLASSES - 1} at most"
        )
    return torch.from_numpy(values.astype(np.int64))


def _viewpoints(archive: Archive, columns: Mapping[str, Declared]) -> dict[str, Tensor]:
    """Viewpoint codes by field, (N,) int64."""
    read: dict[str, Tensor] = {}
    for field, declared in columns.items():
        values = archive.read(declared).reshape(-1)
        last, unit = _LAST_CODES.get(field, (_LAST_CODE, "numbers"))
        lowest, highest = int(values.min()), int(values.max())
        if lowest < 0 or highest > last:
            raise QuatcapsError(
                f"{declared.name} in {archive.path} runs from {lowest} to {highest}: store {unit}, from 0 to {last}"
            )
        read[field] = torch.from_numpy(values.astype(np.int64))
    return read


def _classes(archive: Archive, labels: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The stored names, or the numbers of the classes."""
    count = 1 + max(int(column.max()) for column in labels.values())
    if "classes" not in archive.entries:
        names = tuple(map(str, range(count)))
    else:
        declared = archive.declared("classes")
        where = f"classes in {archive.path}"
        if declared.dtype.kind != "U" or len(declared.shape) != 1:
            raise QuatcapsError(
                f"{where} is {declared.dtype} of shape {declared.shape}: store numpy.array(list_of_names)"
            )
        if declared.shape[0] > MOST_CLASSES or declared.dtype.itemsize > 4 * LONGEST_NAME:
            raise QuatcapsError(
                f"{where} has {declared.shape[0]:,} names of up to {declared.dtype.itemsize // 4:,} letters: at most "
                f"{MOST_CLASSES:,} of {LONGEST_NAME} are read"
            )
        names = _text(where, archive.read(declared))
        if len(names) < count:
            raise QuatcapsError(
                f"{where} names {len(names)} classes, but labels run up to {count - 1}: name all {count}"
            )
    check_classes(archive.path, names)
    return names


def _text(where: str, values: Array) -> tuple[str, ...]:
    # NumPy would make strings of any 32 bits, which are no text in Python, or an error inside it.
    if values.astype(values.dtype.newbyteorder("<")).view("<u4").max() > sys.maxunicode:
        raise QuatcapsError(f"{where} is damaged (it has characters that do not exist): write the file again")
    return tuple(map(str, values.tolist()))


def _as_stored(images: Tensor, declared: Declared) -> Array:
    """(N, channels, height, width) in the order of dimensions in which the file has them; a view."""
    values = images.numpy()
    if len(declared.shape) == 3:
        return values[:, 0]
    return values.transpose(0, 2, 3, 1) if declared.shape[3] <= 4 else values

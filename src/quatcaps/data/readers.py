"""The published datasets' files become images, labels and, where there are any, viewpoints.

A reader gives the images of one split and which content it read: files are verified by that, however they were packed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from quatcaps.data.catalogue import DESCRIPTIONS, Description
from quatcaps.data.formats import cifar, matrices
from quatcaps.data.formats.reader import Bytes, Reader, one_of, opened
from quatcaps.data.imageset import ImageSet, Progress, check_size, shrink
from quatcaps.errors import QuatcapsError, unknown_name

Files = Mapping[str, Path]
"""Published name without .gz → the file, gzipped or not."""
Read = tuple[ImageSet, dict[str, str]]
"""The images of a split, and of each of its files, by published name without .gz, the SHA-256 of its content."""

INSTANCES = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}
"""smallNORB's toys in each split."""


def read_split(name: str, split: str, files: Files, size: int, progress: Progress | None = None) -> Read:
    """A split of a published dataset. size: the side of the images, which are shrunk; progress counts images."""
    known = DESCRIPTIONS[name]
    if split not in known.counts:
        raise unknown_name(f"split of {known.title}", split, known.counts)
    check_size(size, known.side)
    return READERS[name](known, split, files, size, progress)


def read_mnist(known: Description, split: str, files: Files, size: int, progress: Progress | None) -> Read:
    """MNIST and FashionMNIST: two IDX files a split, of images and of labels."""
    images_path, labels_path = _paths(known, split, files)
    count = known.counts[split]
    with opened(labels_path) as labels_file:
        labels = matrices.idx_array(labels_file, (count,))
        one_of(labels, range(10), "label", labels_file.name)
    with opened(images_path) as images_file:
        matrices.idx_header(images_file, (count, known.side, known.side))
        images = gather(images_file.blocks(count, (1, known.side, known.side)), count, 1, size, progress)
        images_file.end()
    return _read(known, split, images, labels, (images_file.digest, labels_file.digest))


def read_smallnorb(known: Description, split: str, files: Files, size: int, progress: Progress | None) -> Read:
    """smallNORB: stereo pairs, left camera first, categories and viewpoints in three matrices a split."""
    images_path, labels_path, info_path = _paths(known, split, files)
    count, shape = known.counts[split], (2, known.side, known.side)
    allowed = {
        "instance": INSTANCES[split],
        "elevation": range(9),
        "azimuth": range(0, 36, 2),
        "lighting": range(6),
    }
    with opened(labels_path) as labels_file:
        labels = matrices.norb_integers(labels_file, (count,))
        one_of(labels, range(5), "category", labels_file.name)
    with opened(info_path) as info_file:
        table = matrices.norb_integers(info_file, (count, len(allowed)))
        for column, (what, codes) in enumerate(allowed.items()):
            one_of(table[:, column], codes, what, info_file.name)
    with opened(images_path) as images_file:
        matrices.norb_header(images_file, matrices.NORB_BYTES, (count, *shape))
        images = gather(images_file.blocks(count, shape), count, 2, size, progress)
        images_file.end()
    info = {what: table[:, column] for column, what in enumerate(allowed)}
    return _read(known, split, images, labels, (images_file.digest, labels_file.digest, info_file.digest), info)


def read_svhn(known: Description, split: str, files: Files, size: int, progress: Progress | None) -> Read:
    """SVHN, cropped digits: one MATLAB 5 file a split with images X and labels y, 10 for the digit 0.

    The content's digest is that of the bytes of X, in the order of the file, and then of the digits, one byte each:
    compression and storage types leave it as it is.
    """
    (path,) = _paths(known, split, files)
    count = known.counts[split]
    wanted = {
        "X": matrices.Wanted((known.side, known.side, 3, count)),
        "y": matrices.Wanted((count, 1), ("uint8", "double")),
    }
    digest = hashlib.sha256()
    with opened(path, hashed=False) as reader:
        for variable in matrices.variables(reader, wanted):
            if variable.name == "X":
                images = gather(_upright(variable.blocks(), digest.update), count, 3, size, progress)
            else:
                labels = np.concatenate([*variable.blocks()])[0]
                one_of(labels, range(11), "label", reader.name)
    digits = labels % np.uint8(10)
    digest.update(digits)
    return _read(known, split, images, digits, (digest.hexdigest(),))


def read_cifar10(known: Description, split: str, files: Files, size: int, progress: Progress | None) -> Read:
    """CIFAR-10: batches in the binary or the Python version, as files or in the published archive.

    The first complete set of files is read, in the order of the description's `forms`. The contents are always those of
    the binary version, to which the Python version is equal.
    """
    names, total = known.names(split), known.counts[split]
    count = total // len(names)
    images, labels = np.empty((total, 3, size, size), dtype=np.uint8), np.empty(total, dtype=np.uint8)
    contents: dict[str, str] = {}
    for name, rows in _cifar10_batches(known, split, files, count):
        batch = slice(count * names.index(name), count * (names.index(name) + 1))
        labels[batch] = rows[:, 0]
        images[batch] = shrink(rows[:, 1:].reshape(count, 3, 32, 32), size)
        contents[name] = hashlib.sha256(rows.data).hexdigest()
        if progress is not None:
            progress(count * len(contents), total)
    return _read(known, split, images, labels, [contents[name] for name in names])


def _cifar10_batches(known: Description, split: str, files: Files, count: int) -> Iterator[tuple[str, Bytes]]:
    """The binary version's name and rows of each batch, in any order."""
    binary = known.names(split)
    pickled = tuple(name.removesuffix(".bin") for name in binary)
    parsers: dict[str, Callable[[Reader, int], Bytes]] = dict.fromkeys(binary, cifar.binary_rows)
    parsers |= dict.fromkeys(pickled, cifar.pickled_rows)
    for names in (binary, pickled):
        if all(name in files for name in names):
            for name, published in zip(names, binary, strict=True):
                with opened(files[name], hashed=False) as reader:
                    yield published, parsers[name](reader, count)
            return
    for names, archive, largest in (
        (binary, "cifar-10-binary.tar", count * cifar.ROW),
        (pickled, "cifar-10-python.tar", cifar.LARGEST_PICKLE),
    ):
        if archive in files:
            with opened(files[archive], hashed=False) as reader:
                for name, member in cifar.members(reader, names, largest=largest):
                    yield f"{name.removesuffix('.bin')}.bin", parsers[name](member, count)
            return
    missing = [name for name in binary if name not in files]
    raise QuatcapsError(
        f"{known.title} {split} lacks {', '.join(missing)}: download them, or the same of the Python version, or "
        "cifar-10-binary.tar.gz, or cifar-10-python.tar.gz"
    )


READERS: dict[str, Callable[[Description, str, Files, int, Progress | None], Read]] = {
    "smallnorb": read_smallnorb,
    "mnist": read_mnist,
    "fashionmnist": read_mnist,
    "svhn": read_svhn,
    "cifar10": read_cifar10,
}


def gather(blocks: Iterable[Bytes], count: int, channels: int, size: int, progress: Progress | None = None) -> Bytes:
    """Images from blocks (some, channels, side, side), each shrunk as it comes: (count, channels, size, size)."""
    images = np.empty((count, channels, size, size), dtype=np.uint8)
    done = 0
    for block in blocks:
        images[done : done + len(block)] = shrink(block, size)
        done += len(block)
        if progress is not None:
            progress(done, count)
    return images


def _paths(known: Description, split: str, files: Files) -> tuple[Path, ...]:
    """The files that a split needs; an error that names those not in `files`."""
    missing = [name for name in known.names(split) if name not in files]
    if missing:
        raise QuatcapsError(f"{known.title} {split} lacks {', '.join(missing)}: download these files, plain or as .gz")
    return tuple(files[name] for name in known.names(split))


def _read(
    known: Description,
    split: str,
    images: Bytes,
    labels: npt.NDArray[Any],
    digests: Iterable[str],
    info: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Read:
    """digests: of the contents of the split's files."""
    columns = {name: torch.from_numpy(column.astype(np.int64)) for name, column in (info or {}).items()}
    numbers = torch.from_numpy(labels.astype(np.int64))
    found = ImageSet(f"{known.title} {split}", torch.from_numpy(images), numbers, known.classes, columns)
    return found, dict(zip(known.names(split), digests, strict=True))


def _upright(blocks: Iterable[Bytes], update: Callable[[memoryview], None]) -> Iterator[Bytes]:
    """Images (some, 3, column, row) as the file has them, as (some, 3, row, column); `update` is given their bytes."""
    for block in blocks:
        update(block.data)
        yield block.swapaxes(2, 3)

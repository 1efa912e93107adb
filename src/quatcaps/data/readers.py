"""The published datasets' files become images, labels and, where there are any, viewpoints.

Each reader has `splits`, the published names that a split needs, and reads one split. What it gives says which content
it read: files are verified by that, however they were packed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quatcaps.data.formats import cifar, mat5, matrices
from quatcaps.data.formats.reader import Bytes, Reader, one_of, opened
from quatcaps.data.shrink import Progress, check_size, gather, shrink
from quatcaps.errors import QuatcapsError, unknown_name

Files = Mapping[str, Path]
"""Published name without .gz → the file, gzipped or not."""
Names = Mapping[str, tuple[str, ...]]
"""Split → published names of its files."""


@dataclass(frozen=True)
class Read:
    """One split as its authors' files hold it."""

    images: Tensor  # (N, channels, size, size) uint8
    labels: Tensor  # (N,) int64
    contents: dict[str, str]  # published file name without .gz → SHA-256 of its content
    info: dict[str, Tensor]  # viewpoints, (N,) int64 each; empty where there are none


class DatasetReader(Protocol):
    """Reads a split of one dataset. size: the side of the images, which are shrunk; progress(done, total) counts
    images."""

    @property
    def splits(self) -> Names: ...

    def __call__(self, split: str, files: Files, size: int, progress: Progress | None = None) -> Read: ...


@dataclass(frozen=True)
class Mnist:
    """MNIST and FashionMNIST: two IDX files a split, of 28×28 images and of labels."""

    train: int = 60_000
    test: int = 10_000
    splits: ClassVar[Names] = {
        "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    }

    def __call__(self, split: str, files: Files, size: int, progress: Progress | None = None) -> Read:
        images_path, labels_path = _paths("MNIST", split, self.splits, files)
        count, side = getattr(self, split), 28
        check_size(size, side)
        with opened(labels_path) as reader:
            labels = matrices.idx_array(reader, (count,))
            one_of(labels, range(10), "label", reader.name)
            labels_digest = reader.digest
        with opened(images_path) as reader:
            matrices.idx_header(reader, (count, side, side))
            images = gather(reader.blocks(count, (1, side, side)), count, 1, size, progress)
            reader.end()
            digests = (reader.digest, labels_digest)
        return _read(images, labels, dict(zip(self.splits[split], digests, strict=True)))


@dataclass(frozen=True)
class SmallNorb:
    """smallNORB: stereo pairs of 96×96, left camera first, categories and viewpoints in three matrices a split."""

    count: int = 24_300
    splits: ClassVar[Names] = {
        split: tuple(f"smallnorb-5x{instances}x9x18x6x2x96x96-{word}-{part}.mat" for part in ("dat", "cat", "info"))
        for split, instances, word in (("train", "46789", "training"), ("test", "01235", "testing"))
    }
    instances: ClassVar[dict[str, tuple[int, ...]]] = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}

    def __call__(self, split: str, files: Files, size: int, progress: Progress | None = None) -> Read:
        images_path, labels_path, info_path = _paths("smallNORB", split, self.splits, files)
        count, side = self.count, 96
        check_size(size, side)
        allowed = {
            "instance": self.instances[split],
            "elevation": range(9),
            "azimuth": range(0, 36, 2),
            "lighting": range(6),
        }
        with opened(labels_path) as reader:
            labels = matrices.norb_integers(reader, (count,))
            one_of(labels, range(5), "category", reader.name)
            labels_digest = reader.digest
        with opened(info_path) as reader:
            table = matrices.norb_integers(reader, (count, len(allowed)))
            for column, (what, codes) in enumerate(allowed.items()):
                one_of(table[:, column], codes, what, reader.name)
            info_digest = reader.digest
        with opened(images_path) as reader:
            matrices.norb_header(reader, matrices.NORB_BYTES, (count, 2, side, side))
            images = gather(reader.blocks(count, (2, side, side)), count, 2, size, progress)
            reader.end()
            digests = (reader.digest, labels_digest, info_digest)
        columns = {what: table[:, column] for column, what in enumerate(allowed)}
        return _read(images, labels, dict(zip(self.splits[split], digests, strict=True)), columns)


@dataclass(frozen=True)
class Svhn:
    """SVHN, cropped digits: one MATLAB 5 file a split with 32×32 images X and labels y, 10 for the digit 0.

    The content's digest is that of the bytes of X, in the order of the file, and then of the digits, one byte each:
    compression and storage types leave it as it is.
    """

    train: int = 73_257
    test: int = 26_032
    splits: ClassVar[Names] = {"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)}

    def __call__(self, split: str, files: Files, size: int, progress: Progress | None = None) -> Read:
        (path,) = _paths("SVHN", split, self.splits, files)
        count, side = getattr(self, split), 32
        check_size(size, side)
        wanted = {
            "X": mat5.Wanted((side, side, 3, count)),
            "y": mat5.Wanted((count, 1), ("uint8", "double")),
        }
        digest = hashlib.sha256()
        with opened(path, hashed=False) as reader:
            for variable in mat5.variables(reader, wanted):
                if variable.name == "X":
                    images = gather(_upright(variable.blocks(), digest.update), count, 3, size, progress)
                else:
                    labels = np.concatenate([*variable.blocks()])[0]
                    one_of(labels, range(11), "label", reader.name)
        digits = labels % np.uint8(10)
        digest.update(digits)
        return _read(images, digits, {self.splits[split][0]: digest.hexdigest()})


@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10: batches of 32×32 images in the binary or the Python version, as files or in the published archive.

    The first complete set of files is read, in the order of `versions`. The contents are always those of the binary
    version, to which the Python version is equal.
    """

    count: int = cifar.ROWS  # images of a batch
    splits: ClassVar[Names] = {
        "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        "test": ("test_batch.bin",),
    }
    python: ClassVar[Names] = {
        split: tuple(name.removesuffix(".bin") for name in names) for split, names in splits.items()
    }
    binary_archive, python_archive = "cifar-10-binary.tar", "cifar-10-python.tar"
    versions = (
        (*splits["train"], *splits["test"]),
        (*python["train"], *python["test"]),
        (binary_archive,),
        (python_archive,),
    )

    def __call__(self, split: str, files: Files, size: int, progress: Progress | None = None) -> Read:
        if split not in self.splits:
            raise unknown_name("split of CIFAR-10", split, self.splits)
        check_size(size, 32)
        names, count = self.splits[split], self.count
        total = count * len(names)
        images, labels = np.empty((total, 3, size, size), dtype=np.uint8), np.empty(total, dtype=np.uint8)
        contents: dict[str, str] = {}
        for name, rows in self.batches(split, files):
            batch = slice(count * names.index(name), count * (names.index(name) + 1))
            labels[batch] = rows[:, 0]
            images[batch] = shrink(rows[:, 1:].reshape(count, 3, 32, 32), size)
            contents[name] = hashlib.sha256(rows.data).hexdigest()
            if progress is not None:
                progress(count * len(contents), total)
        return _read(images, labels, {name: contents[name] for name in names})

    def batches(self, split: str, files: Files) -> Iterator[tuple[str, Bytes]]:
        """The binary version's name and rows of each batch, in any order."""
        binary, pickled = self.splits[split], self.python[split]
        parsers: dict[str, Callable[[Reader, int], Bytes]] = dict.fromkeys(binary, cifar.binary_rows)
        parsers |= dict.fromkeys(pickled, cifar.pickled_rows)
        for names in (binary, pickled):
            if all(name in files for name in names):
                for name, published in zip(names, binary, strict=True):
                    with opened(files[name], hashed=False) as reader:
                        yield published, parsers[name](reader, self.count)
                return
        for names, archive, largest in (
            (binary, self.binary_archive, self.count * cifar.ROW),
            (pickled, self.python_archive, cifar.LARGEST_PICKLE),
        ):
            path = files.get(archive) or files.get(f"{archive}.gz")
            if path is not None:
                with opened(path, hashed=False) as reader:
                    for name, member in cifar.members(reader, names, largest=largest):
                        yield f"{name.removesuffix('.bin')}.bin", parsers[name](member, self.count)
                return
        missing = [name for name in binary if name not in files]
        raise QuatcapsError(
            f"CIFAR-10 {split} lacks {', '.join(missing)}: download them, or the same of the Python version, or "
            "cifar-10-binary.tar.gz, or cifar-10-python.tar.gz"
        )


READERS: dict[str, DatasetReader] = {
    "smallnorb": SmallNorb(),
    "mnist": Mnist(),
    "fashionmnist": Mnist(),
    "svhn": Svhn(),
    "cifar10": Cifar10(),
}


def _read(
    images: Bytes,
    labels: npt.NDArray[Any],
    contents: dict[str, str],
    info: Mapping[str, npt.NDArray[np.int32]] | None = None,
) -> Read:
    columns = {name: torch.from_numpy(column.astype(np.int64)) for name, column in (info or {}).items()}
    return Read(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)), contents, columns)


def _paths(dataset: str, split: str, splits: Names, files: Files) -> tuple[Path, ...]:
    """The files that a split needs, in the order of `splits`; an error that names those not in `files`."""
    if split not in splits:
        raise unknown_name(f"split of {dataset}", split, splits)
    missing = [name for name in splits[split] if name not in files]
    if missing:
        raise QuatcapsError(f"{dataset} {split} lacks {', '.join(missing)}: download these files, plain or as .gz")
    return tuple(files[name] for name in splits[split])


def _upright(blocks: Iterable[Bytes], update: Callable[[memoryview], None]) -> Iterator[Bytes]:
    """Images (some, 3, column, row) as the file has them, as (some, 3, row, column); `update` is given their bytes."""
    for block in blocks:
        update(block.data)
        yield block.swapaxes(2, 3)

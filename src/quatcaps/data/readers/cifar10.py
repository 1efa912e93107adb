"""CIFAR-10: batches of 10,000 images in the binary or the Python version, as files or in the published archive."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from quatcaps.data.formats import archives, cifar, pickles
from quatcaps.data.formats.shrink import Progress, check_size, shrink
from quatcaps.data.formats.streams import Bytes, Reader, opened
from quatcaps.data.readers import Read
from quatcaps.errors import QuatcapsError, unknown_name

SPLITS = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
PYTHON = {split: tuple(name.removesuffix(".bin") for name in names) for split, names in SPLITS.items()}
BINARY_ARCHIVE, PYTHON_ARCHIVE = "cifar-10-binary.tar", "cifar-10-python.tar"
VERSIONS = (
    (*SPLITS["train"], *SPLITS["test"]),
    (*PYTHON["train"], *PYTHON["test"]),
    (BINARY_ARCHIVE,),
    (PYTHON_ARCHIVE,),
)
"""Files that hold both splits, by their names without .gz, the preferred ones first."""

SIDE = 32


def read(
    split: str,
    files: Mapping[str, Path],
    *,
    size: int,
    progress: Progress | None = None,
    count: int = cifar.ROWS,
) -> Read:
    """A split's images (N, 3, size, size) and labels 0 … 9; size divides 32.

    files: published name → the file, of which the first complete set of these is read: data_batch_1.bin … or
    test_batch.bin, data_batch_1 … or test_batch, cifar-10-binary.tar, cifar-10-python.tar; the archives' names may end
    in .gz. count: the images there must be in a batch. progress(done, total) counts images. The contents are always
    those of the binary version, to which the Python version is equal.
    """
    if split not in SPLITS:
        raise unknown_name("split of CIFAR-10", split, SPLITS)
    check_size(size, SIDE)
    names = SPLITS[split]
    total = count * len(names)
    images = np.empty((total, 3, size, size), dtype=np.uint8)
    labels = np.empty(total, dtype=np.int64)
    contents: dict[str, str] = {}
    for name, rows in _batches(split, files, count):
        start = count * names.index(name)
        labels[start : start + count] = rows[:, 0]
        images[start : start + count] = shrink(rows[:, 1:].reshape(count, 3, SIDE, SIDE), size)
        contents[name] = hashlib.sha256(rows.data).hexdigest()
        if progress is not None:
            progress(count * len(contents), total)
    return Read(
        images=torch.from_numpy(images),
        labels=torch.from_numpy(labels),
        info={},
        contents={name: contents[name] for name in names},
    )


def _batches(split: str, files: Mapping[str, Path], count: int) -> Iterator[tuple[str, Bytes]]:
    """The binary version's name and rows of each batch, in any order."""
    parsers: dict[str, Callable[[Reader, int], Bytes]] = dict.fromkeys(SPLITS[split], cifar.rows)
    parsers |= dict.fromkeys(PYTHON[split], pickles.rows)
    for names in (SPLITS[split], PYTHON[split]):
        if all(name in files for name in names):
            for name, published in zip(names, SPLITS[split], strict=True):
                with opened(files[name], hashed=False) as reader:
                    yield published, parsers[name](reader, count)
            return
    for names, archive, largest in (
        (SPLITS[split], BINARY_ARCHIVE, count * cifar.ROW),
        (PYTHON[split], PYTHON_ARCHIVE, pickles.LARGEST),
    ):
        for key in (archive, f"{archive}.gz"):
            if key in files:
                with opened(files[key], hashed=False) as reader:
                    for name, member in archives.members(reader, names, largest=largest):
                        yield f"{name.removesuffix('.bin')}.bin", parsers[name](member, count)
                return
    missing = [name for name in SPLITS[split] if name not in files]
    raise QuatcapsError(
        f"CIFAR-10 {split} lacks {', '.join(missing)}: download them, or the same of the Python version, or "
        "cifar-10-binary.tar.gz, or cifar-10-python.tar.gz"
    )

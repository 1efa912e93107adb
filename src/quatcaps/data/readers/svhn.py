"""SVHN, cropped digits: one MATLAB 5 file a split with images X and labels y."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from quatcaps.data.formats import mat5
from quatcaps.data.formats.checks import one_of
from quatcaps.data.formats.shrink import Progress, check_size, gather
from quatcaps.data.formats.streams import Bytes, opened
from quatcaps.data.readers import Read, paths

SPLITS = {"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)}
COUNTS = {"train": 73_257, "test": 26_032}
SIDE = 32
_ZERO = 10
"""The label of the digit 0."""


def read(
    split: str, files: Mapping[str, Path], *, size: int, progress: Progress | None = None, count: int | None = None
) -> Read:
    """A split's images (N, 3, size, size) and digits 0 … 9; size divides 32.

    files: published name → the file. count: the images there must be, 73,257 or 26,032 by default.
    progress(done, total) counts images. The content's digest is that of the bytes of X, in the order of the file, and
    then of the digits, one byte each: compression and storage types leave it as it is.
    """
    (path,) = paths("SVHN", split, SPLITS, files)
    count = COUNTS[split] if count is None else count
    check_size(size, SIDE)
    wanted = {
        "X": mat5.Wanted((SIDE, SIDE, 3, count)),
        "y": mat5.Wanted((count, 1), ("uint8", "double")),
    }
    digest = hashlib.sha256()
    with opened(path, hashed=False) as reader:
        for variable in mat5.variables(reader, wanted):
            if variable.name == "X":
                images = gather(_upright(variable.blocks(), digest.update), count, 3, size, progress)
            else:
                labels = np.concatenate([*variable.blocks()])[0]
                one_of(labels, range(_ZERO + 1), "label", reader.name)
    digits = labels % np.uint8(_ZERO)
    digest.update(digits)
    return Read(
        images=torch.from_numpy(images),
        labels=torch.from_numpy(digits.astype(np.int64)),
        info={},
        contents={SPLITS[split][0]: digest.hexdigest()},
    )


def _upright(blocks: Iterable[Bytes], update: Callable[[memoryview], None]) -> Iterator[Bytes]:
    """Images (some, 3, column, row) as the file has them, as (some, 3, row, column); `update` is given their bytes."""
    for block in blocks:
        update(block.data)
        yield block.swapaxes(2, 3)

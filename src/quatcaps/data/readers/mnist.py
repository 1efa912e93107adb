"""MNIST and FashionMNIST: two IDX files a split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from quatcaps.data.formats import idx
from quatcaps.data.formats.checks import one_of
from quatcaps.data.formats.shrink import Progress, check_size, gather
from quatcaps.data.formats.streams import opened
from quatcaps.data.readers import Read, paths

SPLITS = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
COUNTS = {"train": 60_000, "test": 10_000}
SIDE = 28
CLASSES = 10


def read(
    split: str, files: Mapping[str, Path], *, size: int, progress: Progress | None = None, count: int | None = None
) -> Read:
    """A split's images (N, 1, size, size) and labels; size divides 28.

    files: published name without .gz → the file, plain or gzipped. count: the images there must be, 60,000 or 10,000 by
    default. progress(done, total) counts images.
    """
    found = paths("MNIST", split, SPLITS, files)
    count = COUNTS[split] if count is None else count
    check_size(size, SIDE)
    with opened(found[1]) as reader:
        labels = idx.array(reader, (count,))
        one_of(labels, range(CLASSES), "label", reader.name)
        labels_digest = reader.digest
    with opened(found[0]) as reader:
        idx.header(reader, (count, SIDE, SIDE))
        images = gather(reader.blocks(count, (1, SIDE, SIDE)), count, 1, size, progress)
        reader.end()
        images_digest = reader.digest
    return Read(
        images=torch.from_numpy(images),
        labels=torch.from_numpy(labels.astype(np.int64)),
        info={},
        contents=dict(zip(SPLITS[split], (images_digest, labels_digest), strict=True)),
    )

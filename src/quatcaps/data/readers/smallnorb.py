"""smallNORB: stereo pairs, categories and viewpoints in three binary matrices a split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from quatcaps.data.formats import norb
from quatcaps.data.formats.checks import one_of
from quatcaps.data.formats.shrink import Progress, check_size
from quatcaps.data.formats.streams import opened
from quatcaps.data.readers import Read, paths

_STEMS = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
SPLITS = {split: tuple(f"{stem}-{part}.mat" for part in ("dat", "cat", "info")) for split, stem in _STEMS.items()}
INSTANCES = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}
COUNT = 24_300
SIDE = 96
CATEGORIES = 5


def read(
    split: str, files: Mapping[str, Path], *, size: int, progress: Progress | None = None, count: int = COUNT
) -> Read:
    """A split's stereo pairs (N, 2, size, size), left camera first, categories 0 … 4 and viewpoints; size divides 96.

    files: published name without .gz → the file, plain or gzipped. count: the pairs there must be, 24,300 by default.
    progress(done, total) counts pairs. Viewpoint codes: instance as in INSTANCES, elevation 0 … 8, azimuth 0, 2, … 34,
    lighting 0 … 5.
    """
    images_path, labels_path, info_path = paths("smallNORB", split, SPLITS, files)
    check_size(size, SIDE)
    allowed = {
        "instance": INSTANCES[split],
        "elevation": range(9),
        "azimuth": tuple(range(0, 36, 2)),
        "lighting": range(6),
    }
    digests = {}
    with opened(labels_path) as reader:
        labels = norb.integers(reader, (count,))
        one_of(labels, range(CATEGORIES), "category", reader.name)
        digests["cat"] = reader.digest
    with opened(info_path) as reader:
        table = norb.integers(reader, (count, len(allowed)))
        for column, (what, codes) in enumerate(allowed.items()):
            one_of(table[:, column], codes, what, reader.name)
        digests["info"] = reader.digest
    with opened(images_path) as reader:
        images = norb.images(reader, (count, 2, SIDE, SIDE), size, progress)
        digests["dat"] = reader.digest
    columns = table.astype(np.int64).T.copy()
    return Read(
        images=torch.from_numpy(images),
        labels=torch.from_numpy(labels.astype(np.int64)),
        info={what: torch.from_numpy(values) for what, values in zip(allowed, columns, strict=True)},
        contents=dict(zip(SPLITS[split], (digests["dat"], digests["cat"], digests["info"]), strict=True)),
    )

"""CIFAR-10's binary version: rows of one label and 3,072 pixels, red, green, blue, each 32×32."""

from __future__ import annotations

import numpy as np

from quatcaps.data.formats.checks import one_of
from quatcaps.data.formats.streams import Bytes, Reader

CLASSES = 10
PIXELS = 3 * 32 * 32
ROW = 1 + PIXELS
ROWS = 10_000
"""In each published file."""


def rows(reader: Reader, count: int = ROWS) -> Bytes:
    """All of a file of `count` rows: (count, 3073) uint8, the label first."""
    values = np.empty((count, ROW), dtype=np.uint8)
    reader.into(values)
    reader.end()
    one_of(values[:, 0], range(CLASSES), "label", reader.name)
    return values

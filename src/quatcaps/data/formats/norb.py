"""NORB's binary matrices: a little-endian header with at least three dimensions, then bytes or 32-bit integers."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from quatcaps.data.formats.shrink import Progress, check_size, gather
from quatcaps.data.formats.streams import Bytes, Reader
from quatcaps.errors import QuatcapsError

BYTES, INTEGERS = 0x1E3D4C55, 0x1E3D4C54

_KINDS = {
    BYTES: "bytes",
    INTEGERS: "int32",
    0x1E3D4C51: "float32",
    0x1E3D4C52: "a packed matrix",
    0x1E3D4C53: "float64",
    0x1E3D4C56: "int16",
}


def header(reader: Reader, kind: int, shape: tuple[int, ...]) -> None:
    """Reads the header and raises unless a matrix of `kind`, BYTES or INTEGERS, and of `shape` follows it."""
    magic, dimensions = struct.unpack("<Ii", reader.exactly(8))
    if magic not in _KINDS:
        raise QuatcapsError(
            f"{reader.name} is not a NORB matrix: it begins with 0x{magic:08x}, not with 0x{kind:08x}; "
            "download it again"
        )
    if magic != kind:
        raise QuatcapsError(
            f"{reader.name} holds {_KINDS[magic]}: {_KINDS[kind]} are needed; are dat, cat and info files exchanged?"
        )
    if dimensions != len(shape):
        raise QuatcapsError(
            f"{reader.name} holds a matrix of {dimensions} dimensions: one of {len(shape)}, {shape}, is needed"
        )
    stored = shape + (1,) * (3 - len(shape))
    found = struct.unpack(f"<{len(stored)}i", reader.exactly(4 * len(stored)))
    if found != stored:
        raise QuatcapsError(f"{reader.name} holds a matrix of shape {found}: {stored} is needed")


def images(reader: Reader, shape: tuple[int, int, int, int], size: int, progress: Progress | None = None) -> Bytes:
    """All of a file of images (N, channels, side, side), `shape`, shrunk to (N, channels, size, size) as they come."""
    check_size(size, shape[-1])
    header(reader, BYTES, shape)
    shrunk = gather(reader.blocks(shape[0], shape[1:]), shape[0], shape[1], size, progress)
    reader.end()
    return shrunk


def integers(reader: Reader, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """All of a file of 32-bit integers of `shape`."""
    header(reader, INTEGERS, shape)
    values = np.empty(shape, dtype="<i4")
    reader.into(values.view(np.uint8))
    reader.end()
    return values.astype(np.int32)

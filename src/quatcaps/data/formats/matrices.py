"""Files of one array, a header and then its values: IDX, as MNIST is published, and NORB's binary matrices."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from quatcaps.data.formats.reader import Bytes, Reader
from quatcaps.errors import QuatcapsError

_IDX_TYPES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}

NORB_BYTES, NORB_INTEGERS = 0x1E3D4C55, 0x1E3D4C54
_NORB_TYPES = {
    NORB_BYTES: "bytes",
    NORB_INTEGERS: "int32",
    0x1E3D4C51: "float32",
    0x1E3D4C52: "a packed matrix",
    0x1E3D4C53: "float64",
    0x1E3D4C56: "int16",
}


def idx_header(reader: Reader, shape: tuple[int, ...]) -> None:
    """Reads an IDX file's big-endian header and raises unless unsigned bytes of `shape` follow it."""
    zeros, kind, dimensions = struct.unpack(">HBB", reader.exactly(4))
    if zeros != 0 or kind not in _IDX_TYPES:
        raise QuatcapsError(
            f"{reader.name} is not an IDX file: it begins with {zeros:04x}{kind:02x}{dimensions:02x}, not with "
            f"000008{len(shape):02x}; download it again"
        )
    if kind != 0x08:
        raise QuatcapsError(f"{reader.name} holds {_IDX_TYPES[kind]}: an IDX file of uint8 is needed")
    if dimensions != len(shape):
        raise QuatcapsError(
            f"{reader.name} holds an array of {dimensions} dimensions: one of {len(shape)}, {shape}, is needed; "
            "are images and labels exchanged?"
        )
    found = struct.unpack(f">{dimensions}I", reader.exactly(4 * dimensions))
    if found != shape:
        raise QuatcapsError(
            f"{reader.name} holds an array of shape {found}: {shape} is needed; give the file of that split"
        )


def idx_array(reader: Reader, shape: tuple[int, ...]) -> Bytes:
    """All of an IDX file that holds unsigned bytes of `shape`, and nothing else."""
    idx_header(reader, shape)
    values = np.empty(shape, dtype=np.uint8)
    reader.into(values)
    reader.end()
    return values


def norb_header(reader: Reader, kind: int, shape: tuple[int, ...]) -> None:
    """Reads a little-endian header of at least three dimensions and raises unless a matrix of `kind`, NORB_BYTES or
    NORB_INTEGERS, and of `shape` follows it."""
    magic, dimensions = struct.unpack("<Ii", reader.exactly(8))
    if magic not in _NORB_TYPES:
        raise QuatcapsError(
            f"{reader.name} is not a NORB matrix: it begins with 0x{magic:08x}, not with 0x{kind:08x}; "
            "download it again"
        )
    if magic != kind:
        raise QuatcapsError(
            f"{reader.name} holds {_NORB_TYPES[magic]}: {_NORB_TYPES[kind]} are needed; are dat, cat and info files "
            "exchanged?"
        )
    if dimensions != len(shape):
        raise QuatcapsError(
            f"{reader.name} holds a matrix of {dimensions} dimensions: one of {len(shape)}, {shape}, is needed"
        )
    stored = shape + (1,) * (3 - len(shape))
    found = struct.unpack(f"<{len(stored)}i", reader.exactly(4 * len(stored)))
    if found != stored:
        raise QuatcapsError(f"{reader.name} holds a matrix of shape {found}: {stored} is needed")


def norb_integers(reader: Reader, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """All of a file of 32-bit integers of `shape`."""
    norb_header(reader, NORB_INTEGERS, shape)
    values = np.empty(shape, dtype="<i4")
    reader.into(values.view(np.uint8))
    reader.end()
    return values.astype(np.int32)

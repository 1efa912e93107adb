"""IDX files, as MNIST and its relatives are published: a big-endian header, then bytes."""

from __future__ import annotations

import struct

import numpy as np

from quatcaps.data.formats.streams import Bytes, Reader
from quatcaps.errors import QuatcapsError

_TYPES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}


def header(reader: Reader, shape: tuple[int, ...]) -> None:
    """Reads the header and raises unless unsigned bytes of `shape` follow it."""
    zeros, kind, dimensions = struct.unpack(">HBB", reader.exactly(4))
    if zeros != 0 or kind not in _TYPES:
        raise QuatcapsError(
            f"{reader.name} is not an IDX file: it begins with {zeros:04x}{kind:02x}{dimensions:02x}, not with "
            f"000008{len(shape):02x}; download it again"
        )
    if kind != 0x08:
        raise QuatcapsError(f"{reader.name} holds {_TYPES[kind]}: an IDX file of uint8 is needed")
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


def array(reader: Reader, shape: tuple[int, ...]) -> Bytes:
    """All of a file that holds unsigned bytes of `shape`, and nothing else."""
    header(reader, shape)
    values = np.empty(shape, dtype=np.uint8)
    reader.into(values)
    reader.end()
    return values

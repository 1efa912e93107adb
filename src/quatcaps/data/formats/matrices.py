"""Files of arrays: IDX, as MNIST is published, NORB's binary matrices, and MATLAB 5 as far as SVHN needs it.

IDX and NORB: a header and then the values. MATLAB 5: a header and a row of elements, each with a tag (type, size). An
element is an array, or an array compressed; an array is elements again: flags, dimensions, name, values. Values are in
Fortran order, in the smallest type that holds them; those that are read are whole numbers from 0 to 255.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quatcaps.data.formats.reader import ZLIB, Bytes, Reader
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

_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_TEXT = (1, 2, 16)
_CLASSES = (
    *("cell", "struct", "object", "char", "sparse", "double", "single"),
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
)
_COMPLEX = 0x0800

_ELEMENTS = 1000
_DIMENSIONS = 32
_NAME = 256


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


class Wanted(NamedTuple):
    """What an array must be."""

    shape: tuple[int, ...]
    classes: tuple[str, ...] = ("uint8",)


@dataclass(frozen=True)
class Variable:
    """One array of a file, still to be read."""

    name: str
    shape: tuple[int, ...]
    stored: np.dtype[np.generic]
    values: Reader

    def blocks(self) -> Iterator[Bytes]:
        """The values as bytes, some steps of the last axis at a time: (some, *reversed(shape[:-1])) uint8."""
        inner = tuple(reversed(self.shape[:-1]))
        for raw in self.values.blocks(self.shape[-1], (*inner, self.stored.itemsize)):
            numbers = raw.view(self.stored)[..., 0]
            yield numbers if numbers.dtype == np.uint8 else self._bytes(numbers)

    def _bytes(self, numbers: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Bytes:
        with np.errstate(all="ignore"):
            whole = numbers.astype(np.uint8)
            wrong = np.flatnonzero((whole != numbers).reshape(-1))
        if wrong.size:
            raise QuatcapsError(
                f"{self.values.name}: {self.name} holds {numbers.reshape(-1)[wrong[0]]}: whole numbers from 0 to 255 "
                "are needed; download it again"
            )
        return whole


def variables(reader: Reader, wanted: Mapping[str, Wanted]) -> Iterator[Variable]:
    """The `wanted` arrays in the order of the file, each to be read before the next; others are skipped."""
    order = _header(reader)
    found: set[str] = set()
    for count in range(_ELEMENTS + 1):
        tag = reader.exactly_or_end(8)
        if not tag:
            break
        if count == _ELEMENTS:
            raise QuatcapsError(f"{reader.name} has more than {_ELEMENTS} elements: download it again")
        kind, outer = struct.unpack(f"{order}II", tag)
        if kind >> 16:  # a small element: all of it is in the tag
            continue
        if kind not in (*_STORED, *_TEXT, 17, 18, _MATRIX, _COMPRESSED):
            raise QuatcapsError(f"{reader.name} has an element of unknown type {kind}: download it again")
        element = reader.part(outer)
        levels, size = [element], outer
        if kind == _COMPRESSED:
            levels.append(element.inflated(ZLIB))
            kind, size = struct.unpack(f"{order}II", levels[-1].exactly(8))
            if kind == _COMPRESSED:
                raise QuatcapsError(f"{reader.name} has compressed data inside compressed data: download it again")
            levels.append(levels[-1].part(size))
        variable = _array(levels[-1], order, wanted) if kind == _MATRIX and size else None
        if variable is not None:
            if variable.name in found:
                raise QuatcapsError(f"{reader.name} holds {variable.name} twice: download it again")
            found.add(variable.name)
            yield variable
            variable.values.end()
            levels[-1].skip(min(7, size - levels[-1].position))  # padding
            for level in reversed(levels):
                level.end()
        padding = -outer % 8 if len(levels) == 1 else 0
        reader.skip(outer - element.position + padding)
    for name in wanted:
        if name not in found:
            raise QuatcapsError(f"{reader.name} has no variable {name!r}: give the file as it is published")


def _header(reader: Reader) -> str:
    """The byte order, `<` or `>`, of a version 5 file."""
    start = reader.exactly(4)
    if start == b"\x89HDF":
        raise _version_73(reader.name)
    if 0 in start:
        raise QuatcapsError(
            f"{reader.name} is no MATLAB 5 file: it begins with {start.hex()}, as version 4 does, not with text; "
            "give the file as it is published"
        )
    rest = reader.exactly(124)
    order = {b"IM": "<", b"MI": ">"}.get(rest[122:])
    if order is None:
        raise QuatcapsError(
            f"{reader.name} is no MATLAB 5 file: its header ends with {rest[122:]!r}, not with b'IM' or b'MI'; "
            "download it again"
        )
    version = struct.unpack(f"{order}H", rest[120:122])[0]
    if version == 0x0200:
        raise _version_73(reader.name)
    if version != 0x0100:
        raise QuatcapsError(f"{reader.name} is of MATLAB version 0x{version:04x}: version 5, 0x0100, is needed")
    return order


def _version_73(name: str) -> QuatcapsError:
    return QuatcapsError(
        f"{name} is a MATLAB 7.3 (HDF5) file: version 5 is needed; give the published file, or save it again with -v7"
    )


def _array(body: Reader, order: str, wanted: Mapping[str, Wanted]) -> Variable | None:
    """The array in a matrix element, or none where it is not wanted."""
    kind, flags = _small(body, order, 8, "array flags")
    if kind != 6 or len(flags) != 8:
        raise _damaged(body, "array flags", kind, len(flags))
    word = struct.unpack(f"{order}II", flags)[0]
    code = word & 0xFF
    if not 1 <= code <= len(_CLASSES):
        return None
    kind, raw = _small(body, order, 4 * _DIMENSIONS, "dimensions")
    if kind != 5 or len(raw) % 4 or len(raw) < 8:
        raise _damaged(body, "dimensions", kind, len(raw))
    shape = struct.unpack(f"{order}{len(raw) // 4}i", raw)
    kind, text = _small(body, order, _NAME, "name")
    if kind not in _TEXT:
        raise _damaged(body, "name", kind, len(text))
    name = text.decode("ascii", errors="replace")
    if name not in wanted:
        return None

    where = f"{body.name}: {name}"
    if _CLASSES[code - 1] not in wanted[name].classes or word & _COMPLEX:
        found = ("complex " if word & _COMPLEX else "") + _CLASSES[code - 1]
        raise QuatcapsError(f"{where} is {found}: {' or '.join(wanted[name].classes)} is needed")
    if shape != wanted[name].shape:
        raise QuatcapsError(f"{where} has shape {shape}: {wanted[name].shape} is needed; give the file of that split")
    kind, size, inline = _tag(body, order)
    if kind not in _STORED:
        raise _damaged(body, f"values of {name}", kind, size)
    stored = np.dtype(_STORED[kind]).newbyteorder(order)  # type: ignore[arg-type]
    if size != prod(shape) * stored.itemsize:
        raise QuatcapsError(
            f"{where} has {size} bytes of values: {prod(shape) * stored.itemsize} are needed; download it again"
        )
    values = body.part(size) if inline is None else Reader(io.BytesIO(inline).read, body.name)
    return Variable(name, shape, stored, values)


def _tag(body: Reader, order: str) -> tuple[int, int, bytes | None]:
    """Type, size and, of a small element, the data of the next element."""
    tag = body.exactly(8)
    kind, size = struct.unpack(f"{order}II", tag)
    if not kind >> 16:
        return kind, size, None
    kind, size = kind & 0xFFFF, kind >> 16
    if size > 4:
        raise _damaged(body, "a small element", kind, size)
    return kind, size, tag[4 : 4 + size]


def _small(body: Reader, order: str, limit: int, what: str) -> tuple[int, bytes]:
    """Type and data of the next element, which has at most `limit` bytes."""
    kind, size, inline = _tag(body, order)
    if inline is not None:
        return kind, inline
    if size > limit:
        raise _damaged(body, what, kind, size)
    return kind, body.exactly(size + -size % 8)[:size]


def _damaged(body: Reader, what: str, kind: int, size: int) -> QuatcapsError:
    return QuatcapsError(
        f"{body.name} has {what} of type {kind} and {size} bytes, which no MATLAB 5 file has: download it again"
    )

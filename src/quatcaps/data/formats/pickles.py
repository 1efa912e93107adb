"""CIFAR-10's Python version, read without unpickling it."""

from __future__ import annotations

import numpy as np

from quatcaps.data.formats.checks import one_of
from quatcaps.data.formats.cifar import CLASSES, PIXELS, ROW, ROWS
from quatcaps.data.formats.opcodes import Call, Global, Machine, Pairs
from quatcaps.data.formats.streams import Bytes, Reader
from quatcaps.errors import QuatcapsError

LARGEST = 1 << 26
"""Bytes of a batch; the published ones have 31 MB."""

_RECONSTRUCT = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
_FROM_BUFFER = ("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer")
_ALLOWED = frozenset({*_RECONSTRUCT, *_FROM_BUFFER, "numpy.ndarray", "numpy.dtype", "_codecs.encode"})


def rows(reader: Reader, count: int = ROWS) -> Bytes:
    """All of a batch of `count` images, as the binary version has it: (count, 3073) uint8, the label first."""
    batch = Machine(reader.rest(LARGEST), reader.name, _ALLOWED).run()
    if not isinstance(batch, Pairs):
        raise QuatcapsError(f"{reader.name} is no batch of CIFAR-10: it holds no dict; download it again")
    values = np.empty((count, ROW), dtype=np.uint8)
    values[:, 0] = _labels(batch.get("labels"), count, reader.name)
    values[:, 1:] = _pixels(batch.get("data"), (count, PIXELS), reader.name)
    return values


def _labels(found: object, count: int, name: str) -> Bytes:
    if not isinstance(found, list) or len(found) != count:
        held = f"{len(found)} of them" if isinstance(found, list) else "no list"
        raise QuatcapsError(f"{name}: labels hold {held}: a list of {count} is needed; give a published batch")
    for position, label in enumerate(found):
        if type(label) is not int:
            raise QuatcapsError(f"{name}: label {position} is no number: give a published batch")
    labels = np.array([min(max(label, -1 << 62), 1 << 62) for label in found], dtype=np.int64)
    one_of(labels, range(CLASSES), "label", name)
    return labels.astype(np.uint8)


def _pixels(found: object, shape: tuple[int, int], name: str) -> Bytes:
    match found:
        case Call(function, (Global("numpy.ndarray"), *_), (_, size, kind, order, data)) if function in _RECONSTRUCT:
            fortran = order in (True, 1)
        case Call(function, (data, kind, size, order)) if function in _FROM_BUFFER:
            fortran = order in ("F", b"F")
        case _:
            raise QuatcapsError(f"{name}: data is no numpy array: give a published batch")
    match kind:
        case Call("numpy.dtype", ("u1" | b"u1" | "|u1" | b"|u1", *_)):
            pass
        case _:
            raise QuatcapsError(f"{name}: data is no array of uint8: give a published batch")
    if size != shape:
        numbers = isinstance(size, tuple) and all(type(side) is int for side in size)
        held = str(size)[:60] if numbers else "unknown"
        raise QuatcapsError(f"{name}: the shape of data is {held}: {shape} is needed; give a published batch")
    raw = _raw(data, name)
    if len(raw) != shape[0] * shape[1]:
        raise QuatcapsError(f"{name}: data has {len(raw)} bytes: {shape[0] * shape[1]} are needed; download it again")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")


def _raw(data: object, name: str) -> bytes:
    """Bytes as such, or as Python 3 writes them in the protocols that have none: text to be encoded in Latin-1."""
    match data:
        case bytes():
            return data
        case Call("_codecs.encode", (str() as text, "latin1")):
            try:
                return text.encode("latin-1")
            except UnicodeEncodeError as error:
                raise QuatcapsError(f"{name}: data holds characters that are no bytes: download it again") from error
    raise QuatcapsError(f"{name}: data holds no bytes: give a published batch")

"""NumPy archives (.npz): nothing is unpickled, and nothing is made room for before its size is checked."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from quatcaps.data.formats.reader import damaged
from quatcaps.errors import QuatcapsError

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]

LONGEST_HEADER = 4096
PIECE = 4 << 20
"""Bytes that are read at a time."""

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_ENCRYPTED = 0x1


@dataclass(frozen=True)
class Declared:
    """An array as its header describes it; the archive stores exactly as many bytes as that takes."""

    name: str
    entry: zipfile.ZipInfo
    offset: int  # of the data, behind the header
    shape: tuple[int, ...]
    columns_first: bool  # the first dimension changes fastest
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Archive:
    """The arrays of a .npz file. `digests` has an entry for each that was read: its type, shape, order and SHA-256."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self._archive = path, archive
        self.digests: dict[str, list[object]] = {}
        self.entries: dict[str, zipfile.ZipInfo] = {}
        for entry in archive.infolist():
            if entry.filename.endswith(".npy"):
                name = entry.filename.removesuffix(".npy")
                if name in self.entries:
                    raise QuatcapsError(f"{path} holds two arrays named {name[:40]!a}: store each once")
                self.entries[name] = entry

    def declared(self, name: str) -> Declared:
        """The shape and type of an array, from its header alone."""
        entry = self.entries[name]
        where = f"{name} in {self.path}"
        if entry.flag_bits & _ENCRYPTED:
            raise QuatcapsError(f"{where} is encrypted: write the file again without a password")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise QuatcapsError(
                f"{where} is compressed by method {entry.compress_type}, which NumPy does not write: write the file "
                "again with numpy.savez or numpy.savez_compressed"
            )
        with _explained(f"{where} is damaged"):
            with self._archive.open(entry) as stream:
                beginning = io.BytesIO(stream.read(LONGEST_HEADER))
            version = npy.read_magic(beginning)
            if version not in _HEADERS:
                raise ValueError(f"a header of version {version[0]}.{version[1]}, not 1.0 or 2.0")
            shape, columns_first, dtype = _HEADERS[version](beginning, max_header_size=LONGEST_HEADER)
        if dtype.hasobject:
            raise QuatcapsError(f"{where} holds Python objects, which are not read: store plain numbers")
        if not shape or min(shape) < 1 or dtype.itemsize < 1:
            raise QuatcapsError(f"{where} has shape {shape} of {dtype}: every dimension must be 1 or more")
        array = Declared(name, entry, beginning.tell(), tuple(map(int, shape)), columns_first, dtype)
        if array.offset + array.nbytes != entry.file_size:
            raise QuatcapsError(
                f"{where} is damaged: shape {shape} of {dtype} takes {array.nbytes:,} bytes, but "
                f"{entry.file_size - array.offset:,} are stored; write the file again"
            )
        return array

    def fill(self, view: Array, array: Declared, count: Callable[[int], None] | None = None) -> None:
        """Reads an array into `view`, of its shape and type and any strides; `count` hears how many bytes were read."""
        explained = f"{array.name} in {self.path} is damaged"
        with _explained(explained):
            stream = self._archive.open(array.entry)
            stream.read(array.offset)
        with stream:
            done, digest = 0, hashlib.sha256()
            for piece in _pieces(view.T if array.columns_first else view):
                with _explained(explained):
                    data = stream.read(piece.nbytes)
                    if len(data) != piece.nbytes:
                        raise ValueError(f"the data end {piece.nbytes - len(data):,} bytes or more too early")
                digest.update(data)
                piece[...] = np.frombuffer(data, array.dtype).reshape(piece.shape)
                done += piece.nbytes
                if count is not None:
                    count(done)
        order = "F" if array.columns_first else "C"
        self.digests[array.name] = [array.dtype.str, list(array.shape), order, digest.hexdigest()]

    def read(self, array: Declared) -> Array:
        """A whole array that is known to be small."""
        values: Array = np.empty(array.shape, array.dtype)
        self.fill(values, array)
        return values


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """The arrays of a .npz file."""
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise QuatcapsError(f"{path}: there is no such file") from error
    except OSError as error:
        raise QuatcapsError(f"{path} cannot be read ({error.strerror}): give a .npz file") from error
    with file:
        with _explained(f"{path} is not a .npz file, or damaged"):
            archive = zipfile.ZipFile(file)
        with archive:
            yield Archive(path, archive)


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns whatever a damaged archive makes its readers raise into one line."""
    with damaged(what, "write the file again with numpy.savez", Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _pieces(view: Array) -> Iterator[Array]:
    """Parts of an array in the order of its dimensions, each of about `PIECE` bytes at most."""
    row = view[:1].nbytes
    if view.ndim > 1 and row > PIECE:
        for part in view:
            yield from _pieces(part)
    else:
        step = max(1, PIECE // row)
        for start in range(0, len(view), step):
            yield view[start : start + step]

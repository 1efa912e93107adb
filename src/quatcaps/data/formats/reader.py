"""A file's content from front to back, gzipped or not, in steps whose size the caller decides."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quatcaps.errors import QuatcapsError

Bytes = npt.NDArray[np.uint8]

Pull = Callable[[int], bytes]
"""Gives 1 to n bytes of content when asked for n > 0, and none only at its end."""

GZIP, ZLIB = 31, 15
"""Containers of deflated data, as zlib numbers them."""

_STEP = 1 << 18
_COMPRESSED_STEP = 1 << 14
_GZIP_MEMBERS = 100_000
_BLOCK = 1 << 22


class Reader:
    """Content that is read once, and never further than asked for.

    `name` stands for the content in errors. `position` counts the bytes read; `digest` is their SHA-256.
    """

    def __init__(self, pull: Pull, name: str, *, hashed: bool = False) -> None:
        self._pull = pull
        self._hash = hashlib.sha256() if hashed else None
        self.name = name
        self.position = 0

    @property
    def digest(self) -> str:
        """SHA-256 of all content read so far, in hexadecimal."""
        if self._hash is None:
            raise RuntimeError(f"{self.name} is read without a digest")
        return self._hash.hexdigest()

    def some(self, count: int) -> bytes:
        """1 to `count` bytes, or none at the end."""
        piece = self._pull(min(count, _STEP)) if count else b""
        self.position += len(piece)
        if self._hash is not None:
            self._hash.update(piece)
        return piece

    def pieces(self, count: int) -> Iterator[bytes]:
        """The next `count` bytes, some at a time."""
        while count:
            piece = self.some(count)
            if not piece:
                raise QuatcapsError(
                    f"{self.name} is cut off after {self.position} bytes: at least {count} more are expected; "
                    "download it again"
                )
            count -= len(piece)
            yield piece

    def exactly(self, count: int) -> bytes:
        """The next `count` bytes; memory grows with what is there, not with what is asked for."""
        return b"".join(self.pieces(count))

    def exactly_or_end(self, count: int) -> bytes:
        """The next `count` bytes, or none where the content ends here."""
        first = self.some(count)
        return first + self.exactly(count - len(first)) if first else b""

    def rest(self, limit: int) -> bytes:
        """Everything up to the end, which must come within `limit` bytes."""
        pieces, total = [], 0
        while piece := self.some(limit + 1 - total):
            pieces.append(piece)
            total += len(piece)
        if total > limit:
            raise QuatcapsError(f"{self.name} is larger than expected: at most {limit} bytes; download it again")
        return b"".join(pieces)

    def into(self, buffer: Bytes) -> None:
        """Fills a contiguous array with the next bytes."""
        target, done = buffer.reshape(-1).data, 0
        for piece in self.pieces(len(target)):
            target[done : done + len(piece)] = piece
            done += len(piece)

    def blocks(self, count: int, shape: tuple[int, ...]) -> Iterator[Bytes]:
        """The next `count` arrays of bytes of one shape, some at a time: (some, *shape) uint8, about 4 MB each."""
        at_once = max(1, _BLOCK // max(1, prod(shape)))
        for start in range(0, count, at_once):
            block = np.empty((min(at_once, count - start), *shape), dtype=np.uint8)
            self.into(block)
            yield block

    def skip(self, count: int) -> None:
        """Passes over the next `count` bytes."""
        for _ in self.pieces(count):
            pass

    def end(self) -> None:
        """Raises unless all content was read; of a longer one only one byte more is read."""
        if self.some(1):
            raise QuatcapsError(
                f"{self.name} goes on after the {self.position - 1} bytes that were expected: download it again"
            )

    def part(self, size: int) -> Reader:
        """The next `size` bytes as content of their own."""
        left = size

        def pull(count: int) -> bytes:
            nonlocal left
            piece = next(self.pieces(min(count, left)), b"")
            left -= len(piece)
            return piece

        return Reader(pull, self.name)

    def inflated(self, container: int) -> Reader:
        """What this content, GZIP or ZLIB, holds compressed; its checksum is checked on reaching the end."""
        return Reader(_Inflater(self, container), self.name)


class _Inflater:
    """Inflates no more than it is asked for; a gzip file may have several members, one after the other."""

    def __init__(self, source: Reader, container: int) -> None:
        self._source = source
        self._container = container
        self._stream = zlib.decompressobj(container)
        self._input = b""
        self._members = 1

    def __call__(self, count: int) -> bytes:
        while True:
            if self._stream.eof and not self._next_member():
                return b""
            given = self._input or self._source.some(_COMPRESSED_STEP)
            with damaged(f"{self._source.name} holds damaged compressed data", "download it again", zlib.error):
                piece = self._stream.decompress(given, count)
            self._input = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if piece:
                return piece
            if not given and not self._stream.eof:
                raise QuatcapsError(
                    f"{self._source.name} is cut off: its compressed data has no end; download it again"
                )

    def _next_member(self) -> bool:
        self._input = self._input or self._source.some(_COMPRESSED_STEP)
        if not self._input:
            return False
        if self._container != GZIP or self._members >= _GZIP_MEMBERS:
            raise QuatcapsError(
                f"{self._source.name} goes on after the end of its compressed data: at most "
                f"{_GZIP_MEMBERS if self._container == GZIP else 1} compressed parts; download it again"
            )
        self._members += 1
        self._stream = zlib.decompressobj(self._container)
        return True


@contextlib.contextmanager
def opened(path: Path, *, hashed: bool = True, inflate: bool = True) -> Iterator[Reader]:
    """The content of a file, inflated where its first bytes say that it is gzipped, whatever its name says.

    inflate: False gives the bytes of the file as they are.
    """
    with _explained(path):
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for a writer
            raise QuatcapsError(f"cannot read {path}: it is a folder or a device; give the path of a file")
        file = open(path, "rb")  # noqa: SIM115 (closed below; its errors are told apart from the caller's)
    with file:
        yield content(file, str(path), hashed=hashed, inflate=inflate)


def content(file: io.BufferedReader, name: str, *, hashed: bool = True, inflate: bool = True) -> Reader:
    """As `opened`, from an open file."""

    def pull(count: int) -> bytes:
        with _explained(name):
            return file.read(count)

    with _explained(name):
        gzipped = inflate and file.peek(2)[:2] == b"\x1f\x8b"
    plain = Reader(pull, name, hashed=hashed and not gzipped)
    return Reader(_Inflater(plain, GZIP), name, hashed=hashed) if gzipped else plain


@contextlib.contextmanager
def _explained(path: str | Path) -> Iterator[None]:
    try:
        yield
    except QuatcapsError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise QuatcapsError(f"cannot read {path}: {reason}; check the path and its permissions") from error


@contextlib.contextmanager
def damaged(what: str, remedy: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turns what a damaged file makes its reader raise, errors of some kinds, into one line."""
    try:
        yield
    except QuatcapsError:
        raise
    except kinds as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise QuatcapsError(f"{what} ({why}): {remedy}") from error


def one_of(values: npt.NDArray[np.integer[Any]], allowed: Sequence[int], what: str, name: str) -> None:
    """Raises where one of `values` (N,) is none of those `allowed`: the first such, its position and the limit.

    >>> one_of(np.array([1, 2, 17]), range(10), "label", "train.bin")
    Traceback (most recent call last):
    quatcaps.errors.QuatcapsError: train.bin: label 17 at position 2 is not one of 0 … 9: wrong or damaged file
    """
    wrong = np.flatnonzero(~np.isin(values, np.array(allowed)))
    if wrong.size:
        contiguous = list(allowed) == list(range(allowed[0], allowed[-1] + 1))
        limit = f"{allowed[0]} … {allowed[-1]}" if contiguous else ", ".join(map(str, allowed))
        position = int(wrong[0])
        raise QuatcapsError(
            f"{name}: {what} {values[position]} at position {position} is not one of {limit}: wrong or damaged file"
        )

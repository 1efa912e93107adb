"""CIFAR-10's batches, the binary and the Python version of them, as files or in an archive.

Nothing is unpacked to disk and nothing is unpickled: `pickletools.genops` tells what a pickle says, opcode by opcode,
and does nothing of it. The labels are the numbers behind the text `labels`, the pixels the one value of their length.
Who reads them verifies what came out: it has the digest of the binary version.
"""

from __future__ import annotations

import pickletools
import tarfile
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import IO, cast

import numpy as np

from quatcaps.data.formats.reader import Bytes, Pull, Reader, damaged, one_of
from quatcaps.errors import QuatcapsError

CLASSES = 10
PIXELS = 3 * 32 * 32
ROW = 1 + PIXELS
ROWS = 10_000
"""In each published file."""
LARGEST_PICKLE = 1 << 26
"""Bytes of a batch of the Python version; the published ones have 31 MB."""
MOST_OPCODES = 100_000
"""Of a pickle; one of CIFAR-10's has at most 60,000."""

_MODULES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
_NAMES = ("ndarray", "dtype", "_reconstruct", "_frombuffer")
_GLOBALS = frozenset({*(f"{module} {name}" for module in _MODULES for name in _NAMES), "_codecs encode"})
_NUMBERS = frozenset({"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"})
_REFUSED = frozenset({"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"})
"""Other opcodes than GLOBAL and STACK_GLOBAL that name what unpickling would import."""

_HEADERS = 1 << 18
"""Bytes that may follow an entry of an archive before the next one's content: `tarfile` keeps headers in memory."""
_PADDING = 1 << 20
_STEP = 1 << 17


def binary_rows(reader: Reader, count: int = ROWS) -> Bytes:
    """All of a file of `count` rows: (count, 3073) uint8, a label and then pixels, red, green, blue, each 32×32."""
    values = np.empty((count, ROW), dtype=np.uint8)
    reader.into(values)
    reader.end()
    one_of(values[:, 0], range(CLASSES), "label", reader.name)
    return values


def pickled_rows(reader: Reader, count: int = ROWS) -> Bytes:
    """All of a batch of the Python version, as the binary version has it: (count, 3073) uint8, the label first."""
    data, remedy = reader.rest(LARGEST_PICKLE), "nothing was executed, download it again"
    with damaged(f"{reader.name} is no batch of CIFAR-10", remedy, ValueError, LookupError, TypeError):
        labels, pixels = _found(data, count, reader.name)
    if len(labels) != count:
        raise QuatcapsError(f"{reader.name} has {len(labels)} labels: {count} are needed; give a published batch")
    values = np.empty((count, ROW), dtype=np.uint8)
    numbers = np.array([min(max(label, -1), CLASSES) for label in labels])
    one_of(numbers, range(CLASSES), "label", reader.name)
    values[:, 0] = numbers
    values[:, 1:] = np.frombuffer(pixels, dtype=np.uint8).reshape(count, PIXELS)
    return values


def _found(data: bytes, count: int, name: str) -> tuple[list[int], bytes]:
    """The labels and the pixels in a pickle."""
    labels: list[int] = []
    pixels: list[bytes] = []
    texts = ["", ""]  # all that were given; STACK_GLOBAL takes the last two
    memory: list[str] = []  # what MEMOIZE kept, where it is text
    columns_first, given = False, ""
    for number, (opcode, argument, position) in enumerate(pickletools.genops(data)):
        if number >= MOST_OPCODES:
            raise ValueError(f"it has more than {MOST_OPCODES} opcodes")
        if opcode.name == "STOP" and position != len(data) - 1:
            raise ValueError(f"it goes on after its end at byte {position}")
        if opcode.name in ("BINGET", "LONG_BINGET") and isinstance(argument, int):
            argument = memory[argument] if argument < len(memory) else ""
        if opcode.name in ("GLOBAL", "STACK_GLOBAL"):
            asked = argument if opcode.name == "GLOBAL" else " ".join(texts[-2:])
            if asked not in _GLOBALS:
                raise QuatcapsError(
                    f"{name} asks for {str(asked).replace(' ', '.')[:100]!r}, which no batch of CIFAR-10 does: nothing "
                    "was executed; do not unpickle this file, download it again"
                )
        elif opcode.name in _REFUSED:
            raise ValueError(f"opcode {opcode.name} has no place in a batch")
        elif opcode.name == "MEMOIZE":
            memory.append(given)
        elif opcode.name in ("NEWTRUE", "NEWFALSE") or isinstance(argument, bool):
            columns_first = opcode.name == "NEWTRUE" or argument is True
        elif opcode.name in _NUMBERS and texts[-1] == "labels" and isinstance(argument, int):
            labels.append(argument)
        given = ""
        if isinstance(argument, str | bytes | bytearray) and opcode.name != "GLOBAL":
            if len(argument) == count * PIXELS:
                if columns_first:
                    raise ValueError("its pixels are in Fortran order")
                pixels.append(argument.encode("latin-1") if isinstance(argument, str) else bytes(argument))
            given = argument[:100] if isinstance(argument, str) else argument[:100].decode("latin-1")
            texts.append(given)
    if "F" in texts:
        raise ValueError("its pixels are in Fortran order")
    if len(pixels) != 1 or not {"u1", "|u1"} & set(texts):
        raise QuatcapsError(
            f"{name} holds no array of uint8 of {count} × {PIXELS} pixels: nothing was executed, give a published batch"
        )
    return labels, pixels[0]


def members(
    reader: Reader, wanted: Collection[str], *, largest: int, count: int = 1000, total: int = 1 << 30
) -> Iterator[tuple[str, Reader]]:
    """The `wanted` files of a tar archive, by the last part of their paths, in its order: name and content.

    A content is to be read before the next member is asked for. Refused: a wanted file of more than `largest` bytes or
    found twice, more than `count` entries or `total` bytes in all. Everything else in the archive is passed over.
    """
    source = _Source(reader, total)
    found: set[str] = set()
    with _no_archive(reader.name):  # nothing is to be closed: the file is the caller's
        archive = tarfile.open(fileobj=cast(IO[bytes], source), mode="r|", bufsize=_STEP)  # noqa: SIM115
    for number in range(count + 1):
        with _no_archive(reader.name):
            entry = archive.next()
        if entry is None:
            break
        if number == count:
            raise QuatcapsError(f"{reader.name} has more than {count} entries: give the archive as it is published")
        name = entry.name.rsplit("/", 1)[-1]
        if not 0 <= entry.size <= total - reader.position:  # `tarfile` would pass over it without end
            raise QuatcapsError(
                f"{reader.name}: {name[:100]!r} has {entry.size} bytes: at most {total} are expected in all; give the "
                "archive as it is published"
            )
        source.limit = entry.offset_data + entry.size + _HEADERS
        if not entry.isreg() or entry.issparse() or name not in wanted:
            continue
        if name in found:
            raise QuatcapsError(f"{reader.name} holds {name} twice: give the archive as it is published")
        if entry.size > largest:
            raise QuatcapsError(f"{reader.name}: {name} has {entry.size} bytes: at most {largest} are expected")
        found.add(name)
        with _no_archive(reader.name):
            held = archive.extractfile(entry)
        if held is not None:
            yield name, _content(held.read, f"{reader.name}: {name}")
    missing = [name for name in wanted if name not in found]
    if missing:
        raise QuatcapsError(f"{reader.name} lacks {', '.join(missing)}: give the archive as it is published")
    source.limit = reader.position + _PADDING
    while source.read(_PADDING):  # so that a compressed archive's checksum is checked
        pass


class _Source:
    """What `tarfile` reads from; it fails behind the byte `limit`, or behind `total`."""

    def __init__(self, reader: Reader, total: int) -> None:
        self.reader, self.total, self.limit = reader, total, _HEADERS

    def read(self, count: int) -> bytes:
        piece = self.reader.some(count)
        if self.reader.position > min(self.limit, self.total):
            raise QuatcapsError(
                f"{self.reader.name} has headers, padding or contents that are too long, for more than {self.total} "
                "bytes in all: give the archive as it is published"
            )
        return piece


def _content(read: Pull, name: str) -> Reader:
    def pull(count: int) -> bytes:
        with _no_archive(name):
            return read(count)

    return Reader(pull, name)


def _no_archive(name: str) -> AbstractContextManager[None]:
    kinds = (tarfile.TarError, ValueError, ArithmeticError, LookupError, TypeError, OSError, RecursionError)
    return damaged(f"{name} is no tar archive or a damaged one", "download it again", *kinds)

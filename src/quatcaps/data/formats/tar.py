"""Members of a tar archive, gzipped or not, in one pass and without unpacking it to disk."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Collection, Iterator
from typing import IO, cast

from quatcaps.data.formats.reader import Pull, Reader
from quatcaps.errors import QuatcapsError

_HEADERS = 1 << 18
"""Bytes that the headers of one entry may take: `tarfile` reads all of them into memory."""
_PADDING = 1 << 20
_STEP = 1 << 17


def members(
    reader: Reader, wanted: Collection[str], *, largest: int, count: int = 1000, total: int = 1 << 30
) -> Iterator[tuple[str, Reader]]:
    """The `wanted` files, by the last part of their paths, in the order of the archive: name and content.

    A content is to be read before the next member is asked for. Refused: a wanted file of more than `largest` bytes or
    found twice, more than `count` entries or `total` bytes in all. Everything else in the archive is passed over.
    """
    source = _Source(reader, total)

    class Entry(tarfile.TarInfo):
        @classmethod
        def fromtarfile(cls, archive: tarfile.TarFile) -> Entry:
            with source.at_most(_HEADERS):
                return super().fromtarfile(archive)

    found: set[str] = set()
    with _explained(reader.name):  # nothing is to be closed: the file is the caller's
        archive = tarfile.open(fileobj=cast(IO[bytes], source), mode="r|", bufsize=_STEP, tarinfo=Entry)  # noqa: SIM115
    for number in range(count + 1):
        with _explained(reader.name):
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
        if not entry.isreg() or entry.issparse() or name not in wanted:
            continue
        if name in found:
            raise QuatcapsError(f"{reader.name} holds {name} twice: give the archive as it is published")
        if entry.size > largest:
            raise QuatcapsError(f"{reader.name}: {name} has {entry.size} bytes: at most {largest} are expected")
        found.add(name)
        with _explained(reader.name):
            held = archive.extractfile(entry)
        if held is not None:
            yield name, _content(held.read, f"{reader.name}: {name}")
    missing = [name for name in wanted if name not in found]
    if missing:
        raise QuatcapsError(f"{reader.name} lacks {', '.join(missing)}: give the archive as it is published")
    source.allowed = _PADDING
    while source.read(_PADDING):  # so that a compressed archive's checksum is checked
        pass


class _Source:
    """What `tarfile` reads from; it fails where more than `allowed` bytes are asked for."""

    def __init__(self, reader: Reader, total: int) -> None:
        self.reader, self.total, self.allowed = reader, total, total
        self._nested = False

    def read(self, count: int) -> bytes:
        piece = self.reader.some(count)
        self.allowed -= len(piece)
        if self.allowed < 0 or self.reader.position > self.total:
            raise QuatcapsError(
                f"{self.reader.name} has headers, padding or contents that are too long, for more than {self.total} "
                "bytes in all: give the archive as it is published"
            )
        return piece

    @contextlib.contextmanager
    def at_most(self, count: int) -> Iterator[None]:
        """Allows `count` bytes; within it, a further call changes nothing."""
        if self._nested:
            yield
            return
        before, self.allowed, self._nested = self.allowed, count, True
        try:
            yield
        finally:
            self.allowed, self._nested = before - (count - self.allowed), False


def _content(read: Pull, name: str) -> Reader:
    def pull(count: int) -> bytes:
        with _explained(name):
            return read(count)

    return Reader(pull, name)


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turns whatever a damaged archive makes `tarfile` raise into one line."""
    try:
        yield
    except QuatcapsError:
        raise
    except (tarfile.TarError, ValueError, ArithmeticError, LookupError, TypeError, OSError, RecursionError) as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise QuatcapsError(f"{name} is no tar archive or a damaged one ({why}): download it again") from error

"""Members of a tar archive, gzipped or not, in one pass and without unpacking it to disk."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from quatcaps.data.formats.streams import Reader
from quatcaps.errors import QuatcapsError

_BLOCK = 512
_FILE = (b"0", b"\0", b"7")
_FOLDER = b"5"
_REFUSED = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"S": "a sparse file",
    b"M": "a part of another volume",
}
_LONG_NAME, _LONG_LINK, _EXTENDED, _GLOBAL = b"L", b"K", b"x", b"g"

_EXTENSION = 1 << 16
_PADDING = 1 << 20


def members(
    reader: Reader,
    wanted: Collection[str],
    *,
    largest: int,
    count: int = 1000,
    total: int = 1 << 30,
) -> Iterator[tuple[str, Reader]]:
    """The `wanted` members, by the last part of their paths, in the order of the archive: name and content.

    A content is to be read before the next member is asked for. Refused: a wanted member of more than `largest` bytes
    or found twice, more than `count` entries or `total` bytes in all, and, wanted or not, links, devices and paths
    that lead out of the archive.
    """
    found: set[str] = set()
    for path, size in _entries(reader, count):
        if reader.position + size > total:
            raise QuatcapsError(f"{reader.name} holds more than {total} bytes: give the archive as it is published")
        name = path.rsplit("/", 1)[-1]
        content = reader.part(size, f"{reader.name}: {name}")
        if name in wanted:
            if name in found:
                raise QuatcapsError(f"{reader.name} holds {name} twice: give the archive as it is published")
            if size > largest:
                raise QuatcapsError(f"{reader.name}: {name} has {size} bytes: at most {largest} are expected")
            found.add(name)
            yield name, content
        reader.skip(size - content.position + -size % _BLOCK)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise QuatcapsError(f"{reader.name} lacks {', '.join(missing)}: give the archive as it is published")


def _entries(reader: Reader, limit: int) -> Iterator[tuple[str, int]]:
    """Path and size of each file; the reader stands at its content, and must stand behind it at the next step."""
    overrides: dict[str, str] = {}
    for number in range(limit + 1):
        header = reader.exactly(_BLOCK)
        if not any(header):
            return _end(reader)
        if number == limit:
            raise QuatcapsError(f"{reader.name} has more than {limit} entries: give the archive as it is published")
        stored = _number(header[148:156])
        if stored != sum(header) - sum(header[148:156]) + 8 * ord(" "):
            raise QuatcapsError(
                f"{reader.name} is no tar archive or a damaged one: entry {number} has a wrong checksum"
            )
        kind, size = header[156:157], _number(header[124:136])
        if size is None:
            raise QuatcapsError(f"{reader.name} is damaged: entry {number} has no size; download it again")
        if kind in (_LONG_NAME, _LONG_LINK, _EXTENDED, _GLOBAL):
            if size > _EXTENSION:
                raise QuatcapsError(f"{reader.name}: entry {number} has a header of {size} bytes, above {_EXTENSION}")
            data = reader.exactly(size + -size % _BLOCK)[:size]
            if kind == _LONG_NAME:
                overrides["path"] = _text(data)
            elif kind == _EXTENDED:
                overrides |= _records(data, reader.name)
            elif kind == _GLOBAL and {"path", "size"} & _records(data, reader.name).keys():
                raise QuatcapsError(f"{reader.name} gives one path or size to all entries: it is damaged")
            continue
        path = overrides.get("path", _path(header))
        if "size" in overrides:
            size = _decimal(overrides["size"], reader.name)
        overrides = {}
        _check(path, kind, reader.name)
        if kind != _FOLDER:
            yield path, size


def _end(reader: Reader) -> None:
    """Reads the padding, so that a compressed archive's checksum is checked."""
    left = _PADDING
    while piece := reader.some(left):
        left -= len(piece)
        if any(piece) or not left:
            raise QuatcapsError(f"{reader.name} goes on after its end: give the archive as it is published")


def _check(path: str, kind: bytes, name: str) -> None:
    shown = path[:200]
    if kind in _REFUSED:
        raise QuatcapsError(f"{name}: {shown!r} is {_REFUSED[kind]}: only files and folders are expected")
    if kind not in (*_FILE, _FOLDER):
        raise QuatcapsError(f"{name}: {shown!r} is of unknown type {kind!r}: only files and folders are expected")
    if re.match(r"[/\\]|[A-Za-z]:", path):
        raise QuatcapsError(f"{name}: {shown!r} is an absolute path: give the archive as it is published")
    if ".." in re.split(r"[/\\]", path):
        raise QuatcapsError(f"{name}: {shown!r} leads out of the archive: give the archive as it is published")


def _path(header: bytes) -> str:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", errors="replace")


def _number(field: bytes) -> int | None:
    """An octal field, or one in base 256 where its first byte says so; none where it is neither."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    return int(digits, 8) if re.fullmatch(rb"[0-7]+", digits) else None


def _records(data: bytes, name: str) -> dict[str, str]:
    """What an extended header says: lines `length key=value`, of which path and size matter here."""
    records: dict[str, str] = {}
    position = 0
    while position < len(data) and data[position]:
        match = re.compile(rb"([0-9]{1,6}) ([^=]+)=").match(data, position)
        length = int(match[1]) if match else 0
        stop = position + length
        if match is None or stop <= match.end() or data[stop - 1 : stop] != b"\n":
            raise QuatcapsError(f"{name} is damaged: it has an extended header that cannot be read; download it again")
        key = _text(match[2])
        if key.startswith("GNU.sparse"):
            raise QuatcapsError(f"{name} holds a sparse file: only files and folders are expected")
        if key in ("path", "size"):
            records[key] = data[match.end() : stop - 1].decode("utf-8", errors="replace")
        position = stop
    return records


def _decimal(text: str, name: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text, re.ASCII):
        raise QuatcapsError(f"{name} is damaged: a size is {text[:40]!r}; download it again")
    return int(text)

"""What of a data folder is of no use any more, and its removal; nothing that another process is at work on goes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from quatcaps.data import custom, store
from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.data.published import described, find, prepared_path
from quatcaps.data.toys.version import generator_version, renderer_version
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, locked, remove, target_of

STORED = ("prepared", "toys")
"""Folders of prepared data."""


class Leftover(NamedTuple):
    """A file that can go, its size in bytes, and why."""

    path: Path
    size: int
    why: str


def leftovers(folder: Path, *, downloads: bool = False) -> list[Leftover]:
    """What can be removed from a data folder: it is made again when it is needed, or never needed.

    downloads: also the published files, and what has come of interrupted downloads.
    """
    found: dict[Path, str] = {}
    for place in STORED:
        for path in sorted((folder / place).glob("*.safetensors")):
            if why := _useless(folder, path):
                found[path] = why
    for place in (*STORED, *DESCRIPTIONS):
        for path in sorted((folder / place).glob("*")):
            if target_of(path) is not None:
                found[path] = "left by a process that was killed"
            elif path.suffix == ".lock" and place in STORED and not _guards(path, found):
                found[path] = "a lock of nothing"
    if downloads:
        for name in DESCRIPTIONS:
            for path in (*find(name, folder / name).values(), *(folder / name).glob("*.part*")):
                found.setdefault(path, f"a file that {name} is prepared from")
    return [Leftover(path, _size(path), why) for path, why in found.items() if not in_use(path)]


def clean(items: list[Leftover]) -> list[Leftover]:
    """Removes some of what `leftovers` found; gives what is gone. What came into use in between stays."""
    gone = []
    for item in items:
        with contextlib.suppress(TimeoutError), locked(_lock(item.path), timeout=0.0):
            with explained(f"remove {item.path}"):
                remove(item.path)
            gone.append(item)
            if not _guards(_lock(item.path), {}):
                with contextlib.suppress(OSError):  # Windows keeps what is open
                    _lock(item.path).unlink(missing_ok=True)
    return gone


def in_use(path: Path) -> bool:
    """Whether a process holds the lock under which a file is made."""
    lock = _lock(path)
    if not lock.exists():
        return False
    try:
        with locked(lock, timeout=0.0):
            return False
    except TimeoutError:
        return True


def _useless(folder: Path, path: Path) -> str:
    """Why prepared data are of no use; nothing where they are."""
    header = store.header_of(path)
    if header is None:
        return "damaged"
    contents = header["contents"]
    if "renderer" in contents:
        return "" if contents["renderer"] == renderer_version() else "toys of another renderer"
    if "generator" in contents:
        return "" if contents["generator"] == generator_version() else "toys of another generator"
    if "dataset" in contents:
        name, size = contents.get("dataset"), contents.get("size")
        known = name in DESCRIPTIONS and contents == described(name, size)
        return "" if known and path == prepared_path(folder, name, size) else "of another version"
    if "custom" not in contents:
        return "of another version"
    source = Path(str(header["notes"].get("source")))
    if not source.exists():
        return f"its source {source} is gone"
    with contextlib.suppress(QuatcapsError):
        if custom.described(source, contents["size"]) == contents:
            return ""
    return f"its source {source} has changed"


def _lock(path: Path) -> Path:
    """The lock under which a file of the data folder is written."""
    if path.suffix == ".lock":
        return path
    if path.parent.name in STORED:
        return store.lock_of(target_of(path) or path)
    return path.parent / ".lock"


def _guards(lock: Path, going: dict[Path, str]) -> bool:
    """Whether what a lock is for is there, and stays."""
    stored = lock.with_suffix(".safetensors")
    return lock.name == ".lock" or (stored.exists() and stored not in going)


def _size(path: Path) -> int:
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files)

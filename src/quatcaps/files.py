"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quatcaps.errors import QuatcapsError


@contextlib.contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turns an operating-system error into one line that says what could not be done and what to do."""
    remedies = {
        errno.ENOSPC: "the disk is full: free some space or choose another folder",
        errno.EDQUOT: "the disk quota is used up: free some space or choose another folder",
        errno.EFBIG: "the file is larger than this system allows: choose another folder",
        errno.EACCES: "permission denied: choose a folder that you may write to",
        errno.EPERM: "permission denied: choose a folder that you may write to",
        errno.EROFS: "the file system is read-only: choose another folder",
        errno.ENOTDIR: "a file stands where a folder is needed: choose another path",
        errno.EEXIST: "a file stands where a folder is needed: choose another path",
    }
    try:
        yield
    except OSError as error:
        remedy = remedies.get(error.errno or 0, error.strerror or str(error))
        raise QuatcapsError(f"cannot {doing}: {remedy}") from error


def make_folder(folder: Path) -> Path:
    """`folder`, made where it is missing."""
    with explained(f"make the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A path to write beside `path`, which it replaces at the end; on any error `path` stays as it was."""
    make_folder(path.parent)
    with explained(f"write {path}"):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=f".part{path.suffix}", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            flush(temporary)
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
            flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill beside `path`, which it becomes at the end, whole; `path` must not exist yet."""
    make_folder(path.parent)
    with explained(f"write {path}"):
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
        try:
            yield temporary
            for part in temporary.iterdir():
                flush(part)
            temporary.chmod(0o777 & ~_umask())
            flush(temporary)
            temporary.rename(path)
            flush(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def flush(path: Path) -> None:
    """Waits until a file or folder has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """`value` as indented JSON."""
    with new_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The JSON object in a file; an error that says `what` it should have been where it is none."""
    with explained(f"read {path}"):
        text = path.read_text(encoding="utf-8", errors="replace")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise QuatcapsError(f"{path} is not {what}: it is damaged or foreign ({error})") from error
    if not isinstance(value, dict):
        raise QuatcapsError(f"{path} is not {what}: it holds a {type(value).__name__}, not an object")
    return value


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
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
        temporary = beside(path, path.suffix)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            yield temporary
            flush(temporary)
            temporary.replace(path)
            flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill beside `path`, which it becomes at the end, whole; `path` must not exist yet."""
    make_folder(path.parent)
    with explained(f"write {path}"):
        temporary = beside(path)
        temporary.mkdir()
        try:
            yield temporary
            for part in temporary.iterdir():
                flush(part)
            flush(temporary)
            temporary.rename(path)
            flush(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def beside(path: Path, suffix: str = "") -> Path:
    """A random hidden name in the folder of `path`, for what becomes `path` at the end.

    It is made as any new file or folder is, so that the system applies the umask: a process can read its umask only by
    setting it, and until it is set back other threads make files that everybody can write.
    """
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.part{suffix}")


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

"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import re
import secrets
import shutil
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quatcaps import strict_json
from quatcaps.errors import QuatcapsError

ABANDONED = 24 * 3600.0
"""Seconds after which a temporary file that nobody has written to is taken for one of a killed process."""
_TEMPORARY = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{16}\.part(?P<suffix>\.[^.]*)?")
UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)
"""Why a file cannot be locked where there are no locks."""
LARGEST_JSON = 64 * 2**20
"""Bytes of a description, a card or a record."""


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
    remove_abandoned(path)
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
    remove_abandoned(path)
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


def target_of(temporary: Path) -> Path | None:
    """What a temporary file or folder that `beside` named was to become; None where it is none.

    >>> target_of(Path("runs/.log.csv.0123456789abcdef.part.csv")).name
    'log.csv'
    """
    match = _TEMPORARY.fullmatch(temporary.name)
    return temporary.with_name(match["target"]) if match else None


def remove_abandoned(path: Path, age: float = ABANDONED) -> None:
    """Removes what processes that were killed while they wrote `path` left beside it: nothing younger than `age` s."""
    with contextlib.suppress(OSError):  # another process may remove the same, and none of it is needed
        for found in path.parent.glob(f".{glob.escape(path.name)}.*.part*"):
            if target_of(found) == path and time.time() - last_written(found) > age:
                remove(found)


def last_written(path: Path) -> float:
    """When a file was written to last, or anything in a folder, in seconds since the epoch."""
    inside = path.rglob("*") if path.is_dir() else ()
    return max(each.lstat().st_mtime for each in (path, *inside))


def remove(path: Path) -> None:
    """Removes a file or a whole folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class NoLocksError(QuatcapsError):
    """A file system has no locks."""


@contextlib.contextmanager
def locked(path: Path, timeout: float = -1.0) -> Iterator[None]:
    """Holds the lock file `path`, of several processes and threads one at a time; the lock ends with its process.

    timeout: seconds to wait for it; without end below 0; `TimeoutError` after that. Where the file system cannot lock,
    as some network file systems, that is an error: two processes that both believe to be alone would spoil each
    other's work.
    """
    from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

    lock: BaseFileLock = FileLock(path, timeout=timeout, thread_local=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # filelock says that it falls back to a lock which outlives its owner
            lock.acquire()
    except Timeout:
        raise
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in UNSUPPORTED:
            with explained(f"lock {path}"):
                raise
        raise no_locks(path, getattr(error, "strerror", None) or str(error)) from error
    try:
        if isinstance(lock, SoftFileLock):
            raise no_locks(path, "a lock would outlive its process")
        yield
    finally:
        lock.release()


def no_locks(path: Path, reason: str) -> NoLocksError:
    return NoLocksError(
        f"cannot lock {path} ({reason}): its file system has no locks; choose a folder on another one, such as a local "
        "disk"
    )


def on_windows() -> bool:
    return os.name == "nt"


def flush(path: Path) -> None:
    """Waits until a file or folder has reached the disk. Windows opens no folders, and needs no such wait."""
    if on_windows() and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if on_windows() else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """`value` as indented JSON; an error where it has NaN or infinite numbers, which `read_json` would refuse."""
    try:
        text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    except ValueError as error:
        raise QuatcapsError(f"cannot write {path}: {error}") from error
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The JSON object in a file; an error that says `what` it should have been where it is none."""
    with explained(f"read {path}"), path.open("rb") as file:
        raw = file.read(LARGEST_JSON + 1)
    if len(raw) > LARGEST_JSON:
        raise QuatcapsError(f"{path} is not {what}: it has more than {LARGEST_JSON:,} bytes")
    try:
        value = strict_json.parse(raw.decode(errors="replace"))
    except ValueError as error:
        raise QuatcapsError(f"{path} is not {what}: it is damaged or foreign ({error})") from error
    if not isinstance(value, dict):
        raise QuatcapsError(f"{path} is not {what}: it holds a {type(value).__name__}, not an object")
    return value

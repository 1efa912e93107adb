"""One owner at a time: of a run's folder, and of a job of `reproduce`.

The owner holds a lock of the operating system on a file, which ends with the process, however that ends: a killed run
leaves nothing to clear away. The file beside it says who the owner is.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from quatcaps.errors import QuatcapsError
from quatcaps.files import NoLocksError, locked, make_folder, read_json, write_json

LOCK = ".lock"
"""In a run's folder."""
SWITCH = "QUATCAPS_NO_LOCK"
"""Set to 1, nothing is locked: for file systems without locks."""
LEFTOVER = re.compile(
    r"\.(run\.json|log\.jsonl|state\.json|(?:step|best)-\d+|wandb\.json|\.lock\.json)\.[0-9a-f]+\.part(\.\w+)?"
)
"""What training had not finished writing when it was killed: temporaries of `quatcaps.files`."""


class HeldError(QuatcapsError):
    """Another process has the lock."""


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Makes this process the owner of a run's folder; HeldError where another is. What a killed owner was still writing
    is removed."""
    with holding(folder / LOCK, f"the run {folder}"):
        if not switched_off():
            remove_leftovers(folder)
        yield


@contextmanager
def holding(path: Path, what: str) -> Iterator[None]:
    """Holds the lock at `path`; HeldError, which says who has `what`, where another process holds it."""
    if switched_off():
        yield
        return
    make_folder(path.parent)
    with ExitStack() as held:
        try:
            held.enter_context(locked(path, timeout=0.0))
        except TimeoutError:
            raise HeldError(f"{what} belongs to {owner(path)}: wait for it or stop it; nothing was changed") from None
        except NoLocksError as error:
            raise QuatcapsError(
                f"{error}, or set {SWITCH}=1 and see that one process at a time uses the folder"
            ) from error
        note = note_of(path)
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        try:
            write_json(note, {"pid": os.getpid(), "host": socket.gethostname(), "since": since})
            yield
        finally:
            with suppress(OSError):
                note.unlink(missing_ok=True)


def owner(path: Path) -> str:
    """Who holds the lock at `path`, in words."""
    try:
        noted = read_json(note_of(path), "the note of a lock")
        return f"process {noted['pid']} on {noted['host']} since {noted['since']}"
    except (QuatcapsError, KeyError):  # it has only just taken the lock, or is letting it go
        return "another process"


def note_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def switched_off() -> bool:
    return os.environ.get(SWITCH) == "1"


def is_own(path: Path) -> bool:
    """Whether a file in a run's folder is the lock's, or was left by a killed write."""
    return path.name in (LOCK, note_of(Path(LOCK)).name) or LEFTOVER.fullmatch(path.name) is not None


def remove_leftovers(folder: Path) -> None:
    """Removes what killed processes were still writing. The owner alone may: nobody else writes these files."""
    checkpoints = folder / "checkpoints"
    for place in (folder, checkpoints, *checkpoints.glob("step-*")):
        for path in place.iterdir() if place.is_dir() else ():
            if LEFTOVER.fullmatch(path.name) is None:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()

"""What the scripts that run public code beside ours share: its import from a clone, the clone's commit, the records."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quatcaps.errors import QuatcapsError
from quatcaps.files import read_json, write_json

FORMAT = 1


@contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Modules are looked for in a folder first; an error where it is none, or holds other code."""
    if not folder.is_dir():
        raise QuatcapsError(f"{folder} is no folder: clone the public code, and give where it lies")
    sys.path.insert(0, str(folder))
    try:
        yield
    except (ImportError, AttributeError, TypeError) as error:
        raise QuatcapsError(f"{folder} is not the public code that this was written for: {error!r}") from error
    finally:
        sys.path.remove(str(folder))


def commit_of(folder: Path) -> str:
    """Of a clone, and whether its files are those of the commit; of a folder in another repository, or without git,
    nothing is known."""
    if shutil.which("git") is None:
        return "unknown"

    def git(*words: str) -> str | None:
        found = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True)
        return found.stdout.strip() if found.returncode == 0 else None

    top, commit = git("rev-parse", "--show-toplevel"), git("rev-parse", "HEAD")
    if commit is None or top is None or Path(top).resolve() != folder.resolve():
        return "unknown"
    return commit if git("diff", "--quiet", "--diff-filter=M", "HEAD") is not None else f"{commit}, modified"


def recorded(path: Path) -> dict[str, Any]:
    """What was found of each network so far."""
    if not path.exists():
        return {}
    value = read_json(path, "comparisons with public code")
    if value.get("format") != FORMAT or not isinstance(value.get("networks"), dict):
        raise QuatcapsError(
            f"{path} has no comparisons with public code in format {FORMAT}: move it out of this folder"
        )
    return value["networks"]


def record(path: Path, networks: Mapping[str, Any]) -> None:
    write_json(path, {"format": FORMAT, "networks": dict(networks)})

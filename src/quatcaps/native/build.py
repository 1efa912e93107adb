"""Compiles the C sources of a folder on first use and keeps the library in the user's cache.

The name of a kept library begins with a hash of all that shapes it (the source, the flags, the compiler's version, the
instructions that this machine has) and ends with a hash of its own bytes: a damaged file is compiled again and never
run. It appears whole or not at all, so several processes may compile at once. A file is read once; the bytes that were
checked are the bytes that are loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

from quatcaps.accelerator import constant
from quatcaps.errors import QuatcapsError
from quatcaps.files import new_file

SHARED = Path(__file__).parent
"""Headers that every library may include."""
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O2", "-std=gnu11", "-shared", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
NATIVE = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
PATIENCE = 300
"""Seconds after which a compiler is taken to hang."""
PASSING = "quatcaps-"
"""How the name of a folder begins that is removed at once."""
LEFT_BEHIND = 3600
"""Seconds after which such a folder, if it is still there, is taken to have been left behind."""
ROOT = 0


@constant
def problem(folder: Path, definitions: tuple[str, ...]) -> str | None:
    """Why there is no library, in words that end a sentence, or None."""
    found = attempt(folder, definitions)
    return found if isinstance(found, str) else None


def library(folder: Path, definitions: tuple[str, ...]) -> ctypes.CDLL:
    """The library of a folder's sources with these macros defined, compiled where it is not in the cache."""
    found = attempt(folder, definitions)
    if isinstance(found, str):
        raise QuatcapsError(f"the native backend {found}: choose another")
    return found


@functools.cache
def attempt(folder: Path, definitions: tuple[str, ...]) -> ctypes.CDLL | str:
    """The library or why there is none, once per process: a compiler that failed is not asked again."""
    try:
        return load(folder, definitions)
    except QuatcapsError as error:
        return str(error)


def load(folder: Path, definitions: tuple[str, ...]) -> ctypes.CDLL:
    """The library from the cache, or compiled."""
    compiler = find_compiler()
    flags, machine = target(compiler)
    command = [*compiler, *flags, *(f"-D{definition}" for definition in definitions)]
    files = sources(folder)
    key = digest("\0".join((*command, machine, *(path.read_text("utf-8") for path in files))).encode())
    cache = cache_folder()
    content = find(cache, key) if cache is not None else None
    if content is None:
        content = compiled(command, files)
        if cache is not None:
            keep(cache, key, content)
    return opened(content, cache)


def sources(folder: Path) -> list[Path]:
    """All that shapes the library of a folder."""
    return sorted((*folder.glob("*.[ch]"), *SHARED.glob("*.h")))


def compiled(command: list[str], files: list[Path]) -> bytes:
    with tempfile.TemporaryDirectory(prefix=PASSING) as passing:
        made = Path(passing) / "library.so"
        given = [str(path) for path in files if path.suffix == ".c"]
        output([*command, f"-I{SHARED}", "-o", str(made), *given, "-lm"])
        return made.read_bytes()


def find_compiler() -> list[str]:
    """The command of the C compiler: the environment's CC, or the first there is."""
    if chosen := shlex.split(os.environ.get("CC", "")):
        if shutil.which(chosen[0]) is None:
            raise QuatcapsError(f"needs a C compiler, and the one that CC names, {chosen[0]}, is not there")
        return chosen
    for name in COMPILERS:
        if shutil.which(name) is not None:
            return [name]
    raise QuatcapsError(f"needs a C compiler, and there is none of {', '.join(COMPILERS)}")


def target(compiler: list[str]) -> tuple[list[str], str]:
    """The flags, and what the compiler says of itself and of the machine: all its predefined macros."""
    ask = ("-dM", "-E", "-x", "c", os.devnull)
    with contextlib.suppress(QuatcapsError):
        return [*FLAGS, NATIVE], output([*compiler, NATIVE, *ask])
    return list(FLAGS), output([*compiler, *ask])


def output(command: list[str]) -> str:
    """What a command prints, or an error that names it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QuatcapsError(f"needs a C compiler, and the command failed: {shlex.join(command)} ({error})") from error
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line.lower()), f"exit {done.returncode}")
        raise QuatcapsError(f"needs a C compiler, and the command failed: {shlex.join(command)} ({said.strip()})")
    return done.stdout


def opened(content: bytes, folder: Path | None) -> ctypes.CDLL:
    """The library with that content, by way of a file that is removed once it is loaded.

    The file lies in a new folder inside the cache, where nobody else can write: a system's temporary folder may be
    mounted so that nothing in it can be run. That is the place where there is no cache, or none with room for it.
    """
    for place in (folder, None) if folder is not None else (None,):
        try:
            with tempfile.TemporaryDirectory(prefix=PASSING, dir=place, ignore_cleanup_errors=True) as passing:
                path = Path(passing) / "library.so"
                path.write_bytes(content)
                return ctypes.CDLL(str(path))
        except OSError as error:
            problem = error
    raise QuatcapsError(f"was compiled but cannot be loaded ({problem})")


def cache_folder() -> Path | None:
    """A folder in the user's cache where only the user can write, or None where there is no such place.

    Files have no owner that could be asked for on Windows: there every process compiles for itself.
    """
    if not hasattr(os, "getuid"):
        return None
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve() / "quatcaps" / "native"
        for missing in reversed([above for above in (folder, *folder.parents) if not above.exists()]):
            missing.mkdir(mode=0o700 if missing == folder else 0o755, exist_ok=True)
        problem = insecurity(folder)
    except (OSError, RuntimeError):
        return None
    if problem is None:
        remove_left_behind(folder)
        return folder
    warn_once(f"the native backend is compiled again by every process, since {problem}, or set XDG_CACHE_HOME")
    return None


@functools.cache
def warn_once(words: str) -> None:
    warnings.warn(words, UserWarning, stacklevel=2)


def insecurity(folder: Path) -> str | None:
    """How somebody else could put a file there, or another folder in its place, and the remedy; or None."""
    for path in (folder, *folder.parents):
        found = path.stat()
        if found.st_uid != os.getuid() and (path == folder or found.st_uid != ROOT):
            return f"{path} belongs to user {found.st_uid}: chown it"
        kept_apart = path != folder and found.st_mode & stat.S_ISVTX  # only the owner of a folder in it can move that
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not kept_apart:
            return f"others can write to {path}: chmod go-w {shlex.quote(str(path))}"
    return None


def remove_left_behind(folder: Path) -> None:
    """Removes the empty folders of processes that could not: NFS keeps a removed file while it is in use."""
    for path in folder.glob(f"{PASSING}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - LEFT_BEHIND:
                path.rmdir()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def find(folder: Path, key: str) -> bytes | None:
    """The undamaged library of that key."""
    for path in sorted(folder.glob(f"{key}-*.so")):
        with contextlib.suppress(OSError):
            content = path.read_bytes()
            if path.stem == f"{key}-{digest(content)}":
                return content
    return None


def keep(folder: Path, key: str, content: bytes) -> None:
    """Puts a library into the cache, where that can be done."""
    with contextlib.suppress(QuatcapsError), new_file(folder / f"{key}-{digest(content)}.so") as temporary:
        temporary.write_bytes(content)

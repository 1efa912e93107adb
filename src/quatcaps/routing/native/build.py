"""Compiles the C sources beside it on first use and keeps the library in the user's cache.

The name of a kept library begins with a hash of all that shapes it (the source, the flags, the compiler's version, the
instructions that this machine has) and ends with a hash of its own bytes: a damaged file is compiled again and never
run. It appears whole or not at all, so several processes may compile at once.
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
from collections.abc import Callable
from pathlib import Path

import torch

from quatcaps.errors import QuatcapsError
from quatcaps.files import make_folder, new_file

SOURCES = sorted(Path(__file__).parent.glob("*.[ch]"))
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O2", "-std=gnu11", "-shared", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
NATIVE = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
PATIENCE = 300
"""Seconds after which a compiler is taken to hang."""


def why_not(dtype: torch.dtype, rows: int, columns: int) -> str | None:
    """Why there is no library, in words that end a sentence, or None."""
    found = attempt(dtype, rows, columns)
    return found if isinstance(found, str) else None


problem: Callable[[torch.dtype, int, int], str | None] = torch.compiler.assume_constant_result(why_not)
"""`why_not`, which a compiled network does not look into."""


def library(dtype: torch.dtype, rows: int, columns: int) -> ctypes.CDLL:
    """The library for numbers of that type and poses of that shape, compiled where it is not in the cache."""
    found = attempt(dtype, rows, columns)
    if isinstance(found, str):
        raise QuatcapsError(f"the native backend {found}: choose another")
    return found


@functools.cache
def attempt(dtype: torch.dtype, rows: int, columns: int) -> ctypes.CDLL | str:
    """The library or why there is none, once per process: a compiler that failed is not asked again."""
    try:
        return load([f"-DIS_DOUBLE={int(dtype == torch.float64)}", f"-DROWS={rows}", f"-DCOLUMNS={columns}"])
    except QuatcapsError as error:
        return str(error)


def load(definitions: list[str]) -> ctypes.CDLL:
    """The library from the cache, or compiled."""
    compiler = find_compiler()
    flags, machine = target(compiler)
    command = [*compiler, *flags, *definitions]
    key = digest("\0".join((*command, machine, *(path.read_text("utf-8") for path in SOURCES))).encode())
    folder = cache_folder()
    kept = find(folder, key) if folder is not None else None
    if kept is not None:
        return opened(kept)
    with tempfile.TemporaryDirectory(prefix="quatcaps-") as passing:
        made = Path(passing) / "moments.so"
        output([*command, "-o", str(made), *(str(path) for path in SOURCES if path.suffix == ".c")])
        return opened((keep(folder, key, made) if folder is not None else None) or made)


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


def opened(path: Path) -> ctypes.CDLL:
    """The library in a file, which may go once this is done."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise QuatcapsError(f"was compiled but cannot be loaded ({error})") from error


def cache_folder() -> Path | None:
    """A folder in the user's cache where only the user can write, or None where there is no such place."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve()
        folder = make_folder(base / "quatcaps") / "native"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder if private(folder) else None
    except (QuatcapsError, OSError, RuntimeError):
        return None


def private(folder: Path) -> bool:
    """Whether nobody else could have put a file there, or put another folder in its place."""
    mode, owner = folder.stat().st_mode, folder.stat().st_uid
    if owner != os.getuid() or mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    above = (parent.stat().st_mode for parent in folder.parents)
    return all(mode & stat.S_ISVTX or not mode & stat.S_IWOTH for mode in above)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def find(folder: Path, key: str) -> Path | None:
    """The undamaged library of that key."""
    for path in sorted(folder.glob(f"{key}-*.so")):
        with contextlib.suppress(OSError):
            if path.stem == f"{key}-{digest(path.read_bytes())}":
                return path
    return None


def keep(folder: Path, key: str, made: Path) -> Path | None:
    """Puts a library into the cache, or returns None where that cannot be done."""
    content = made.read_bytes()
    path = folder / f"{key}-{digest(content)}.so"
    try:
        with new_file(path) as temporary:
            temporary.write_bytes(content)
    except QuatcapsError:
        return None
    return path

"""Building the native backend's library, and keeping it where nobody else can change it."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from native_layers import bound, layer

from quatcaps.errors import QuatcapsError
from quatcaps.native import build
from quatcaps.routing import Window, native
from quatcaps.routing.native import libraries
from quatcaps.routing.shapes import Shapes

pytestmark = pytest.mark.skipif(
    libraries.problem(torch.float32, 1, 3) is not None, reason=f"native {libraries.problem(torch.float32, 1, 3)}"
)

LIBRARY = (libraries.SOURCES, libraries.definitions(torch.float32, 1, 3))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of the user, and a process that has not compiled anything yet; what it compiles is soon done."""
    source = tmp_path.parent / f"{tmp_path.name}.c"
    source.write_text("int quatcaps_moments(void) { return COLUMNS; }\n")
    monkeypatch.setattr(build, "sources", lambda folder: [source])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build.attempt.cache_clear()
    build.warn_once.cache_clear()
    yield tmp_path / "quatcaps" / "native"
    build.attempt.cache_clear()


def no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a compiler may be asked for its version only."""
    real = build.output

    def only_asked(command: list[str]) -> str:
        assert "-o" not in command
        return real(command)

    monkeypatch.setattr(build, "output", only_asked)


def test_a_library_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build.load(*LIBRARY)
    (kept,) = cache.iterdir()
    assert cache.stat().st_mode & 0o777 == 0o700
    no_compiling(monkeypatch)
    assert hasattr(build.load(*LIBRARY), "quatcaps_moments")
    assert list(cache.iterdir()) == [kept]


def test_what_is_loaded_is_what_was_checked(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is swapped after it was read changes nothing; what is loaded lies where nobody else can write."""
    build.load(*LIBRARY)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    opened = []

    def swapped(content: bytes) -> str:
        kept.unlink()
        kept.write_bytes(b"another library")
        return real(content)

    def looked_at(name: str) -> ctypes.CDLL:
        path = Path(name)
        opened.append((path.read_bytes(), path.parent.parent, path.parent.stat().st_mode & 0o777))
        return library(name)

    real, library = build.digest, ctypes.CDLL
    no_compiling(monkeypatch)
    monkeypatch.setattr(build, "digest", lambda content: swapped(content) if content == whole else real(content))
    monkeypatch.setattr(ctypes, "CDLL", looked_at)
    assert hasattr(build.load(*LIBRARY), "quatcaps_moments")
    assert opened == [(whole, cache, 0o700)]
    assert list(cache.iterdir()) == [kept]


def test_where_the_cache_cannot_hold_another_file_a_library_is_loaded_from_elsewhere(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache on a full or read-only disk still serves."""
    build.load(*LIBRARY)
    real = tempfile.mkdtemp

    def full(suffix: str | None = None, prefix: str | None = None, dir: Path | None = None) -> str:
        if dir == cache:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(suffix, prefix, dir)

    no_compiling(monkeypatch)
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert hasattr(build.load(*LIBRARY), "quatcaps_moments")


def test_folders_that_were_left_behind_are_removed(cache: Path) -> None:
    """On NFS a library that is in use stays until its process ends, and so does its folder."""
    build.load(*LIBRARY)
    for name, age in (("quatcaps-old", 2 * build.LEFT_BEHIND), ("quatcaps-new", 0)):
        (cache / name).mkdir()
        os.utime(cache / name, (time.time() - age,) * 2)
    build.load(*LIBRARY)
    assert [path.name for path in cache.iterdir() if path.is_dir()] == ["quatcaps-new"]


def test_a_damaged_library_is_compiled_again_and_never_loaded(cache: Path) -> None:
    build.load(*LIBRARY)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1])):
        kept.unlink()  # a new file: the old one is still mapped
        kept.write_bytes(damaged)
        assert build.find(cache, kept.name.split("-")[0]) is None
        assert hasattr(build.load(*LIBRARY), "quatcaps_moments")
        assert kept.read_bytes() == whole


def test_other_flags_make_another_library(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build.load(*LIBRARY)
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DOTHER"))
    build.load(*LIBRARY)
    assert len(list(cache.iterdir())) == 2


def test_processes_may_compile_at_the_same_time(cache: Path) -> None:
    """Two that find nothing, and write the same."""
    begin = cache.parent.parent / "begin"
    code = f"""if True:
        import time
        from pathlib import Path
        from quatcaps.native import build

        build.sources = lambda folder: [Path({str(build.sources(Path())[0])!r})]
        compiled = build.compiled

        def together(command, files):
            Path({str(begin)!r} + str(time.monotonic_ns())).touch()
            while len(list(Path({str(begin.parent)!r}).glob("begin*"))) < 2:
                time.sleep(0.01)
            return compiled(command, files)

        build.compiled = together
        build.load(Path(), {LIBRARY[1]})
    """
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert [path.suffix for path in cache.iterdir()] == [".so"]


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_where_others_write_is_not_used(cache: Path, mode: int) -> None:
    cache.mkdir(parents=True)
    cache.chmod(mode)
    with pytest.warns(UserWarning, match=f"others can write to {cache}: chmod go-w {cache}, or set XDG_CACHE_HOME"):
        assert build.cache_folder() is None
    assert hasattr(build.load(*LIBRARY), "quatcaps_moments")  # and says so only once
    assert not list(cache.iterdir())


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_that_others_can_replace_is_not_used(cache: Path, mode: int) -> None:
    cache.mkdir(parents=True, mode=0o700)
    cache.parent.chmod(mode)
    with pytest.warns(UserWarning, match=f"others can write to {cache.parent}: chmod go-w"):
        assert build.cache_folder() is None


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777, 0o1775])
def test_a_folder_that_nobody_else_can_replace_is_used(cache: Path, mode: int) -> None:
    """Where the sticky bit is set, as on /tmp, only its owner can move a folder."""
    cache.parent.mkdir()
    cache.parent.chmod(mode)
    assert build.cache_folder() == cache


@pytest.mark.parametrize("foreign", ["native", "quatcaps"])
def test_a_folder_of_another_user_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch, foreign: str) -> None:
    assert build.cache_folder() == cache
    real = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        found = real(path, **options)
        return os.stat_result([*found[:4], 4321, *found[5:]]) if path.name == foreign else found

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.warns(UserWarning, match=f"{foreign} belongs to user 4321"):
        assert build.cache_folder() is None


def test_folders_that_it_makes_are_its_own_whatever_the_umask(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under umask 002, which some systems set for everybody, a group could write to what `mkdir` makes."""
    base = cache.parent.parent / "home" / ".cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    before = os.umask(0o002)
    try:
        assert build.cache_folder() == base / "quatcaps" / "native"
    finally:
        os.umask(before)


def test_where_files_have_no_owner_nothing_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    monkeypatch.delattr(os, "getuid")
    assert hasattr(build.load(*LIBRARY), "quatcaps_moments")
    assert not cache.exists()


def test_without_a_place_to_keep_it_a_library_is_compiled_for_one_process(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.parent.joinpath("file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent.parent / "file"))
    assert hasattr(build.load(*LIBRARY), "quatcaps_moments")


def test_without_a_compiler_it_refuses(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children, _ = layer(1, 3, Window(2, 2))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    shapes = Shapes.of(children[0], children[2], Window(2, 2))
    assert native.refuses(shapes, torch.float64, torch.device("cpu")) == (
        "needs a C compiler, and there is none of cc, gcc, clang"
    )
    with pytest.raises(QuatcapsError, match="needs a C compiler"):
        bound(native, children, Window(2, 2)).uniform()


def test_a_compiler_that_is_not_there_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    assert "no-such-compiler" in (libraries.problem(torch.float32, 1, 3) or "")


def test_a_command_that_fails_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which(build.find_compiler()[0])
    monkeypatch.setenv("CC", f"{compiler} --no-such-option")
    assert f"the command failed: {compiler} --no-such-option" in (libraries.problem(torch.float32, 1, 3) or "")
    monkeypatch.setenv("CC", f"{compiler} -include no-such-file.h")
    assert "no-such-file.h" in (libraries.problem(torch.float64, 1, 3) or "")


def test_importing_it_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", "import quatcaps.layers"], check=True, env=environment)
    assert not list(tmp_path.iterdir())

"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from quatcaps import files
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, flush, locked, make_folder, new_file, new_folder, read_json, write_json
from quatcaps.tensors import save_tensors


def test_new_file_replaces_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.txt"
    with new_file(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["x.txt"]


def test_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), new_file(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_failure_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="disk is full"), new_folder(tmp_path / "x") as temporary:  # noqa: PT012
        (temporary / "part").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mask", [0o002, 0o027, 0o077])
def test_files_and_folders_follow_the_umask_and_nobody_sets_it(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(mask: int) -> int:
        raise AssertionError("the umask of all threads was changed")

    before = os.umask(mask)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", refuse)
            write_json(tmp_path / "x.json", {})
            with new_folder(tmp_path / "folder") as temporary:
                (temporary / "part").write_text("whole")
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("x.json", "folder", "folder/part")}
    assert modes == {"x.json": 0o666 & ~mask, "folder": 0o777 & ~mask, "folder/part": 0o666 & ~mask}


def test_many_writers_of_one_file(tmp_path: Path) -> None:
    """Each writes beside it under a name of its own; the file is always one of theirs, whole."""
    path = tmp_path / "x.json"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: write_json(path, {"all": [number] * 500}), range(40)))
    assert len(set(read_json(path, "a test")["all"])) == 1
    assert os.listdir(tmp_path) == ["x.json"]


def test_unfinished_files_keep_the_suffix(tmp_path: Path) -> None:
    """Writers such as numpy's choose or complete a name by its suffix."""
    with new_file(tmp_path / "x.npz") as temporary:
        assert temporary.suffix == ".npz"
        assert temporary.name.startswith(".x.npz.")


def test_write_that_hits_a_real_limit(tmp_path: Path) -> None:
    """The system refuses to write more than 4 KiB, as a full disk would."""
    (tmp_path / "x.json").write_text('{"old": true}')
    code = (
        "import resource, signal, sys; from pathlib import Path; from quatcaps.files import write_json\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "write_json(Path(sys.argv[1]), {'new': 'x' * 100_000})"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.json")], capture_output=True, text=True, check=False
    )
    assert "QuatcapsError: cannot write" in finished.stderr
    assert "larger than this system allows" in finished.stderr
    assert read_json(tmp_path / "x.json", "a test") == {"old": True}
    assert os.listdir(tmp_path) == ["x.json"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] != 4096


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[1]", '"x"', "\x00\x01"])
def test_json_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(QuatcapsError, match=r"x\.json is not a test"):
        read_json(tmp_path / "x.json", "a test")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"x": NaN}', "the number NaN"),
        ('{"x": [-Infinity]}', "the number -Infinity"),
        ('{"x": 1e999}', "the number 1e999"),
        ('{"x": ' + "[" * 100 + "]" * 100 + "}", "nested deeper than 64 levels"),
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested deeper than 64 levels"),
        ('{"x": ' + '{"x": ' * 100_000, "nested deeper than 64 levels"),
        ('{"x": ' + "9" * 5000 + "}", "damaged or foreign"),
    ],
)
def test_json_that_only_python_reads(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(QuatcapsError, match=words):
        read_json(tmp_path / "x.json", "a test")


def test_json_of_some_depth_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"x": ' + "[" * 60 + "]" * 60 + "}")
    assert read_json(tmp_path / "x.json", "a test")


def test_json_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_JSON", 20)
    (tmp_path / "x.json").write_text('{"x": "' + "y" * 20)
    with pytest.raises(QuatcapsError, match="more than 20 bytes"):
        read_json(tmp_path / "x.json", "a test")


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match=r"cannot write .*x\.json"):
        write_json(tmp_path / "x.json", {"x": float("nan")})
    assert not list(tmp_path.iterdir())


def test_folder_where_a_file_stands(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(QuatcapsError, match="a file stands where a folder is needed"):
        make_folder(tmp_path / "file" / "below")
    with pytest.raises(QuatcapsError, match="a file stands where a folder is needed"):
        make_folder(tmp_path / "file")


def test_unforeseen_errors_keep_their_words() -> None:
    with pytest.raises(QuatcapsError, match="cannot do it: Input/output error"), explained("do it"):
        raise OSError(errno.EIO, "Input/output error")


def test_what_killed_processes_left_is_removed_after_a_day(tmp_path: Path) -> None:
    """Beside the file that is written next, and only what was to become it."""
    old, young = 86_500.0, 60.0
    names = {
        ".x.json.0123456789abcdef.part.json": old,
        ".x.json.1123456789abcdef.part.json": young,
        ".y.json.0123456789abcdef.part.json": old,
        ".x.json.notours.part.json": old,
        "x.json.part": old,  # a download that goes on
    }
    for name, age in names.items():
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    write_json(tmp_path / "x.json", {})
    assert set(os.listdir(tmp_path)) == {*list(names)[1:], "x.json"}
    left = tmp_path / ".run.0123456789abcdef.part"
    for number, inside in enumerate((old, young)):
        left.mkdir(exist_ok=True)
        (left / "weights").write_text("half")
        os.utime(left / "weights", (time.time() - (old if number else inside),) * 2)
        os.utime(left, (time.time() - old,) * 2)
        if not number:
            os.utime(left / "weights")  # somebody writes to it
        with new_folder(tmp_path / f"run{number}"):
            pass
        assert left.exists(), "it was to become another"
        with new_folder(tmp_path / "run") as temporary:
            (temporary / "whole").write_text("")
        assert left.exists() == (not number)
        (tmp_path / "run" / "whole").unlink()
        (tmp_path / "run").rmdir()


def test_folders_are_not_flushed_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr("quatcaps.files.on_windows", lambda: True)
    monkeypatch.setattr(os, "fsync", opened.append)
    flush(tmp_path)
    assert not opened
    (tmp_path / "x").write_text("x")
    flush(tmp_path / "x")
    assert len(opened) == 1


def test_a_file_system_without_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    words = r"cannot lock .*x\.lock \(No locks available\): .*local disk"
    with pytest.raises(QuatcapsError, match=words), locked(tmp_path / "x.lock"):
        pytest.fail("held")


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    with locked(tmp_path / "x.lock"), pytest.raises(TimeoutError), locked(tmp_path / "x.lock", timeout=0.0):
        pytest.fail("held by two")
    with locked(tmp_path / "x.lock", timeout=0.0):
        pass


def test_tensors_can_be_read_by_those_who_may_read_other_files(tmp_path: Path) -> None:
    with new_file(tmp_path / "a.json") as text, new_file(tmp_path / "a.safetensors") as tensors:
        text.write_text("{}")
        save_tensors(tensors, {"a": torch.zeros(3)})
    modes = {(tmp_path / name).stat().st_mode for name in ("a.json", "a.safetensors")}
    assert len(modes) == 1

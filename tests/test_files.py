"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, make_folder, new_file, new_folder, read_json, write_json


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


def test_folder_where_a_file_stands(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(QuatcapsError, match="a file stands where a folder is needed"):
        make_folder(tmp_path / "file" / "below")
    with pytest.raises(QuatcapsError, match="a file stands where a folder is needed"):
        make_folder(tmp_path / "file")


def test_unforeseen_errors_keep_their_words() -> None:
    with pytest.raises(QuatcapsError, match="cannot do it: Input/output error"), explained("do it"):
        raise OSError(errno.EIO, "Input/output error")

"""A run's folder has one owner at a time, and is begun once."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.training.checkpoint import checkpoints
from quatcaps.training.config import TrainingConfig
from quatcaps.training.lock import HeldError, owned
from quatcaps.training.log import read_log
from quatcaps.training.run import create_run, open_run

CONFIG = TrainingConfig(model="qcn-small", image_size=32, crop=28, device="cpu")
HOLD = "import sys, time; from pathlib import Path; from quatcaps.training.lock import owned\n"
HOLD += "with owned(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"


@pytest.fixture
def held(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that owns `tmp_path`."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process  # type: ignore[misc]
    process.kill()
    process.communicate()


def test_second_process_is_told_who_the_first_is(held: subprocess.Popen[str], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    words = rf"the run {tmp_path} belongs to process {held.pid} on {socket.gethostname()} since 20\d\d-.* UTC: wait"
    with pytest.raises(HeldError, match=words), owned(tmp_path):
        pytest.fail("two owners")
    assert sorted(tmp_path.iterdir()) == before


def test_killed_owner_leaves_nothing_to_clear_away(held: subprocess.Popen[str], tmp_path: Path) -> None:
    held.kill()
    held.wait()
    assert (tmp_path / ".lock.json").exists(), "it says who was killed"
    with owned(tmp_path):
        assert json.loads((tmp_path / ".lock.json").read_text())["pid"] == os.getpid()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_owner_that_is_not_written_down(tmp_path: Path) -> None:
    with owned(tmp_path):
        (tmp_path / ".lock.json").unlink()
        with pytest.raises(HeldError, match="belongs to another process"), owned(tmp_path):
            pytest.fail("two owners")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_system_without_locks(
    number: int, noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """filelock would fall back to a lock that outlives a killed process."""

    def refuse(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(QuatcapsError, match=r"its file system has no locks; .*QUATCAPS_NO_LOCK=1"):
        create_run(tmp_path / "run", CONFIG, noise_images)
    monkeypatch.setenv("QUATCAPS_NO_LOCK", "1")
    create_run(tmp_path / "run", CONFIG, noise_images)
    assert open_run(tmp_path / "run").config == CONFIG


def test_soft_lock_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filelock, "FileLock", filelock.SoftFileLock)
    with pytest.raises(QuatcapsError, match="has no locks"), owned(tmp_path):
        pytest.fail("owned")


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(filelock.FileLock, "_acquire", refuse)
    with pytest.raises(QuatcapsError, match=r"cannot lock .*: permission denied"), owned(tmp_path):
        pytest.fail("owned")


def test_one_of_several_gets_a_new_folder(noise_images: ImageSet, tmp_path: Path) -> None:
    """Released together, on one folder that is not there yet or empty, again and again."""
    count, tries = 4, 40
    barrier, made, refused = threading.Barrier(count), [], []

    def create() -> None:
        for number in range(tries):
            folder = tmp_path / str(number)
            barrier.wait()
            try:
                create_run(folder, CONFIG, noise_images)
                made.append(number)
            except QuatcapsError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=create) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == list(range(tries))
    assert len(refused) == (count - 1) * tries
    assert all(
        "is not empty" in words or "belongs to process" in words or "another process" in words for words in refused
    )


def test_folder_of_a_run_that_was_killed_as_it_began(noise_images: ImageSet, tmp_path: Path) -> None:
    """Before run.json had its name: the folder counts as empty."""
    code = (
        "import os, signal, sys; from pathlib import Path; from quatcaps import files\n"
        "from quatcaps.training import lock\n"
        "with lock.owned(Path(sys.argv[1])):\n"
        "    files.flush = lambda path: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    files.write_json(Path(sys.argv[1]) / 'run.json', {})\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list(tmp_path.glob(".run.json.*.part*"))
    run = create_run(tmp_path, CONFIG, noise_images)
    assert open_run(tmp_path) == run
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "run.json"]


def test_owner_removes_what_was_not_finished(tmp_path: Path) -> None:
    """Training's own files alone: another process may be writing its evaluation."""
    part = "0123456789abcdef.part"
    checkpoint = tmp_path / "checkpoints"
    left = [tmp_path / f".log.jsonl.{part}.jsonl", checkpoint / "step-00000004" / f".state.json.{part}.json"]
    kept = [tmp_path / f".evaluation-test.json.{part}.json", tmp_path / "log.jsonl", checkpoint / "step-00000004" / "x"]
    (checkpoint / f".step-00000008.{part}").mkdir(parents=True)
    (checkpoint / f".step-00000008.{part}" / "weights.safetensors").write_bytes(b"half")
    for path in (*left, *kept):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("")
    with owned(tmp_path):
        assert not any(path.exists() for path in left)
        assert [path.name for path in checkpoint.iterdir()] == ["step-00000004"]
        assert all(path.exists() for path in kept)


STOPPED = """
import os, signal, sys
from quatcaps.cli import main
from quatcaps.training.progress import TrainingProgress

TrainingProgress.step = lambda self, step, *state: os.kill(os.getpid(), signal.SIGSTOP) if step == 2 else None
main()
"""


def test_live_run_is_left_alone(toys_folder: Path, tmp_path: Path, command: Callable) -> None:
    """Resuming it is refused in one line; measuring it is not; its log is whole in the end."""
    folder = tmp_path / "run"
    settings = ["--recipe", "small", "--dataset", "toys-mini", "--epochs", 2, "--checkpoint-every", 1]
    settings += ["--device", "cpu", "--evaluate-every", 0, "--viewpoints", "azimuth"]
    settings += ["--output", folder, "--data-dir", toys_folder]
    process = subprocess.Popen([sys.executable, "-c", STOPPED, "train", *map(str, settings)], stdout=subprocess.DEVNULL)
    try:
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])  # alive, and in nobody's way
        assert checkpoints(folder / "checkpoints")
        before = (folder / "log.jsonl").read_bytes()
        resumed = command("train", "--resume", folder, "--data-dir", toys_folder)
        assert resumed.code == 1
        assert resumed.err.startswith(f"error: the run {folder} belongs to process {process.pid} on ")
        assert resumed.err.count("\n") == 1
        again = command("train", *settings)
        assert (again.code, again.err.count("\n")) == (1, 1)
        assert (folder / "log.jsonl").read_bytes() == before
        assert command("evaluate", folder, "--data-dir", toys_folder, "--device", "cpu").code == 0
    finally:
        process.send_signal(signal.SIGCONT)
    assert process.wait(240) == 0
    assert [record["epoch"] for record in read_log(folder / "log.jsonl") if record["kind"] == "epoch"] == [0, 1]

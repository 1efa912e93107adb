"""Runs side by side. Workers are stand-ins that leave records at once; `work` is what real ones do."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up import leave, made_up
from rich.console import Console

from quatcaps.errors import QuatcapsError
from quatcaps.files import read_json
from quatcaps.paper import reproduce, to_error, workers
from quatcaps.paper.miniature import quick
from quatcaps.paper.record import RunRecord
from quatcaps.paper.reproduce import Request
from quatcaps.paper.rows import ROWS
from quatcaps.paper.stopping import NEVER, Deadline
from quatcaps.paper.work import Job, Place, Summary
from quatcaps.paper.workers import described, lacks_mps, perform_side_by_side, rows_of, work

JOBS = [Job(ROWS[key], seed) for seed in (0, 1) for key in ("azimuth-strict/em", "elevation-strict/em")]
FIRST = """
import json, os, pathlib, shutil, signal, sys, time
task, outcome = json.load(open(sys.argv[1])), sys.argv[2]
made, output = pathlib.Path(task["output"]).parent / "made", pathlib.Path(task["output"])
def record(key, seed):
    target = output / "runs" / key / f"seed-{seed}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(made / "runs" / key / f"seed-{seed}.json", target)
"""
DILIGENT = FIRST + "for job in task['jobs'][int(pathlib.Path(outcome).stem) :: 2]: record(*job)"
FORGETFUL = (
    FIRST + "record(*task['jobs'][0]); json.dump({'elevation-strict/em, seed 0': 'no toys'}, open(outcome, 'w'))"
)
BROKEN = FIRST + "print('out of luck'); sys.exit(3)"
SLOW = FIRST + (
    "record(*task['jobs'][0])\n"
    "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(outcome + '.saved').touch(), sys.exit(0)))\n"
    "pathlib.Path(outcome + '.ready').touch()\n"
    "time.sleep(60)"
)


def whole(job: Job) -> RunRecord:
    """A record with all the epochs that its row wants."""
    return made_up(job.row, seed=job.seed, epochs=job.row.config(job.seed).epochs)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for job in JOBS:
        leave(tmp_path / "made", whole(job))
    return Place(tmp_path / "results", tmp_path / "runs", device="cpu")


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def told(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def stand_in(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(workers, "SECONDS_BETWEEN_LOOKS", 0.02)
    monkeypatch.setattr(workers, "command", lambda task, outcome: [sys.executable, "-c", script, task, outcome])


def side_by_side(place: Place, console: Console, deadline: Deadline = NEVER) -> Summary:
    return perform_side_by_side(JOBS, place, console, deadline, 2, again=False, origin={"quick": False})


def test_all_are_recorded_and_told(place: Place, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, DILIGENT)
    leave(place.output, whole(JOBS[0]))
    summary = side_by_side(place, console)
    assert (summary.before, summary.trained) == (JOBS[:1], JOBS[1:])
    assert not summary.interrupted
    assert "3 runs by 2 workers" in told(console)
    assert "1 of 3 recorded, 0.0 min so far, about " in told(console)
    assert side_by_side(place, console).before == JOBS
    assert told(console).count("workers") == 2, "nothing is started where nothing is left"


def test_again_timed_runs_are_trained_by_workers_too(
    place: Place, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of before are neither told as new ones, nor as trained where workers leave them as they are."""
    jobs = [Job(replace(job.row, timed=True), job.seed) for job in JOBS]
    for job in jobs:
        path = leave(place.output, whole(job))
        os.utime(path, (1.0, 1.0))

    def again() -> Summary:
        return perform_side_by_side(jobs, place, console, NEVER, 2, again=True, origin={"quick": False})

    stand_in(monkeypatch, "pass")
    left_alone = again()
    assert (left_alone.trained, left_alone.before, left_alone.held) == ([], [], jobs)
    stand_in(monkeypatch, DILIGENT)
    assert again().trained == jobs


def test_why_a_run_could_not_be_done(place: Place, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, FORGETFUL)
    summary = side_by_side(place, console)
    assert summary.trained == JOBS[:1]
    assert summary.failed == {JOBS[1]: "no toys"}
    assert summary.held == JOBS[2:]


def test_workers_that_break_down(place: Place, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, BROKEN)
    summary = side_by_side(place, console)
    assert list(summary.failed) == JOBS
    (why,) = set(summary.failed.values())
    log = Path(why.removeprefix("a worker broke down; the end of ").removesuffix(" says why"))
    assert "out of luck" in log.read_text()
    (line,) = reproduce.reasons(summary)
    assert line.startswith("azimuth-strict/em, seed 0; ")
    assert line.endswith(why)


@pytest.mark.parametrize("interrupted", [False, True])
def test_workers_save_when_stopped(
    place: Place, console: Console, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    stand_in(monkeypatch, SLOW)
    sleep, until, stopped = time.sleep, time.monotonic() + 30, []

    def looked(seconds: float) -> None:
        sleep(seconds)
        assert time.monotonic() < until
        if not stopped and len(list(place.work.rglob("*.ready"))) == 2:
            stopped.append(True)
            if interrupted:
                raise KeyboardInterrupt
            monkeypatch.setattr(Deadline, "passed", True)

    monkeypatch.setattr(workers.time, "sleep", looked)
    summary = side_by_side(place, console)
    assert (summary.trained, summary.left, summary.interrupted) == (JOBS[:1], JOBS[1:], interrupted)
    assert len(list(place.work.rglob("*.saved"))) == 2


@pytest.mark.parametrize("small", [False, True])
def test_what_a_worker_is_told_is_what_it_does(
    place: Place, console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: bool
) -> None:
    seen: dict[str, Any] = {}

    def perform(
        jobs: list[Job], place: Place, console: Console, deadline: Deadline, *, again: bool, since: float | None
    ) -> Summary:
        seen.update(jobs=jobs, place=place, again=again, since=since)
        return Summary(failed={jobs[1]: "no toys"})

    monkeypatch.setattr(workers, "perform", perform)
    jobs = [Job(quick(job.row), job.seed) for job in JOBS] if small else JOBS
    path = tmp_path / "task.json"
    path.write_text(json.dumps(described(jobs, place, since=12.5, origin={"quick": small})))
    assert work(read_json(path, "a task"), console) == {"elevation-strict/em, seed 0": "no toys"}
    assert [(job.row.config(job.seed), job.seed) for job in seen["jobs"]] == [
        (j.row.config(j.seed), j.seed) for j in jobs
    ]
    assert (seen["again"], seen["since"]) == (True, 12.5)
    assert replace(seen["place"], rows={}) == place
    first = seen["place"].rows["poses-toys/qcn-rotor/poses-2"].config(0)
    assert (first.dataset == "toys-mini") == small, "which others may begin with"


def test_without_mps_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(workers, "GPU", tmp_path / "gpu")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert not lacks_mps()
    (tmp_path / "gpu").touch()
    assert lacks_mps()
    (tmp_path / "control").touch()
    assert not lacks_mps()


def test_the_command_line_asks_for_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, console: Console) -> None:
    asked: list[Any] = []

    def side_by_side(jobs: list[Job], *given: Any, **how: Any) -> Summary:
        asked.extend((len(jobs), given[-1], how))
        return Summary()

    monkeypatch.setattr(reproduce, "perform_side_by_side", side_by_side)
    places = {"output": tmp_path, "work": tmp_path, "device": "cpu"}
    given = Request(("table1",), rows=("*-strict/em",), seeds=(0, 1), side_by_side=3, quick=True, **places)
    reproduce.reproduce(given, console)
    assert asked == [4, 3, {"again": False, "origin": {"quick": True}}]
    with pytest.raises(QuatcapsError, match="side by side = 0: at least 1"):
        Request(("table1",), side_by_side=0)
    for other in ({"launcher": "slurm"}, {"processes": 2}):
        with pytest.raises(QuatcapsError, match="leave out --launcher and --processes"):
            Request(("table1",), side_by_side=2, **other)  # type: ignore[arg-type]


def test_settings_on_held_out_images_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, console: Console) -> None:
    asked: list[Any] = []

    def side_by_side(jobs: list[Job], place: Place, *given: Any, **how: Any) -> Summary:
        path = tmp_path / "task.json"
        path.write_text(json.dumps(described(jobs, place, since=None, origin=how["origin"])))
        rows = rows_of(read_json(path, "a task")["origin"])
        asked.extend((job.row.config(job.seed), rows[job.row.key].config(job.seed)) for job in jobs)
        return Summary()

    monkeypatch.setattr(to_error, "perform_side_by_side", side_by_side)
    given = {"datasets": ("mnist",), "validation": 0.1, "tried": ("epochs=2,3",), "recipe": "best", "seeds": 2}
    places = {"output": tmp_path, "work": tmp_path, "device": "cpu", "quick": True}
    to_error.to_error(to_error.Request(**given, **places, side_by_side=3), console)  # type: ignore[arg-type]
    assert len(asked) == 4
    assert all(here == there for here, there in asked)
    with pytest.raises(QuatcapsError, match="--side-by-side without --validation: runs that share a GPU"):
        to_error.Request(side_by_side=2)
    with pytest.raises(QuatcapsError, match="side by side"):
        to_error.Request(side_by_side=0)

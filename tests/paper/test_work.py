"""Runs by row and seed: none twice, none lost, each by one process."""

from __future__ import annotations

import io
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from made_up import leave, made_up
from rich.console import Console

from quatcaps.data.download import DownloadError
from quatcaps.errors import QuatcapsError
from quatcaps.paper import work
from quatcaps.paper.miniature import quick
from quatcaps.paper.record import read_record
from quatcaps.paper.row import Row
from quatcaps.paper.rows import ROWS
from quatcaps.paper.stopping import NEVER, Deadline, stopping_after
from quatcaps.paper.work import (
    DAMAGED,
    DONE,
    NONE,
    OTHER,
    STARTED,
    Job,
    Place,
    in_order,
    perform,
    state,
)
from quatcaps.training.lock import HeldError, holding
from quatcaps.training.progress import TrainingProgress
from quatcaps.training.run import open_run

ROW = quick(ROWS["azimuth-strict/em"])
JOB = Job(ROW, 0)
pytestmark = pytest.mark.usefixtures("unchecked")


def changed(row: Row, **changes: object) -> Row:
    return replace(row, configuration=lambda: row.configuration().changed(changes))


PLAIN = changed(quick(ROWS["azimuth-strict/cnn"]), evaluate_images=50, model_settings={"widths": (4, 4)})
"""What is trained here in earnest: how a run stops and goes on does not depend on its network, and this one is fast."""


@pytest.fixture
def place(tmp_path: Path, toys_folder: Path) -> Place:
    return Place(tmp_path / "results", tmp_path / "runs", toys_folder, "cpu")


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Training that only leaves a record, and who was trained."""
    done: list[Job] = []

    def train(job: Job, place: Place, console: Console, *, again: bool, deadline: Deadline) -> None:
        leave(place.output, made_up(job.row, job.seed, epochs=job.row.config(0).epochs))
        done.append(job)

    monkeypatch.setattr(work, "train", train)
    return done


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_one_seed_of_everything_before_two_of_anything() -> None:
    rows = [ROWS["mnist/em"], ROWS["mnist/vb"]]
    assert [str(job) for job in in_order(rows, (0, 2))] == [
        "mnist/em, seed 0",
        "mnist/vb, seed 0",
        "mnist/em, seed 2",
        "mnist/vb, seed 2",
    ]


def test_a_stopped_run_goes_on_and_ends_with_the_numbers_of_an_unbroken_one(
    place: Place, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [Job(PLAIN, 0), Job(PLAIN, 1)]
    assert [state(job, place) for job in jobs] == [NONE, NONE]
    told = TrainingProgress.epoch

    def stop(self: TrainingProgress, epoch: int, *arguments: object) -> None:
        told(self, epoch, *arguments)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched, stopping_after(None) as deadline:
        patched.setattr(TrainingProgress, "epoch", stop)
        summary = perform(jobs, place, console, deadline)
    assert summary.interrupted
    assert summary.left == jobs
    assert [state(job, place) for job in jobs] == [STARTED, NONE]
    assert "stopped: interrupted after step" in printed(console)

    summary = perform(jobs[:1], place, console, Deadline())
    assert summary.trained == jobs[:1]
    assert not summary.left
    assert state(jobs[0], place) == DONE
    record = read_record(place.record(jobs[0]))

    unbroken = replace(place, output=place.output / "unbroken", work=place.work / "unbroken")
    perform(jobs[:1], unbroken, console, Deadline())
    whole = read_record(unbroken.record(jobs[0]))
    for name in ("epoch", "step", "loss", "error", "test_error", "novel_error"):
        assert [entry[name] for entry in record.epochs] == [entry[name] for entry in whole.epochs]
    assert record.final == whole.final
    assert record.final["test"].images == 300
    assert record.final["novel"].images == 600
    assert record.final["novel"].percent / 100 == pytest.approx(record.last["novel_error"], abs=1e-12)
    assert record.parameters == 257
    assert record.data == whole.data != ""
    assert record.config == PLAIN.config(0).changed({"device": "cpu"})


def test_what_is_recorded_is_not_done_again(place: Place, console: Console, trained: list[Job]) -> None:
    jobs = in_order([ROW], range(3))
    leave(place.output, made_up(ROW, seed=1, epochs=2))
    summary = perform(jobs, place, console, Deadline())
    assert trained == summary.trained == [jobs[0], jobs[2]]
    assert summary.before == [jobs[1]]
    assert "run 3 of 3, " in printed(console)


def test_a_record_with_other_settings_is_kept_unless_asked(place: Place, console: Console, trained: list[Job]) -> None:
    path = leave(place.output, made_up(ROW, epochs=2, learning_rate=0.5, device="cuda"))
    before = path.read_bytes()
    jobs = [JOB, Job(ROW, 1)]
    assert state(JOB, place) == OTHER
    summary = perform(jobs, place, console, Deadline())
    assert "learning_rate was 0.5, is 0.003" in summary.failed[JOB]
    assert "device" not in summary.failed[JOB]
    assert "--again" in summary.failed[JOB]
    assert path.read_bytes() == before
    assert summary.trained == [jobs[1]]
    assert perform([JOB], place, console, Deadline(), again=True).trained == [JOB]
    assert state(JOB, place) == DONE


def test_a_damaged_record_does_not_stop_the_others(place: Place, console: Console, trained: list[Job]) -> None:
    jobs = in_order([ROW], range(2))
    place.record(JOB).parent.mkdir(parents=True)
    place.record(JOB).write_text("{")
    assert [state(job, place) for job in jobs] == [DAMAGED, NONE]
    summary = perform(jobs, place, console, Deadline())
    assert trained == [jobs[1]]
    assert str(place.record(JOB)) in summary.failed[JOB]
    assert "--again replaces it" in summary.failed[JOB]
    assert perform(jobs, place, console, Deadline(), again=True).trained == [JOB]
    assert state(JOB, place) == DONE


def test_a_damaged_run_is_moved_aside_only_when_asked(
    place: Place, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(work, "start_run", lambda wanted, *_: begun.append(wanted) or 1 / 0)
    place.folder(JOB).mkdir(parents=True)
    (place.folder(JOB) / "run.json").write_text("[]")
    assert state(JOB, place) == DAMAGED
    assert "--again moves it aside" in perform([JOB], place, console, Deadline()).failed[JOB]
    assert not begun
    with pytest.raises(ZeroDivisionError):
        perform([JOB], place, console, Deadline(), again=True)
    assert begun
    assert (place.folder(JOB).with_name("seed-0-before-1") / "run.json").read_text() == "[]"


def test_a_run_begun_with_other_settings_is_moved_aside_only_when_asked(place: Place, console: Console) -> None:
    row = changed(PLAIN, epochs=1, evaluate_every=0)
    perform([Job(row, 0)], place, console, Deadline())
    place.record(Job(row, 0)).unlink()
    assert state(Job(row, 0), place) == STARTED  # trained to its end, not recorded
    other = Job(changed(row, batch=100), 0)
    assert state(other, place) == OTHER
    summary = perform([other], place, console, Deadline())
    assert "begun with other settings (batch was 64, is 100)" in summary.failed[other]
    assert perform([other], place, console, Deadline(), again=True).trained == [other]
    assert read_record(place.record(other)).config.batch == 100
    assert (place.folder(other).with_name("seed-0-before-1") / "run.json").exists()


def test_a_finished_run_without_a_record_is_only_recorded(place: Place, console: Console) -> None:
    row = changed(PLAIN, epochs=1, evaluate_every=0)
    job = Job(row, 0)
    perform([job], place, console, Deadline())
    first = read_record(place.record(job))
    place.record(job).unlink()
    assert perform([job], place, console, Deadline()).trained == [job]
    assert read_record(place.record(job)).epochs == first.epochs
    assert "is trained to its end" in printed(console)


def test_what_another_process_holds_is_passed_over_and_looked_at_again(
    place: Place, console: Console, trained: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = in_order([ROW], range(2))
    lock = FileLock(place.folder(jobs[0]).with_suffix(".lock"))
    place.folder(jobs[0]).parent.mkdir(parents=True)
    with lock:
        summary = perform(jobs, place, console, Deadline())
        assert summary.trained == [jobs[1]]
        assert summary.held == [jobs[0]]
        assert perform(jobs, place, console, Deadline()).held == [jobs[0]]
    instead = work.train

    def release(job: Job, *arguments: object, **options: object) -> None:
        instead(job, *arguments, **options)  # type: ignore[arg-type]
        if lock.is_locked:
            lock.release()

    monkeypatch.setattr(work, "train", release)
    jobs = in_order([ROW], (0, 2))
    lock.acquire()
    assert perform(jobs, place, console, Deadline()).trained == [jobs[1], jobs[0]]


def test_one_process_at_a_time_holds_a_run(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.lock"
    with holding(path, "x"), pytest.raises(HeldError), holding(path, "x"):
        pass
    with holding(path, "x"):
        pass


def test_what_cannot_be_done_does_not_stop_the_others(
    place: Place, console: Console, trained: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, instead = in_order([ROW], range(4)), work.train

    def fail(job: Job, *arguments: object, **options: object) -> None:
        if job.seed == 0:
            raise QuatcapsError("svhn is not here: bring it")
        if job.seed == 1:
            raise MemoryError
        if job.seed == 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")
        instead(job, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(work, "train", fail)
    summary = perform(jobs, place, console, Deadline())
    assert {job: words[:30] for job, words in summary.failed.items()} == {
        jobs[0]: "svhn is not here: bring it",
        jobs[1]: "out of memory",
        jobs[2]: "DefaultCPUAllocator: can't all",
    }
    assert trained == [jobs[3]]


def test_a_dataset_that_cannot_be_fetched_is_asked_for_once(
    place: Place, console: Console, trained: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, instead = in_order([ROWS["svhn/em"], ROWS["svhn/vb"], ROWS["mnist/vb"]], (0, 1)), work.train
    leave(place.output, made_up(ROWS["svhn/vb"], 0, epochs=ROWS["svhn/vb"].config(0).epochs))
    asked: list[Job] = []

    def fail(job: Job, *arguments: object, **options: object) -> None:
        if job.row.dataset == "svhn":
            asked.append(job)
            raise DownloadError("no server has train_32x32.mat")
        instead(job, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(work, "train", fail)
    summary = perform(jobs, place, console, Deadline())
    assert asked == [jobs[0]]
    assert summary.before == [jobs[1]], "what is recorded needs no images"
    again = "svhn cannot be fetched, as for svhn/em, seed 0"
    assert summary.failed == {jobs[0]: "no server has train_32x32.mat", jobs[3]: again, jobs[4]: again}
    assert trained == [jobs[2], jobs[5]]


def test_nothing_begins_after_the_deadline(place: Place, console: Console, trained: list[Job]) -> None:
    summary = perform([JOB], place, console, Deadline(at=0.0))
    assert summary.left == [JOB]
    assert not trained
    assert not summary.interrupted


FIRST = replace(changed(PLAIN, viewpoints="all", epochs=1), key="first/row", viewpoints="all")
SECOND = replace(PLAIN, key="second/row", pretrained="first/row")
"""In miniature, plain networks stand for both."""


def test_a_pretrained_row_begins_with_the_run_of_another(place: Place, console: Console) -> None:
    """Which is trained first where it is not there, also if it is recorded, whose record then stays as it is."""
    unknown = perform([Job(SECOND, 0)], place, console, NEVER)
    assert "which is no row of these tables" in unknown.failed[Job(SECOND, 0)]
    place = replace(place, rows={FIRST.key: FIRST})
    after = perform([Job(SECOND, 0), Job(FIRST, 0)], place, console, NEVER)
    assert (after.trained, after.before) == ([Job(SECOND, 0)], [Job(FIRST, 0)])
    assert str(place.folder(Job(FIRST, 0))) in open_run(place.folder(Job(SECOND, 0))).initial
    recorded = place.record(Job(FIRST, 0)).read_bytes()
    clone = replace(place, work=place.work / "clone")
    assert perform([Job(SECOND, 1)], clone, console, NEVER).trained == [Job(SECOND, 1)]
    assert place.record(Job(FIRST, 0)).read_bytes() == recorded
    assert "which is trained first" in printed(console)


def test_nobody_begins_with_a_run_of_other_settings(place: Place, console: Console) -> None:
    other = replace(place, rows={FIRST.key: changed(FIRST, learning_rate=0.123)})
    assert perform([Job(other.rows[FIRST.key], 0)], other, console, NEVER).trained
    place = replace(place, rows={FIRST.key: FIRST})
    failed = perform([Job(SECOND, 0)], place, console, NEVER).failed[Job(SECOND, 0)]
    assert "begins with the weights of first/row, seed 0" in failed
    assert "learning_rate was 0.123" in failed


def test_a_run_that_was_stopped_before_it_had_its_first_weights_begins_anew(place: Place, console: Console) -> None:
    place, job = replace(place, rows={FIRST.key: FIRST}), Job(SECOND, 0)
    perform([job], place, console, NEVER)
    place.record(job).unlink()
    shutil.rmtree(open_run(place.folder(job)).checkpoints)
    assert perform([job], place, console, NEVER).trained == [job]


def test_again_begins_a_damaged_run_anew(place: Place, console: Console) -> None:
    job = Job(PLAIN, 0)
    perform([job], place, console, NEVER)
    place.record(job).unlink()
    log = place.folder(job) / "log.jsonl"
    lines = [line for line in log.read_text().splitlines() if '"kind": "epoch"' not in line]
    log.write_text("".join(f"{line}\n" for line in lines))
    assert "epochs in its log" in perform([job], place, console, NEVER).failed[job]
    assert perform([job], place, console, NEVER, again=True).trained == [job]
    assert place.folder(job).with_name("seed-0-before-1").exists()


@pytest.mark.parametrize("told", [True, False])
def test_a_run_that_cannot_be_paired_says_so(
    place: Place, console: Console, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """Its record is kept all the same: a table may be made of errors alone."""
    row = ROWS["evidence-azimuth-strict/cnn"]
    record = made_up(row, 0, epochs=row.config(0).epochs)
    monkeypatch.setattr(work, "trained", lambda *_: record if told else replace(record, by_toy={}))
    assert perform([Job(row, 0)], place, console, NEVER).trained == [Job(row, 0)]
    assert ("cannot be paired with others" in printed(console)) != told
    assert read_record(place.record(Job(row, 0))).pairs == told


def test_again_trains_timed_runs_once(place: Place, console: Console, trained: list[Job]) -> None:
    """What is recorded since the request is not trained once more, by whomever; what was before is."""
    job = Job(replace(ROW, timed=True), 0)
    perform([job], place, console, NEVER)
    assert perform([job], place, console, NEVER, again=True).trained == [job]
    since = place.record(job).stat().st_mtime
    assert perform([job], place, console, NEVER, again=True, since=since).before == [job]
    assert perform([job], place, console, NEVER, again=True, since=since + 1).trained == [job]
    assert trained == [job] * 3


def test_who_begins_with_a_run_that_fails_fails_too(
    place: Place, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(job: Job, *arguments: object) -> None:
        raise QuatcapsError("no images")

    monkeypatch.setattr(work, "trained", fail)
    jobs = [Job(SECOND, 0), Job(FIRST, 0)]
    summary = perform(jobs, replace(place, rows={FIRST.key: FIRST}), console, Deadline())
    assert summary.failed == dict.fromkeys(jobs, "no images")
    assert not summary.held

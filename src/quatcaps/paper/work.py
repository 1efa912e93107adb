"""Runs by row and seed: what is finished is left alone, what was begun goes on, what another process holds is passed
over."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from quatcaps.console import say
from quatcaps.data.download import DownloadError
from quatcaps.errors import QuatcapsError, is_out_of_memory
from quatcaps.files import explained
from quatcaps.paper.record import (
    RunRecord,
    differences,
    read_record,
    record_path,
    told,
    twin_record,
    write_record,
)
from quatcaps.paper.recording import make_record
from quatcaps.paper.row import Row
from quatcaps.paper.stopping import NEVER, Deadline
from quatcaps.paper.timed import train_timed
from quatcaps.paper.torchrun import train_together
from quatcaps.training.checkpoint import checkpoints, read_position
from quatcaps.training.config import TrainingConfig
from quatcaps.training.health import NonFiniteError
from quatcaps.training.lock import HeldError, holding, owned
from quatcaps.training.loop import RunInterruptedError
from quatcaps.training.run import create_run, open_run
from quatcaps.training.start import checked, load_run_images, resume_run, start_run
from quatcaps.training.trained import Trained, trained_run

DONE, STARTED, NONE, OTHER, DAMAGED = "done", "started", "none", "other settings", "damaged"
"""States of a run: recorded; begun; neither; recorded or begun with other settings than its row has now; its record, or
the description of the run that was begun, cannot be read."""


class Job(NamedTuple):
    """One run."""

    row: Row
    seed: int

    def __str__(self) -> str:
        return f"{self.row.key}, seed {self.seed}"


@dataclass(frozen=True)
class Place:
    """Where runs read, work and leave their records."""

    output: Path
    work: Path
    data_dir: Path | None = None
    device: str = "auto"
    processes: int = 1  # that train one run together
    rows: Mapping[str, Row] = field(default_factory=dict)  # by key: those that others may begin with

    def record(self, job: Job) -> Path:
        return record_path(self.output, job.row.key, job.seed)

    def folder(self, job: Job) -> Path:
        return self.work / job.row.key / f"seed-{job.seed}"


@dataclass
class Summary:
    """What became of the jobs; `failed` says why."""

    before: list[Job] = field(default_factory=list)
    trained: list[Job] = field(default_factory=list)
    held: list[Job] = field(default_factory=list)
    failed: dict[Job, str] = field(default_factory=dict)
    left: list[Job] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0


def in_order(rows: Sequence[Row], seeds: Iterable[int]) -> list[Job]:
    """One seed of everything before two of anything; no more of a row than it wants."""
    return [Job(row, seed) for seed in seeds for row in rows if not row.wanted or seed < row.wanted]


@dataclass(frozen=True)
class Standing:
    """How far a run is, its record where there is one, and what is wrong with a file that is damaged."""

    state: str
    record: RunRecord | None = None
    problem: str = ""


def standing(job: Job, place: Place) -> Standing:
    """How far a run is; nothing that lies there is an error."""
    wanted = job.row.config(job.seed)
    try:
        if place.record(job).exists():
            record = read_record(place.record(job))
            return Standing(OTHER if differences(record.config, wanted) else DONE, record)
        if (other := twin_record(place.output, job.row, job.seed)) is not None:
            return Standing(DONE, other)
        if (place.folder(job) / "run.json").exists():
            return Standing(OTHER if differences(open_run(place.folder(job)).config, wanted) else STARTED)
    except QuatcapsError as error:
        return Standing(DAMAGED, problem=str(error))
    return Standing(NONE)


def state(job: Job, place: Place) -> str:
    """One of the states above."""
    return standing(job, place).state


def perform(
    jobs: Sequence[Job],
    place: Place,
    console: Console,
    deadline: Deadline,
    *,
    again: bool = False,
    since: float | None = None,
) -> Summary:
    """Trains and records what is not recorded yet, in order.

    A job that cannot be done is noted and the others go on; a dataset that cannot be fetched is asked for once. What
    another process holds is looked at again in the end, for as long as something gets done. since: with `again`, what
    was recorded before that time of the clock is what is trained again; none: before now.
    """
    summary, waiting, begun = Summary(), list(jobs), time.monotonic()
    since = (time.time() if since is None else since) if again else None
    unfetched: dict[str, Job] = {}
    while waiting and not summary.left:
        held: list[Job] = []
        for number, job in enumerate(waiting, 1):
            if deadline.passed:
                summary.left = [*waiting[number - 1 :], *held]
                break
            if (first := unfetched.get(job.row.dataset)) and not place.record(job).exists():
                summary.failed[job] = f"{job.row.dataset} cannot be fetched, as for {first}"
                continue
            try:
                progress = _progress(number, waiting, place, begun, summary)
                _attempt(job, place, console, since, deadline, summary, held, progress)
            except (RunInterruptedError, KeyboardInterrupt) as stop:
                say(console, f"stopped: {stop}" if isinstance(stop, RunInterruptedError) else "stopped")
                summary.left = [*waiting[number - 1 :], *held]
                summary.interrupted = not deadline.passed
                break
            except (QuatcapsError, MemoryError, RuntimeError, OSError) as error:
                if not isinstance(error, QuatcapsError) and not is_out_of_memory(error):
                    raise
                summary.failed[job] = str(error) or "out of memory"
                if isinstance(error, DownloadError):
                    unfetched[job.row.dataset] = job
                say(console, f"{job} cannot be done: {summary.failed[job]}")
            gc.collect()  # a run's graph and images go before the next one begins
        if summary.left or len(held) == len(waiting):
            summary.held = [] if summary.left else held
            break
        waiting = held
    summary.seconds = time.monotonic() - begun
    return summary


def _attempt(
    job: Job,
    place: Place,
    console: Console,
    since: float | None,
    deadline: Deadline,
    summary: Summary,
    held: list[Job],
    progress: str,
) -> None:
    """Does one job, unless it is done, or held by another process; enters it where it belongs."""
    if _finished(job, place, since):
        summary.before.append(job)
        return
    try:
        with holding(place.folder(job).with_suffix(".lock"), str(job)):
            if _finished(job, place, since):
                summary.before.append(job)
            else:
                say(console, f"{progress}: {job}")
                train(job, place, console, again=since is not None, deadline=deadline)
                summary.trained.append(job)
    except HeldError as error:
        say(console, f"passed over: {error}")
        held.append(job)


def train(job: Job, place: Place, console: Console, *, again: bool = False, deadline: Deadline = NEVER) -> None:
    """Trains a run, from where it stands if it was begun, and records it."""
    wanted, folder = job.row.config(job.seed), place.folder(job)
    if (folder / "run.json").exists() and (reason := _not_resumable(job, folder, wanted)):
        if not (again or job.row.timed):
            raise QuatcapsError(f"{reason}: --again moves it aside")
        set_aside(folder)
    if (folder / "run.json").exists() and _has_no_weights(folder):
        set_aside(folder)
    wanted = wanted.changed({"device": place.device})
    if again and (folder / "run.json").exists():
        load_run_images(wanted, place.data_dir, console)  # whose absence is no reason to begin anew
        try:
            record = trained(job, wanted, place, console, deadline)
        except (HeldError, RunInterruptedError, NonFiniteError):
            raise
        except QuatcapsError as error:
            say(console, f"{error}; it is moved aside and begun anew")
            set_aside(folder)
            record = trained(job, wanted, place, console, deadline)
    else:
        record = trained(job, wanted, place, console, deadline)
    if job.row.paired and not record.pairs:
        say(
            console,
            f"{job}: errors counted here are not those at its end, as another machine rounds otherwise; without errors "
            "by toy or image it cannot be paired with others: measure it where it was trained, with --again",
        )
    write_record(place.record(job), record)


def trained(job: Job, wanted: TrainingConfig, place: Place, console: Console, deadline: Deadline) -> RunRecord:
    """The record of a run that is trained from its start or goes on."""
    row, folder = job.row, place.folder(job)
    begun = (folder / "run.json").exists()
    if row.timed:
        run, experiment = train_timed(wanted, folder, place.data_dir, console)
    elif place.processes > 1:
        if row.pretrained:
            raise QuatcapsError(f"{job} begins with the weights of another run: train it by one process")
        experiment = load_run_images(wanted, place.data_dir, console)
        run = open_run(folder) if begun else create_run(folder, checked(wanted), experiment.training, experiment.tests)
        train_together(folder, place.processes, place.device, place.data_dir, deadline)
    else:
        if begun:
            run = resume_run(folder, place.data_dir, console, place.device)
        else:
            run = start_run(wanted, folder, place.data_dir, console, pretrained(job, place, console, deadline))
        experiment = load_run_images(run.config, place.data_dir, console)
    asked = {"inspected": row.inspected, "renormalised": "systems" in row.tables}
    return make_record(row.key, row.recipe, run, experiment, place.device, **asked)


def pretrained(job: Job, place: Place, console: Console, deadline: Deadline) -> Trained | None:
    """The network that a run begins with, where its row says so: that of another row's run of seed 0, which is trained
    first where it is not there; a record that it has stays as it is."""
    if not job.row.pretrained:
        return None
    if job.row.pretrained not in place.rows:
        raise QuatcapsError(f"{job} begins with the weights of {job.row.pretrained}, which is no row of these tables")
    first = Job(place.rows[job.row.pretrained], 0)
    folder = place.folder(first)
    with holding(folder.with_suffix(".lock"), str(first)):
        wanted = first.row.config(0)
        if (folder / "run.json").exists() and (reason := _not_resumable(first, folder, wanted)):
            raise QuatcapsError(f"it begins with the weights of {first}: {reason}; --again with its row moves it aside")
        if not is_trained(folder):
            say(console, f"it begins with the weights of {first}, which is trained first")
            recorded = state(first, place) == DONE
            record = trained(first, wanted.changed({"device": place.device}), place, console, deadline)
            if not recorded:
                write_record(place.record(first), record)
    return trained_run(open_run(folder))


def is_trained(folder: Path) -> bool:
    """Whether the run in a folder is there and trained to its end."""
    if not (folder / "run.json").exists():
        return False
    run = open_run(folder)
    saved = checkpoints(run.checkpoints)
    return bool(saved) and read_position(saved[-1]).epoch >= run.config.epochs


def _has_no_weights(folder: Path) -> bool:
    """Whether a run was stopped before it had the weights of another that it begins with: nothing is lost with it."""
    run = open_run(folder)
    return bool(run.initial) and not checkpoints(run.checkpoints)


def _not_resumable(job: Job, folder: Path, wanted: TrainingConfig) -> str:
    """Why the run that was begun in a folder cannot go on; empty if it can."""
    if job.row.timed:
        return f"{folder} holds a run whose seconds would be those of two parts"
    try:
        differing = differences(open_run(folder).config, wanted)
    except QuatcapsError as error:
        return str(error)
    return f"{folder} holds a run that was begun with other settings ({told(differing)})" if differing else ""


def set_aside(folder: Path) -> None:
    """Renames the folder of a run that no process has to the first free name after it."""
    number = 1
    while (other := folder.with_name(f"{folder.name}-before-{number}")).exists():
        number += 1
    with owned(folder), explained(f"move {folder} aside"):
        folder.rename(other)


def is_kept(job: Job, place: Place, record: RunRecord, since: float | None) -> bool:
    """Whether a run need not be trained or measured again: with `since` it is, if its record is older, and of a timed
    run or one that cannot be paired in a table that pairs."""
    path = place.record(job)
    if since is None or (path.exists() and path.stat().st_mtime >= since):
        return True
    return not job.row.timed and (record.pairs or not job.row.paired)


def _finished(job: Job, place: Place, since: float | None) -> bool:
    """Whether there is nothing to do. since: what is recorded with other settings, damaged, or not to be kept is
    trained again; None: a record with other settings or a damaged one is an error."""
    path, again = place.record(job), since is not None
    if not path.exists():
        other = twin_record(place.output, job.row, job.seed)
        return other is not None and is_kept(job, place, other, since)
    try:
        record = read_record(path)
    except QuatcapsError as error:
        if again:
            return False
        raise QuatcapsError(f"{error}; --again replaces it") from error
    differing = differences(record.config, job.row.config(job.seed))
    if differing and not again:
        raise QuatcapsError(
            f"{path} was made with other settings ({told(differing)}): it stays as it is; --again replaces it"
        )
    return not differing and is_kept(job, place, record, since)


def _progress(number: int, waiting: Sequence[Job], place: Place, begun: float, summary: Summary) -> str:
    spent = (time.monotonic() - begun) / 60
    words = f"run {number} of {len(waiting)}"
    if summary.trained:
        left = sum(not place.record(job).exists() for job in waiting[number - 1 :])
        words += f", {spent:.1f} min so far, about {spent / len(summary.trained) * left:.1f} min left"
    return words

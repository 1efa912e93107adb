"""Runs by row and seed: what is finished is left alone, what was begun goes on, what another process holds is passed
over."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Sequence
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
    make_record,
    read_record,
    record_path,
    told,
    twin_record,
    write_record,
)
from quatcaps.paper.row import Row
from quatcaps.paper.stopping import NEVER, Deadline
from quatcaps.paper.timed import train_timed
from quatcaps.paper.torchrun import train_together
from quatcaps.training.checkpoint import checkpoints, read_position
from quatcaps.training.config import TrainingConfig
from quatcaps.training.lock import HeldError, holding, owned
from quatcaps.training.loop import RunInterruptedError
from quatcaps.training.run import create_run, open_run
from quatcaps.training.start import checked, load_run_images, resume_run, start_run
from quatcaps.training.trained import Trained, trained_run

DONE, STARTED, NONE, OTHER, DAMAGED = "done", "started", "none", "other settings", "damaged"
"""States of a run: recorded; begun; neither; recorded or begun with other settings than its row has now; its record, or
the description of the run that was begun, cannot be read."""


class NotTrainedError(QuatcapsError):
    """The run that another one begins with is not trained to its end."""


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


def perform(jobs: Sequence[Job], place: Place, console: Console, deadline: Deadline, *, again: bool = False) -> Summary:
    """Trains and records what is not recorded yet, in order.

    A job that cannot be done is noted and the others go on; a dataset that cannot be fetched is asked for once. What
    another process holds, and what begins with a run that is not trained yet, is looked at again in the end, for as
    long as something gets done.
    """
    summary, waiting, begun = Summary(), list(jobs), time.monotonic()
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
                _attempt(job, place, console, again, deadline, summary, held, progress)
            except (RunInterruptedError, KeyboardInterrupt) as stop:
                say(console, f"stopped: {stop}" if isinstance(stop, RunInterruptedError) else "stopped")
                summary.left = [*waiting[number - 1 :], *held]
                summary.interrupted = not deadline.passed
                break
            except (QuatcapsError, MemoryError, RuntimeError, OSError) as error:
                if not isinstance(error, QuatcapsError) and not is_out_of_memory(error):
                    raise
                if isinstance(error, NotTrainedError) and _may_still_be_trained(job, jobs, summary):
                    say(console, f"passed over: {job} begins with {job.row.pretrained}, which is not trained yet")
                    held.append(job)
                    continue
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


def _may_still_be_trained(job: Job, jobs: Sequence[Job], summary: Summary) -> bool:
    """Whether the run that a job begins with is one of these, here or in another process."""
    first = {other for other in jobs if (other.row.key, other.seed) == (job.row.pretrained, 0)}
    return bool(first - set(summary.failed) - set(summary.before))


def _attempt(
    job: Job,
    place: Place,
    console: Console,
    again: bool,
    deadline: Deadline,
    summary: Summary,
    held: list[Job],
    progress: str,
) -> None:
    """Does one job, unless it is done, or held by another process; enters it where it belongs."""
    if _finished(job, place, again):
        summary.before.append(job)
        return
    try:
        with holding(place.folder(job).with_suffix(".lock"), str(job)):
            if _finished(job, place, again):
                summary.before.append(job)
            else:
                say(console, f"{progress}: {job}")
                train(job, place, console, again=again, deadline=deadline)
                summary.trained.append(job)
    except HeldError as error:
        say(console, f"passed over: {error}")
        held.append(job)


def train(job: Job, place: Place, console: Console, *, again: bool = False, deadline: Deadline = NEVER) -> None:
    """Trains a run, from where it stands if it was begun, and records it."""
    wanted, folder = job.row.config(job.seed), place.folder(job)
    begun = (folder / "run.json").exists()
    if begun and (reason := _not_resumable(job, folder, wanted)):
        if not (again or job.row.timed):
            raise QuatcapsError(f"{reason}: --again moves it aside")
        with owned(folder):
            aside(folder)
        begun = False
    wanted = wanted.changed({"device": place.device})
    if job.row.timed:
        run, experiment = train_timed(wanted, folder, place.data_dir, console)
    elif place.processes > 1:
        if job.row.pretrained:
            raise QuatcapsError(f"{job} begins with the weights of another run: train it by one process")
        experiment = load_run_images(wanted, place.data_dir, console)
        run = open_run(folder) if begun else create_run(folder, checked(wanted), experiment.training, experiment.tests)
        train_together(folder, place.processes, place.device, place.data_dir, deadline)
    else:
        if begun:
            run = resume_run(folder, place.data_dir, console, place.device)
        else:
            run = start_run(wanted, folder, place.data_dir, console, pretrained(job, place))
        experiment = load_run_images(run.config, place.data_dir, console)
    row = job.row
    asked = {"inspected": row.inspected, "renormalised": "systems" in row.tables}
    record = make_record(row.key, row.recipe, run, experiment, place.device, **asked)
    write_record(place.record(job), record)


def pretrained(job: Job, place: Place) -> Trained | None:
    """The network that a run begins with, where its row says so: that of another row's run of seed 0."""
    if not job.row.pretrained:
        return None
    folder = place.work / job.row.pretrained / "seed-0"
    try:
        run = open_run(folder)
        if not (saved := checkpoints(run.checkpoints)) or read_position(saved[-1]).epoch < run.config.epochs:
            raise QuatcapsError(f"{folder} is not trained to its end")
        return trained_run(run)
    except QuatcapsError as error:
        raise NotTrainedError(
            f"it begins with the weights of {job.row.pretrained}, seed 0: {error}; train that first, in the same --work"
        ) from error


def _not_resumable(job: Job, folder: Path, wanted: TrainingConfig) -> str:
    """Why the run that was begun in a folder cannot go on; empty if it can."""
    if job.row.timed:
        return f"{folder} holds a run whose seconds would be those of two parts"
    try:
        differing = differences(open_run(folder).config, wanted)
    except QuatcapsError as error:
        return str(error)
    return f"{folder} holds a run that was begun with other settings ({told(differing)})" if differing else ""


def aside(folder: Path) -> Path:
    """Renames a folder to the first free name after it."""
    number = 1
    while (other := folder.with_name(f"{folder.name}-before-{number}")).exists():
        number += 1
    with explained(f"move {folder} aside"):
        return folder.rename(other)


def _finished(job: Job, place: Place, again: bool) -> bool:
    path = place.record(job)
    if again and job.row.timed:
        return False
    if not path.exists():
        return twin_record(place.output, job.row, job.seed) is not None
    try:
        differing = differences(read_record(path).config, job.row.config(job.seed))
    except QuatcapsError as error:
        if again:
            return False
        raise QuatcapsError(f"{error}; --again replaces it") from error
    if differing and not again:
        raise QuatcapsError(
            f"{path} was made with other settings ({told(differing)}): it stays as it is; --again replaces it"
        )
    return not differing


def _progress(number: int, waiting: Sequence[Job], place: Place, begun: float, summary: Summary) -> str:
    spent = (time.monotonic() - begun) / 60
    words = f"run {number} of {len(waiting)}"
    if summary.trained:
        left = sum(not place.record(job).exists() for job in waiting[number - 1 :])
        words += f", {spent:.1f} min so far, about {spent / len(summary.trained) * left:.1f} min left"
    return words

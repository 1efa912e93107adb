"""Runs side by side on one machine: several workers, each a process that takes the next run nobody has.

A worker keeps its kernels from run to run, so that many short runs cost little more than their training.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from quatcaps.console import say, standard_output
from quatcaps.files import make_folder, read_json, write_json
from quatcaps.paper.miniature import quick
from quatcaps.paper.row import Row
from quatcaps.paper.rows import ROWS
from quatcaps.paper.stopping import Deadline, stopping_after
from quatcaps.paper.work import DONE, Job, Place, Summary, is_kept, perform, standing
from quatcaps.training.loop import RunInterruptedError

SECONDS_TO_SAVE, SECONDS_BETWEEN_LOOKS = 60.0, 0.5
THREADS = "OMP_NUM_THREADS"
GPU = Path("/dev/nvidiactl")
MPS_PIPES, MPS_USUAL = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"
NO_MPS = (
    "NVIDIA's MPS daemon is not running: these processes take turns on the GPU; `nvidia-cuda-mps-control -d` before "
    "this command lets them share it"
)


@dataclass
class Worker:
    """A process, and the files that say what it is to do, what it printed and what it could not do."""

    process: subprocess.Popen[bytes]
    log: Path
    outcome: Path
    told: bool = False


def perform_side_by_side(
    jobs: Sequence[Job],
    place: Place,
    console: Console,
    deadline: Deadline,
    count: int,
    *,
    again: bool,
    origin: Mapping[str, Any],
) -> Summary:
    """`perform` by `count` workers. Ctrl-C, SIGTERM and the deadline reach them, and they leave checkpoints.

    origin: where workers find the rows, as `rows_of` reads it.
    """
    begun, summary = time.monotonic(), Summary()
    since = time.time() if again else None
    summary.before = [job for job in jobs if is_done(job, place, since)]
    waiting = [job for job in jobs if job not in set(summary.before)]
    if not waiting:
        return summary
    folder = make_folder(place.work.absolute() / "workers" / str(os.getpid()))
    task = folder / "task.json"
    write_json(task, described(waiting, place, since=since, origin=origin))
    if place.device != "cpu" and lacks_mps():
        say(console, NO_MPS)
    workers = [start(folder, task, number, count) for number in range(min(count, len(waiting)))]
    say(console, f"{len(waiting)} runs by {len(workers)} workers, which print to {folder}")
    try:
        watch(workers, waiting, place, console, deadline, begun, since)
    except (KeyboardInterrupt, RunInterruptedError):
        summary.interrupted = True
    finally:
        stop(workers)
    reasons = {key: why for worker in workers for key, why in failures(worker).items()}
    broken = [str(worker.log) for worker in workers if worker.process.returncode]
    for job in waiting:
        if is_done(job, place, since):
            summary.trained.append(job)
        elif str(job) in reasons:
            summary.failed[job] = reasons[str(job)]
        elif summary.interrupted or deadline.passed:
            summary.left.append(job)
        elif broken:
            summary.failed[job] = f"a worker broke down; the end of {broken[0]} says why"
        else:
            summary.held.append(job)
    summary.seconds = time.monotonic() - begun
    return summary


def is_done(job: Job, place: Place, since: float | None) -> bool:
    """Whether a run is recorded, and need not be trained again."""
    found = standing(job, place)
    return found.state == DONE and found.record is not None and is_kept(job, place, found.record, since)


def described(jobs: Sequence[Job], place: Place, *, since: float | None, origin: Mapping[str, Any]) -> dict[str, Any]:
    """What workers are to do. Paths are absolute."""
    return {
        "jobs": [[job.row.key, job.seed] for job in jobs],
        "output": str(place.output.absolute()),
        "work": str(place.work.absolute()),
        "data_dir": None if place.data_dir is None else str(place.data_dir.absolute()),
        "device": place.device,
        "since": since,
        "origin": dict(origin),
    }


def command(task: Path, outcome: Path) -> list[str]:
    return [sys.executable, "-m", "quatcaps.paper.workers", str(task), str(outcome)]


def start(folder: Path, task: Path, number: int, count: int) -> Worker:
    """Starts a worker, in a session of its own: Ctrl-C is for the process that watches."""
    log, outcome = folder / f"{number}.log", folder / f"{number}.json"
    outcome.unlink(missing_ok=True)
    threads = str(max(1, (os.cpu_count() or 1) // count))
    environment = {THREADS: threads, **os.environ, "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            command(task, outcome), stdout=file, stderr=file, env=environment, start_new_session=True
        )
    return Worker(process, log, outcome)


def watch(
    workers: Sequence[Worker],
    jobs: Sequence[Job],
    place: Place,
    console: Console,
    deadline: Deadline,
    begun: float,
    since: float | None,
) -> None:
    """Tells what is recorded, until all workers have ended or the time is up."""
    left, total, ended = list(jobs), len(jobs), False
    while not (ended or deadline.passed):
        time.sleep(SECONDS_BETWEEN_LOOKS)
        ended = all(worker.process.poll() is not None for worker in workers)
        for job in [job for job in left if place.record(job).exists() and is_done(job, place, since)]:
            left.remove(job)
            spent, done = (time.monotonic() - begun) / 60, total - len(left)
            time_left = f", about {spent / done * len(left):.1f} min left" if left else ""
            say(console, f"{done} of {total} recorded, {spent:.1f} min so far{time_left}: {job}")
        for worker in workers:
            if worker.process.poll() and not worker.told:
                worker.told = True
                say(console, f"a worker broke down with status {worker.process.returncode}: see {worker.log}")


def stop(workers: Sequence[Worker]) -> None:
    """Lets the workers save and end. None is killed before its time: under MPS that breaks the others."""
    for worker in workers:
        if worker.process.poll() is None:
            worker.process.send_signal(signal.SIGTERM)
    until = time.monotonic() + SECONDS_TO_SAVE
    for worker in workers:
        try:
            worker.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def failures(worker: Worker) -> dict[str, str]:
    """Which runs it could not do, and why."""
    return read_json(worker.outcome, "what a worker could not do") if worker.outcome.exists() else {}


def lacks_mps() -> bool:
    """Whether there is an NVIDIA GPU, and no MPS daemon."""
    return GPU.exists() and not Path(os.environ.get(MPS_PIPES, MPS_USUAL), "control").exists()


def rows_of(origin: Mapping[str, Any]) -> dict[str, Row]:
    """The rows of the paper's tables, or those of a request of `bench --to-error`, by key."""
    if "to_error" in origin:
        from quatcaps.paper.to_error import Request  # which starts workers itself

        asked = origin["to_error"].items()
        given: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in asked}
        return {row.key: row for row in Request(**given).rows()}
    return {key: quick(row) if origin["quick"] else row for key, row in ROWS.items()}


def work(task: dict[str, Any], console: Console) -> dict[str, str]:
    """What a worker does; returns which runs it could not do, and why."""
    rows = rows_of(task["origin"])
    data_dir = None if task["data_dir"] is None else Path(task["data_dir"])
    place = Place(Path(task["output"]), Path(task["work"]), data_dir, task["device"], rows=rows)
    jobs = [Job(rows[key], seed) for key, seed in task["jobs"]]
    with stopping_after(None) as deadline:
        since = task["since"]
        summary = perform(jobs, place, console, deadline, again=since is not None, since=since)
    return {str(job): why for job, why in summary.failed.items()}


if __name__ == "__main__":
    given, outcome = map(Path, sys.argv[1:])
    write_json(outcome, work(read_json(given, "what workers are to do"), standard_output()))

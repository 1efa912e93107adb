"""Independent runs through submitit: one job for each row and seed, on Slurm or as processes of this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from quatcaps.console import say
from quatcaps.errors import QuatcapsError
from quatcaps.paper.work import Job

if TYPE_CHECKING:
    from quatcaps.paper.reproduce import Request

LAUNCHERS = ("here", "slurm", "local")


def command(request: Request, job: Job) -> list[str]:
    """The command line that does one job; paths are absolute, as a job begins where its launcher pleases."""
    place = request.place
    parts = [sys.executable, "-m", "quatcaps", "reproduce", *request.tables]
    parts += ["--rows", job.row.key, "--seed", str(job.seed), "--device", place.device]
    parts += ["--output", str(place.output.absolute()), "--work", str(place.work.absolute())]
    if place.data_dir is not None:
        parts += ["--data-dir", str(place.data_dir.absolute())]
    if request.budget is not None:
        parts += ["--budget", f"{request.budget:g}"]
    if request.processes > 1:
        parts += ["--processes", str(request.processes)]
    parts += ["--quick"] if request.quick else []
    return parts + (["--again"] if request.again else [])


def launch(request: Request, jobs: Sequence[Job], console: Console) -> None:
    """Submits the jobs. On Slurm it returns at once; on this machine it waits for them, one after the other."""
    submitit = _submitit()
    logs = request.place.work.absolute() / "jobs"
    executor = submitit.AutoExecutor(folder=logs, cluster=request.launcher)
    try:
        executor.update_parameters(**{name: _value(text) for name, text in request.launcher_options.items()})
    except (NameError, TypeError, ValueError) as error:
        raise QuatcapsError(f"--launcher-option: submitit does not take it: {error}") from error
    for job in jobs:
        submitted = executor.submit(submitit.helpers.CommandFunction(command(request, job), verbose=False))
        say(console, f"{job}: job {submitted.job_id}, logs in {logs}")
        if request.launcher == "local":
            submitted.exception()  # waits; what went wrong stands in the job's log, and its record is missing
    if request.launcher == "slurm":
        say(console, "the tables grow as jobs end; --render renders them from what there is")


def _value(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _submitit() -> Any:
    try:
        import submitit
        import submitit.helpers
    except ImportError as error:
        raise QuatcapsError("submitit is not installed: pip install 'quatcaps[slurm]'") from error
    return submitit

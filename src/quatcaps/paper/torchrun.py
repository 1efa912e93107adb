"""One run over several processes: torchrun trains it in its folder, this process waits."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

from quatcaps.errors import QuatcapsError
from quatcaps.paper.stopping import NEVER, Deadline
from quatcaps.training.loop import RunInterruptedError

SECONDS_TO_SAVE, SECONDS_BETWEEN_LOOKS = 60.0, 0.5


def command(folder: Path, processes: int, device: str, data_dir: Path | None) -> list[str]:
    """What trains the run in a folder to its end."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    train = ["-m", "quatcaps", "train", "--resume", str(folder), "--device", device]
    return [*start, *train, *(["--data-dir", str(data_dir)] if data_dir is not None else [])]


def train_together(
    folder: Path, processes: int, device: str, data_dir: Path | None, deadline: Deadline = NEVER
) -> None:
    """Trains the run in `folder` by so many processes. Stopped by Ctrl-C, SIGTERM or the deadline, it waits until they
    have saved."""
    with subprocess.Popen(command(folder, processes, device, data_dir)) as torchrun:
        try:
            code = None
            while code is None:
                if deadline.passed:
                    raise RunInterruptedError("the time is up")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = torchrun.wait(SECONDS_BETWEEN_LOOKS)
        except (KeyboardInterrupt, RunInterruptedError) as stop:
            torchrun.send_signal(signal.SIGTERM)
            try:
                torchrun.wait(SECONDS_TO_SAVE)
            except subprocess.TimeoutExpired:
                torchrun.kill()
            raise RunInterruptedError(f"the processes of {folder} were stopped") from stop
    if code:
        raise QuatcapsError(f"torchrun ended with status {code}: what it printed above says why; run in {folder}")

"""`quatcaps` as one of several processes under torchrun, of which one, RANK AT STEP given first, is sent a signal."""

from __future__ import annotations

import os
import signal
import sys

from quatcaps.cli import main
from quatcaps.training.progress import TrainingProgress

rank, at = int(sys.argv.pop(1)), int(sys.argv.pop(1))
report = TrainingProgress.step


def step(progress: TrainingProgress, number: int, *state: int) -> None:
    report(progress, number, *state)
    if number == at and os.environ["RANK"] == str(rank):
        os.kill(os.getpid(), signal.SIGTERM)


TrainingProgress.step = step  # type: ignore[method-assign,assignment]
main()

"""Stopping in time: a budget, Ctrl-C and SIGTERM all leave a checkpoint and finished files."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from quatcaps.errors import QuatcapsError
from quatcaps.training.loop import RunInterruptedError

SECONDS_BETWEEN = 10.0
"""Enough for a checkpoint."""


@dataclass(frozen=True)
class Deadline:
    """When the time is up, by the monotonic clock; None: never."""

    at: float | None = None

    @property
    def passed(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at


NEVER = Deadline()


@contextmanager
def stopping_after(minutes: float | None) -> Iterator[Deadline]:
    """Lets what is done inside go on for so many minutes.

    Then this process sends itself SIGTERM, and again every few seconds, for a run that only begins by then: the
    training loop answers with a checkpoint and RunInterruptedError. Outside of it `Deadline.passed` tells who asks.
    SIGTERM from elsewhere raises the same error at once. Off the main thread, where signals cannot be heard, only
    `Deadline.passed` tells.
    """
    if minutes is None:
        deadline = Deadline()
    elif 0 < minutes < math.inf:
        deadline = Deadline(time.monotonic() + 60 * minutes)
    else:
        raise QuatcapsError(f"budget = {minutes:g} minutes: it must be above 0 and finite")
    if threading.current_thread() is not threading.main_thread():
        yield deadline
        return
    over = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        # An error raised here may be lost, as in the clearing of a weak reference; who asks the deadline loses nothing.
        if not over.is_set() and not deadline.passed:
            raise RunInterruptedError("stopped between runs: nothing is lost")

    def remind(seconds: float) -> None:
        while not over.wait(min(seconds, threading.TIMEOUT_MAX)):
            if sys.platform == "win32":
                signal.raise_signal(signal.SIGTERM)  # there `os.kill` ends the process, whatever it hears
            else:
                os.kill(os.getpid(), signal.SIGTERM)
            seconds = SECONDS_BETWEEN

    before = signal.signal(signal.SIGTERM, stop)
    timer = None
    if minutes is not None:
        timer = threading.Thread(target=remind, args=(60 * minutes,), daemon=True)
        timer.start()
    try:
        yield deadline
    finally:
        over.set()
        if timer is not None:
            timer.join()
        signal.signal(signal.SIGTERM, before)

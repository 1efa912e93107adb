"""How long a run will take, measured on its first steps."""

from __future__ import annotations

import time

from rich.console import Console

from quatcaps.console import say
from quatcaps.training.config import TrainingConfig

SKIPPED = 2
"""Steps that are not timed: libraries load and memory is taken in the first ones."""
LEAST_STEPS, LEAST_SECONDS = 3, 2.0
"""What is timed at least; a run that is over before is not estimated."""
MEASURING = 1 / 3
"""What an image costs that is measured, of what it costs in training: forward without backward."""
LONG = 3600.0
"""Seconds from which on a CPU something shorter is suggested."""
REMEDY = (
    "on a CPU that is long: train a smaller network (--recipe small, or --recipe demo), fewer --epochs or a smaller "
    "--image-size and --crop, or use a GPU; Ctrl-C stops with a checkpoint to go on from"
)


class Estimate:
    """Says once, early in a run, how long all of it will take. A reporter, beside the progress bar."""

    def __init__(self, console: Console, config: TrainingConfig, measured: int, *, on_cpu: bool) -> None:
        """measured: images that are measured in the whole of what is left, views counted one by one."""
        self.console, self.config, self.measured, self.on_cpu = console, config, measured, on_cpu
        self.first: int | None = None
        self.begin: tuple[int, float] | None = None
        self.last = 0.0  # when a step was reported
        self.said = False

    def step(self, step: int, steps: int, epoch: int, loss: float, error: float) -> None:
        if self.said:
            return
        now = self.last = time.perf_counter()
        if self.first is None:
            self.first = step
        if self.begin is None:
            if step >= self.first + SKIPPED - 1:
                self.begin = (step, now)
            return
        done, seconds = step - self.begin[0], now - self.begin[1]
        if done < LEAST_STEPS or seconds < LEAST_SECONDS:
            return
        self.said = True
        left = seconds / done * (steps - step + MEASURING * self.measured / self.config.batch)
        say(self.console, f"about {in_words(left)} to go, by the first steps ({done / seconds:,.1f} steps/s)")
        if self.on_cpu and left > LONG:
            say(self.console, REMEDY)

    def epoch(
        self, epoch: int, epochs: int, loss: float, error: float, measured: dict[str, float], degrees: dict[str, float]
    ) -> None:
        """Leaves out what it took to measure this epoch."""
        if self.begin is not None:
            self.begin = (self.begin[0], self.begin[1] + time.perf_counter() - self.last)


def in_words(seconds: float) -> str:
    """A duration to about two digits.

    >>> in_words(7.0), in_words(200.0), in_words(420_000.0)
    ('7 seconds', '3 minutes', '117 hours')
    """
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{max(1.0, seconds):.0f} seconds"


def images_to_measure(config: TrainingConfig, epoch: int, between: int, at_end: int) -> int:
    """How many images a run measures from an epoch on: `between` epochs and `at_end`, each by its windows."""
    times = 0
    if config.evaluate_every:
        times = (config.epochs - 1) // config.evaluate_every - epoch // config.evaluate_every
    return (times * between + at_end) * config.test_crops**2

"""How long a run will take, measured on its first steps."""

from __future__ import annotations

import math
import time
from pathlib import Path

from rich.console import Console

from quatcaps.console import say
from quatcaps.training.config import TrainingConfig

LEAST_STEPS, LEAST_SECONDS, ENOUGH_SECONDS = 3, 2.0, 10.0
"""How many steps are timed at least, and how long, or how long even if they are fewer. A run that is over before is not
estimated. The first step is not timed: libraries load, and memory is taken."""
MEASURING = 1 / 3
"""What an image costs that is measured, of what it costs in training: forward without backward."""
SHORT = 10.0
"""Seconds below which it is not worth saying."""
FEW, MANY = 300, 1000
"""Steps that teach a network little, and so many that would do."""
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
        self.begin: tuple[int, float] | None = None
        self.last = 0.0  # when a step was reported
        self.said = False

    def step(self, step: int, steps: int, epoch: int, loss: float, error: float) -> None:
        if self.said:
            return
        now = self.last = time.perf_counter()
        if self.begin is None:
            self.begin = (step, now)
            return
        done, seconds = step - self.begin[0], now - self.begin[1]
        if seconds < (LEAST_SECONDS if done >= LEAST_STEPS else ENOUGH_SECONDS):
            return
        self.said = True
        left = seconds / done * (steps - step + MEASURING * self.measured / self.config.batch)
        if left < SHORT:
            return
        say(self.console, f"about {in_words(left)} to go, by the first steps ({done / seconds:,.1f} steps/s)")
        if self.on_cpu and left > LONG:
            say(self.console, REMEDY)

    def epoch(
        self, epoch: int, epochs: int, loss: float, error: float, measured: dict[str, float], degrees: dict[str, float]
    ) -> None:
        """Leaves out what it took to measure this epoch."""
        if self.begin is not None:
            self.begin = (self.begin[0], self.begin[1] + time.perf_counter() - self.last)


def few_steps(folder: Path, steps: int, epochs: int) -> str:
    """What to do about a run that had few steps, as on a few hundred images; nothing where there were enough.

    >>> few_steps(Path("runs/photos"), 28, 14)
    '28 steps are few to learn from: quatcaps train --resume runs/photos --epochs 500 goes on'
    >>> few_steps(Path("runs/photos"), 5000, 14)
    ''
    """
    if steps >= FEW:
        return ""
    more = math.ceil(MANY * epochs / max(steps, 1) / 100) * 100
    return f"{steps} steps are few to learn from: quatcaps train --resume {folder} --epochs {more} goes on"


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
    elif config.evaluate_at:
        times = 1
    return (times * between + at_end) * config.looks

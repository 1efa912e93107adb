"""The learning rate as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math

from quatcaps.training.config import TrainingConfig


def learning_rate(config: TrainingConfig, step: int, steps: int) -> float:
    """The rate for training step `step` (0, 1, …) of `steps`. `linear` with a warm-up is the triangle that others call
    one cycle: up in a straight line, then down to 0 in another."""
    start = config.learning_rate * min(1.0, (step + 1) / (config.warmup + 1))
    if config.schedule == "cosine":
        return start * 0.5 * (1 + math.cos(math.pi * step / steps))
    if config.schedule == "linear":
        return start * min(1.0, (steps - step) / max(1, steps - config.warmup))
    if config.schedule == "staircase":
        return start * config.decay ** (step // config.decay_steps)
    if config.schedule == "exponential":
        return start * config.decay ** (step / config.decay_steps)
    return start

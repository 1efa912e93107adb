"""The learning rate as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math

from quatcaps.training.config import TrainingConfig


def learning_rate(config: TrainingConfig, step: int, steps: int) -> float:
    """The rate for training step `step` (0, 1, …) of `steps`."""
    if config.schedule == "cosine":
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
    if config.schedule == "staircase":
        return config.learning_rate * config.decay ** (step // config.decay_steps)
    return config.learning_rate

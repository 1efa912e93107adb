"""The recipe `paper`."""

from __future__ import annotations

from quatcaps.data import pipeline_of
from quatcaps.training.config import TrainingConfig


def paper(dataset: str = "toys") -> TrainingConfig:
    """The paper's settings: full network, Adam at 3e-3 times 0.96 every 20,000 steps, 300 epochs, batch 64; and what it
    does with the images of each dataset."""
    return TrainingConfig(dataset=dataset, **vars(pipeline_of(dataset)))

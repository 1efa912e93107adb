"""Whole configurations by name, each for any dataset. A variant is another one with a difference."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from quatcaps.data import pipeline_of
from quatcaps.training.config import TrainingConfig


@runtime_checkable
class Recipe(Protocol):
    """A configuration for a dataset."""

    def __call__(self, dataset: str = "toys") -> TrainingConfig: ...


def paper(dataset: str = "toys") -> TrainingConfig:
    """The paper's settings: full network, Adam at 3e-3 times 0.96 every 20,000 steps, 300 epochs, batch 64; and what it
    does with the images of each dataset."""
    return TrainingConfig(dataset=dataset, **vars(pipeline_of(dataset)))


def best(dataset: str = "toys") -> TrainingConfig:
    """Meant to reach further than `paper` with no more parameters, its settings chosen on validation images. So far a
    rate that ends at 0 and weight decay: a beginning that no measurement has chosen yet."""
    return paper(dataset).changed({"schedule": "cosine", "weight_decay": 0.01})


def small(dataset: str = "toys") -> TrainingConfig:
    """The small network for CPUs, with a rate that ends at 0."""
    return paper(dataset).changed(
        {"model": "qcn-small", "schedule": "cosine", "epochs": 14, "learning_rate": 1e-2, "weight_decay": 0.05}
    )


def demo(dataset: str = "toys") -> TrainingConfig:
    """The small network on the familiar azimuths of the toys: minutes on two cores."""
    return small(dataset).changed({"viewpoints": "azimuth", "evaluate_every": 2, "checkpoint_every": 250})


def demo_cnn(dataset: str = "toys") -> TrainingConfig:
    """The demo's control: a CNN of the same size under the same schedule, with the loss made for it."""
    return demo(dataset).changed({"model": "cnn-small", "loss": "cross-entropy"})


RECIPES: dict[str, Recipe] = {
    "paper": paper,
    "best": best,
    "small": small,
    "demo": demo,
    "demo-cnn": demo_cnn,
}

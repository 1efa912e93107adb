"""Whole configurations by name, each for any dataset. A variant is another one with a difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

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


TOYS: Mapping[str, Any] = {
    "epochs": 60,
    "learning_rate": 1e-2,
    "weight_decay": 0.1,
    "margin_scale": 100.0,
    "averaging": 0.998,
    "noise": 0.7,
    "patch": 0.6,
    "test_crops": 3,
}
"""Where few toys stand for a class, what is left to learn is what another toy would look like: chosen on toys held out
of smallNORB's training images, five times one of each class (docs/reproduction.md)."""

BEST: Mapping[str, Mapping[str, Any]] = {"smallnorb": TOYS, "toys": TOYS, "toys-mini": TOYS}
"""What `best` changes, by dataset."""
UNCHOSEN: Mapping[str, Any] = {"weight_decay": 0.01}
"""On any other: a beginning that no measurement has chosen."""


def best(dataset: str = "toys") -> TrainingConfig:
    """Meant to reach further than `paper` with no more parameters: a rate that ends at 0, and settings that were chosen
    on validation images where the dataset is in `BEST`."""
    return paper(dataset).changed({"schedule": "cosine", **BEST.get(dataset, UNCHOSEN)})


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

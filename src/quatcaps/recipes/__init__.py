"""Whole configurations by name. A variant is another one with a difference."""

from __future__ import annotations

from collections.abc import Callable

from quatcaps.training.config import TrainingConfig


def paper() -> TrainingConfig:
    """The paper's settings: full network, Adam at 3e-3 times 0.96 every 20,000 steps, 300 epochs, batch 64."""
    return TrainingConfig()


def small() -> TrainingConfig:
    """The small network for CPUs, with a rate that ends at 0."""
    return paper().changed(
        {"model": "qcn-small", "schedule": "cosine", "epochs": 14, "learning_rate": 1e-2, "weight_decay": 0.05}
    )


def demo() -> TrainingConfig:
    """The small network on the familiar azimuths of the toys: minutes on two cores."""
    return small().changed({"viewpoints": "azimuth", "evaluate_every": 2, "checkpoint_every": 250})


def demo_cnn() -> TrainingConfig:
    """The demo's control: a CNN of the same size under the same schedule, with the loss made for it."""
    return demo().changed({"model": "cnn-small", "loss": "cross-entropy"})


RECIPES: dict[str, Callable[[], TrainingConfig]] = {
    "paper": paper,
    "small": small,
    "demo": demo,
    "demo-cnn": demo_cnn,
}

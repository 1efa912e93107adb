"""Whole configurations by name, each for any dataset. A variant is another one with a difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from quatcaps.errors import unknown_name
from quatcaps.recipes.as_published import paper
from quatcaps.recipes.chosen import best
from quatcaps.training.config import TrainingConfig

__all__ = ["RECIPES", "Recipe", "best", "configured", "demo", "demo_cnn", "paper", "small"]


@runtime_checkable
class Recipe(Protocol):
    """A configuration for a dataset."""

    def __call__(self, dataset: str = "toys") -> TrainingConfig: ...


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


def configured(recipe: str, changes: Mapping[str, Any]) -> TrainingConfig:
    """A recipe by name with some settings replaced. Model settings are added to those of the recipe, which are left out
    where the network is another one.

    >>> configured("best", {"model_settings": {"iterations": 3}}).model_settings["primary"]
    16
    """
    if recipe not in RECIPES:
        raise unknown_name("recipe", recipe, RECIPES)
    base = RECIPES[recipe](changes.get("dataset", "toys"))
    kept = base.model_settings if changes.get("model", base.model) == base.model else {}
    return base.changed({**changes, "model_settings": {**kept, **changes.get("model_settings", {})}})

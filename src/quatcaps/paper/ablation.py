"""From the recipe `paper` to `best` on smallNORB, a step at a time, and what was tried beside it: judged by toys that
are held out of the training images, so that nothing is chosen on the test images.

A class has five toys to train on. Five runs hold out one of each class in turn, so that every toy is judged once, by a
network that has seen four others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from quatcaps.models.variants import COARSE, DEEP
from quatcaps.paper.recipes import TOYS, best, paper
from quatcaps.paper.row import Row, whole
from quatcaps.training.config import TrainingConfig

DATASET = "smallnorb"
FOLDS = (0, 1, 6, 15, 593)
"""Data seeds that together hold out each training toy of smallNORB once."""
HELD_OUT: Mapping[str, Any] = {"validation": 0.2, "test": False, "evaluate_every": 0, "epochs": 15}

STEPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("paper", "the paper's settings, 15 epochs", ()),
    ("ending", "a rate that ends at 0", ("schedule",)),
    ("margin", "the largest margin from the start", ("margin_scale",)),
    ("decay", "weight decay", ("weight_decay",)),
    ("average", "averaged weights", ("averaging",)),
    ("patches", "patches of toys seen from the same viewpoint", ("patch", "patch_from")),
    ("deep", "fewer capsules, on a coarser grid behind deeper branches", ("model_settings",)),
    ("best", "zoom by 20%: best", ("scale",)),
)
"""Key, words, and the settings that take their value from `best` at this step and after it."""

KEPT = {"schedule", "epochs", "averaging", "patch"}
OF_TOYS: Mapping[str, Any] = {
    **{name: value for name, value in TOYS.items() if name not in KEPT},
    "patch_from": "class",
}
"""How `TOYS` differs from the step `patches`."""

OTHERS: Mapping[str, tuple[tuple[str, str, Mapping[str, Any]], ...]] = {
    "best": (
        ("stretched", "stretched by 30%", {"stretch": 0.3}),
        ("wider-zoom", "zoom by 30%", {"scale": 0.3}),
        ("turned", "rotation by 10°", {"rotation": 10.0}),
        ("mirrored", "mirrored toys", {"flip": True}),
        ("erasing", "a blotted square", {"erase": 0.3}),
        ("any-patches", "patches of any image of the class", {"patch_from": "class"}),
        ("windows", "several windows of a test image", {"test_crops": 3}),
        ("cross-entropy", "cross-entropy", {"loss": "cross-entropy", "score_scale": 10.0, "label_smoothing": 0.1}),
        ("higher-rate", "a higher rate, more weight decay", {"learning_rate": 1e-2, "weight_decay": 0.1}),
        ("longer", "30 epochs", {"epochs": 30}),
        ("logistic", "logistic activations", {"model_settings": {**DEEP, "activation": "logistic"}}),
        ("three-iterations", "three iterations", {"model_settings": {**DEEP, "iterations": 3}}),
    ),
    "deep": (("deep-noise", "noise", {"noise": 0.7}),),
    "patches": (
        ("coarse", "coarse shape", {"model_settings": COARSE}),
        ("coarse-zoom", "coarse shape, zoom by 20%", {"model_settings": COARSE, "scale": 0.2}),
        ("coarse-noise", "coarse shape, noise", {"model_settings": COARSE, "noise": 0.7}),
        (
            "coarse-noise-zoom",
            "coarse shape, noise, zoom by 20%",
            {"model_settings": COARSE, "noise": 0.7, "scale": 0.2},
        ),
        ("coarse-window", "coarse shape, windows of 40×40", {"model_settings": COARSE, "crop": 40}),
        ("toys", "the recipe of the rendered toys", OF_TOYS),
        ("patches-noise", "noise", {"noise": 0.7}),
        ("patches-zoom", "zoom by 20%", {"scale": 0.2}),
        ("patches-stretched", "stretched by 30%", {"stretch": 0.3}),
        (
            "patches-flat",
            "a constant rate, averaged over up to 2,000 steps",
            {"schedule": "constant", "averaging": 0.9995},
        ),
        ("patches-warmup", "a rate that rises over 1,000 steps", {"warmup": 1000}),
        ("patches-lower-rate", "a lower rate", {"learning_rate": 1e-3}),
        ("patches-shorter", "8 epochs", {"epochs": 8}),
    ),
}
"""What `best` might have been, by the step that it begins at: key, words, and the settings that it changes there."""

BEGINNINGS = {"best": "best", "deep": "… deeper branches", "patches": "… patches"}
"""Those steps in words."""


def up_to(step: str, changes: Mapping[str, Any] | None = None) -> TrainingConfig:
    """`paper` with what `best` changes up to a step, and changes beside it."""
    wanted = best(DATASET)
    number = [key for key, _, _ in STEPS].index(step)
    names = [name for _, _, changed in STEPS[: number + 1] for name in changed]
    taken = {name: getattr(wanted, name) for name in names}
    return whole(paper(DATASET).changed({**taken, **HELD_OUT, **(changes or {})}))


def rows_of_ablation() -> list[Row]:
    """A row for each step, and for each change to one of them."""
    steps = [
        (key, words if number == 0 else f"+ {words}", partial(up_to, key))
        for number, (key, words, _) in enumerate(STEPS)
    ]
    others = [
        (key, f"{BEGINNINGS[step]}, {words}", partial(up_to, step, changes))
        for step, beside in OTHERS.items()
        for key, words, changes in beside
    ]
    return [
        Row(f"ablation/{key}", ("ablation",), words, "ablation", DATASET, configuration, folds=FOLDS)
        for key, words, configuration in (*steps, *others)
    ]

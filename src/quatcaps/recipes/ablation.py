"""From the recipe `paper` to `best` on smallNORB, a step at a time, and what was tried beside it: judged by toys that
are held out of the training images, so that nothing is chosen on the test images.

A class has five toys to train on. Five runs hold out one of each class in turn, so that every toy is judged once, by a
network that has seen four others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from quatcaps.recipes import best, paper
from quatcaps.recipes.chosen import COARSE, TOYS
from quatcaps.recipes.rows import Row, whole
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
    ("best", "patches of toys seen from the same viewpoint: best", ("patch", "patch_from")),
)
"""Key, words, and the settings that take their value from `best` at this step and after it."""

KEPT = {"schedule", "epochs", "averaging", "patch"}
OF_TOYS: Mapping[str, Any] = {
    **{name: value for name, value in TOYS.items() if name not in KEPT},
    "patch_from": "class",
}
"""How `TOYS` differs from `best`."""

OTHERS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("coarse", "fewer capsules on a coarser grid", {"model_settings": COARSE}),
    ("toys", "the recipe of the rendered toys", OF_TOYS),
    ("cross-entropy", "cross-entropy", {"loss": "cross-entropy", "score_scale": 10.0, "label_smoothing": 0.1}),
    ("any-patches", "patches of any image of the class", {"patch_from": "class"}),
    ("higher-rate", "a higher rate, more weight decay", {"learning_rate": 1e-2, "weight_decay": 0.1}),
    ("windows", "several windows of a test image", {"test_crops": 3}),
    ("noise", "noise", {"noise": 0.7}),
    ("whole-toys", "images of 36×36", {"image_size": 36}),
    ("mirrored", "mirrored toys", {"flip": True}),
    ("erasing", "a blotted square", {"erase": 0.3}),
    ("warps", "rotation by 10°, zoom by 10%", {"rotation": 10.0, "scale": 0.1}),
    ("zoom", "zoom by 20%", {"scale": 0.2}),
    ("stretched", "stretched by 30%", {"stretch": 0.3}),
    ("flat", "a constant rate, averaged over up to 2,000 steps", {"schedule": "constant", "averaging": 0.9995}),
    ("warmup", "a rate that rises over 1,000 steps", {"warmup": 1000}),
    ("shorter", "8 epochs", {"epochs": 8}),
    ("longer", "30 epochs", {"epochs": 30}),
    ("logistic", "logistic activations", {"model_settings": {"activation": "logistic"}}),
    ("three-iterations", "three iterations", {"model_settings": {"iterations": 3}}),
)
"""What `best` might have been: it, and one change."""


def up_to(step: int) -> TrainingConfig:
    """`paper` with what `best` changes up to a step."""
    wanted = best(DATASET)
    names = [name for _, _, changed in STEPS[: step + 1] for name in changed]
    return whole(paper(DATASET).changed({**{name: getattr(wanted, name) for name in names}, **HELD_OUT}))


def with_change(changes: Mapping[str, Any]) -> TrainingConfig:
    """`best` with one change more."""
    return whole(best(DATASET).changed({**HELD_OUT, **changes}))


def rows_of_ablation() -> list[Row]:
    """A row for each step, and for each change to the last."""
    steps = [(f"ablation/{key}", words, partial(up_to, number)) for number, (key, words, _) in enumerate(STEPS)]
    steps[1:] = [(key, f"+ {words}", made) for key, words, made in steps[1:]]
    others = [(f"ablation/{key}", f"best, {words}", partial(with_change, changes)) for key, words, changes in OTHERS]
    return [
        Row(key, ("ablation",), words, "ablation", DATASET, configuration, folds=FOLDS)
        for key, words, configuration in (*steps, *others)
    ]

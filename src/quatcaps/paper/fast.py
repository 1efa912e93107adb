"""Short trainings: what the recipe `fast` changes, by dataset.

They are meant to come to the paper's test error in as few seconds of one GPU as they can. `quatcaps bench --to-error`
measures how many those are, and `--validation` with `--try` compares settings on held-out images.

All begin with what was reasoned from `best`: its networks and losses, a short warm-up, an average over fewer steps, and
less augmentation, as few epochs fit too little rather than too much. Epochs and rates were then chosen on held-out toys
or images (`results/to-error-held-out.md`): the shortest of those tried whose mean error lies within a standard error of
the lowest. CIFAR-10's rate falls linearly, which is 0.3 points better there than by a cosine (ten seeds, `python
benchmarks/arithmetic.py`); on the others that was not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quatcaps.models.variants import DEEP

SHORT: Mapping[str, Any] = {
    "schedule": "cosine",
    "warmup": 200,
    "averaging": 0.995,
    "model_settings": DEEP,
    "evaluate_every": 0,
    "checkpoint_every": 100_000,
    "log_every": 200,
}
"""What all have. Nothing is measured or saved before the end: both would make the GPU wait."""

MANY_IMAGES: Mapping[str, Any] = {
    **SHORT,
    "loss": "cross-entropy",
    "score_scale": 30.0,
    "batch": 256,
    "learning_rate": 1e-2,
    "weight_decay": 0.1,
}

FAST: Mapping[str, Mapping[str, Any]] = {
    "smallnorb": {
        **SHORT,
        "epochs": 30,
        "batch": 128,
        "learning_rate": 3e-3,
        "weight_decay": 0.01,
        "margin_scale": 100.0,
        "patch": 0.6,
        "patch_from": "viewpoint",
        "scale": 0.2,
    },
    "mnist": {**MANY_IMAGES, "epochs": 15, "learning_rate": 5e-3, "crop": 28, "pad": 2, "rotation": 10.0, "scale": 0.1},
    "fashionmnist": {**MANY_IMAGES, "epochs": 16, "learning_rate": 5e-3, "crop": 28, "pad": 2, "flip": True},
    "svhn": {**MANY_IMAGES, "epochs": 14, "crop": 32, "pad": 2, "rotation": 10.0, "scale": 0.1, "test_crops": 3},
    "cifar10": {**MANY_IMAGES, "epochs": 24, "schedule": "linear"},
}
"""By dataset."""
OTHER: Mapping[str, Any] = {**SHORT, "epochs": 20, "weight_decay": 0.01}
"""On any other."""

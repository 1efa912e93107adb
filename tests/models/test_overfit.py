"""Every system of the comparison learns ten rendered toys by heart, narrower than it is but with all its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from quatcaps import data
from quatcaps.data.preprocessing import for_evaluation
from quatcaps.models import MODELS, build
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.pipelines import Pipeline
from quatcaps.training.config import TrainingConfig
from quatcaps.training.step import TrainingStep

NARROW: dict[str, Any] = {
    "primary": 8,
    "pose_blocks": ((8, 2), (16, 2)),
    "activation_blocks": ((8, 4),),
    "joint_blocks": ((8, 2), (16, 2)),
    "capsules": ((8, 3, 2), (8, 3, 1)),
}
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: NARROW for name, model in MODELS.items() if model.module is CapsuleNetwork},
    **{name: {**NARROW, "stem": (16, 5, 3), "capsules": ((8, 3, 2), (8, 2, 1))} for name in ("em", "em-ibm")},
    "em-published": {**NARROW, "primary": 6, "stem": (12, 5, 4), "capsules": ((6, 3, 2), (6, 2, 1))},
    "qcn-deep": {**NARROW, "pose_blocks": ((8, 1), (8, 2), (16, 2)), "activation_blocks": ((8, 2), (8, 2))},
    **{name: {**NARROW, "stem": (16, 5, 3), "capsules": ((8, 3, 2), (8, 2, 1))} for name in ("vb", "vb-published")},
    "cnn": {"widths": (8, 16), "hidden": 64},
    "resnet-20": {"widths": (8, 16, 32)},
    "cnn-small": {},
}
CAPSULE_LOSS = {"loss": "spread", "margin_scale": 10.0}
OTHER_LOSS = {"loss": "cross-entropy", "score_scale": 1.0}
# The sigmoid of VB's batch-normalised logits is steep enough for cross-entropy; EM-IBM's thresholds begin near −1000.
LOSSES = {name: {"loss": "cross-entropy", "score_scale": 10.0} for name in ("vb", "vb-published")}
RATES = {"cnn": 3e-3}
MOST_STEPS = 300


@pytest.fixture(scope="module")
def toys(toys_folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten toys of all classes, as a network sees them."""
    images = data.load("toys-mini", "train", folder=toys_folder)
    chosen = images.select(torch.linspace(0, len(images) - 1, 10).long())
    assert torch.bincount(chosen.labels).min() >= 1
    return for_evaluation(Pipeline(), chosen.images), chosen.labels


# EM-IBM as published, narrowed, is EM-IBM with another start, a padded stem and normalised images.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "em-ibm-published"])
def test_ten_toys_are_learnt_by_heart(name: str, toys: tuple[torch.Tensor, torch.Tensor]) -> None:
    capsules = MODELS[name].module is CapsuleNetwork
    config = TrainingConfig(batch=10, **LOSSES.get(name, CAPSULE_LOSS if capsules else OTHER_LOSS))
    changes = {} if name in ("qcn-small", "qcn-coarse") else SETTINGS[name]
    network = build(name, channels=2, classes=5, seed=0, **changes).train()
    step = TrainingStep(network, config, torch.device("cpu"))
    for number in range(MOST_STEPS):
        step.totals.zero_()
        step(*toys, RATES.get(name, 5e-3), number)
        if int(step.totals[1]) == 0:
            return
    pytest.fail(f"{int(step.totals[1])} of 10 toys are still wrong after {MOST_STEPS} steps")

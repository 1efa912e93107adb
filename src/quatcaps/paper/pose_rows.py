"""The rows of `poses`: what poses know, with and without equivariant capsules and a pose objective."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from quatcaps.paper.recipes import Recipe, best, best_of_viewpoints
from quatcaps.paper.row import Row, whole
from quatcaps.training.config import TrainingConfig

OBJECTIVE = "poses"
"""The recipe of rows that are trained with a pose objective."""
LIGHTER = "poses-2"
"""… with less weight on it, where classes are named no worse than without."""
PRETRAINED = "pretrained"
"""… and of those that begin with such a network, trained on many kinds of toys."""
ROTOR, QCN, RESNET = "QCN, rotors", "QCN", "ResNet"
SMALL_RESNET: Mapping[str, Any] = {"widths": (12, 24, 48), "poses": True}
"""154,249 parameters on stereo pairs of five classes, where QCN with rotors has 163,234."""
OF_RESNET: Mapping[str, Any] = {
    "model": "resnet-20",
    "model_settings": SMALL_RESNET,
    "learning_rate": 4e-3,
    "score_scale": 1.0,
    "pose_weight": 3.0,
}
"""A quaternion for each class from a linear layer beside the scores; rate and weight chosen on kinds held out of the
training kinds, as those of QCN were."""
ONCE: Mapping[str, Any] = {"evaluate_every": 0, "test_crops": 1}

TOYS, TOYS_HERE = "toys-many", "toys"
OF_VIEWPOINTS = ("qcn-rotor/best", "qcn/best", "qcn-rotor/pretrained")
SYSTEMS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "qcn-rotor/poses": (ROTOR, OBJECTIVE, {"model": "qcn-rotor-deep", "model_settings": {}, "pose_weight": 5.0}),
    "qcn-rotor/poses-2": (ROTOR, LIGHTER, {"model": "qcn-rotor-deep", "model_settings": {}, "pose_weight": 2.0}),
    "qcn-rotor/best": (ROTOR, "best", {"model": "qcn-rotor-deep", "model_settings": {}}),
    "qcn/best": (QCN, "best", {"model": "qcn-deep", "model_settings": {}}),
    "qcn-rotor/pretrained": (ROTOR, PRETRAINED, {"model": "qcn-rotor-deep", "model_settings": {}}),
    "resnet/poses": (RESNET, OBJECTIVE, OF_RESNET),
}
"""By key: system, recipe and what it changes of `best`."""
RELATIVE = 0.3
"""Weight of the objective on smallNORB, of two views of one toy."""


def configure(base: Recipe, dataset: str, changes: Mapping[str, Any]) -> TrainingConfig:
    return whole(base(dataset).changed({**ONCE, **changes}))


def make_row(key: str, experiment: str, base: Recipe, dataset: str, changes: Mapping[str, Any]) -> Row:
    """The row of one of `SYSTEMS`, with changes beside its own."""
    system, recipe, own = SYSTEMS[key]
    viewpoints = changes.get("viewpoints", "all")
    return Row(
        key=f"poses-{experiment}/{key}",
        tables=("poses",),
        system=system,
        recipe=recipe,
        dataset=dataset,
        configuration=partial(configure, base, dataset, {**own, **changes}),
        viewpoints=viewpoints,
        protocol=changes.get("protocol", ""),
        inspected=viewpoints == "all",
        pretrained=f"poses-{TOYS_HERE}/qcn-rotor/{LIGHTER}" if recipe == PRETRAINED else "",
    )


def rows_of_poses() -> list[Row]:
    """Kinds of toys that were not trained on; smallNORB's test toys; those from novel viewpoints."""
    rows = [make_row(key, TOYS_HERE, best, TOYS, {}) for key in SYSTEMS if not key.endswith(PRETRAINED)]
    for key in ("qcn-rotor/poses", "qcn-rotor/best", "qcn/best"):
        relative = {"pose_weight": RELATIVE} if key.endswith(OBJECTIVE) else {}
        rows.append(make_row(key, "smallnorb", best, "smallnorb", relative))
    for viewpoints in ("azimuth", "elevation"):
        base: Recipe = partial(best_of_viewpoints, viewpoints, "strict")
        strict = {"viewpoints": viewpoints, "protocol": "strict"}
        rows += [make_row(key, viewpoints, base, "smallnorb", strict) for key in OF_VIEWPOINTS]
    return rows

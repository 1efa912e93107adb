"""Rows in miniature: the same systems, narrowed, an epoch or two of the small rendered toys. They show that everything
works, and measure nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from quatcaps.data import pipeline_of
from quatcaps.paper.row import Row, whole
from quatcaps.training.config import TrainingConfig

DATASET = "toys-mini"
NARROW: Mapping[str, Any] = {"stem": (8, 5, 4), "primary": 4, "capsules": ((4, 3, 2), (4, 3, 1))}
BLOCKS: Mapping[str, Any] = {
    "primary": 4,
    "capsules": ((4, 3, 2), (4, 3, 1)),
    "pose_blocks": ((8, 2), (8, 2)),
    "activation_blocks": ((8, 4),),
    "joint_blocks": ((8, 2), (8, 2)),
}
MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "qcn": ("qcn-small", BLOCKS),
    "qcn-joint": ("qcn-small", {**BLOCKS, "branched": False}),
    "qcn-deep": ("qcn-small", BLOCKS),
    "qcn-no-routing": ("qcn-no-routing", BLOCKS),
    "qcn-free": ("qcn-free", BLOCKS),
    "qcn-fixed-axis": ("qcn-fixed-axis", BLOCKS),
    "qcn-rotor-deep": ("qcn-rotor", BLOCKS),
    "em": ("em", NARROW),
    "em-branched": ("em-branched", BLOCKS),
    "em-joint": ("em-joint", BLOCKS),
    "em-ibm": ("em-ibm", NARROW),
    "vb": ("vb", NARROW),
    "em-published": ("em-published", NARROW),
    "em-ibm-published": ("em-ibm-published", NARROW),
    "vb-published": ("vb-published", NARROW),
    "cnn": ("cnn-small", {}),
    "resnet-20": ("resnet-20", {"widths": (8, 16), "blocks": 1}),
}


def quick(row: Row) -> Row:
    """The same row in miniature, without the published number, which belongs to other images."""
    return replace(row, configuration=partial(reduce, row.configuration), published=None)


def reduce(configuration: Callable[[], TrainingConfig]) -> TrainingConfig:
    """A configuration for seconds on a CPU; the toys stand in for every dataset. Routing keeps its settings."""
    config = configuration()
    model, narrow = MODELS[config.model]
    kept = {
        name: value for name, value in config.model_settings.items() if name == "poses" or name.startswith("routing.")
    }
    changes = {
        **vars(pipeline_of(DATASET)),
        "dataset": DATASET,
        "model": model,
        "model_settings": {**narrow, **kept},
        "epochs": 1 if config.viewpoints == "all" else 2,
        "evaluate_images": min(config.evaluate_images, 200),
    }
    return whole(config.changed(changes))

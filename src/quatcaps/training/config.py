"""A run's configuration: a value that, with the code, is enough to run it again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.pipelines import Pipeline
from quatcaps.settings import change, setting, to_json

LOSSES = ("spread", "cross-entropy")
SCHEDULES = ("staircase", "cosine", "constant")
VIEWPOINTS = ("all", "azimuth", "elevation")
PROTOCOLS = ("strict", "pooled")
PLACEMENTS = ("auto", "device", "host")
BACKENDS = ("auto", "reference", "native", "triton")
RETIRED = {"backend": {"lean": "auto"}}
"""Values that files of earlier versions have, by setting, and what they are read as."""
RENAMED = {"residence": "placement"}
"""Settings that files of earlier versions have by another name."""


@dataclass(frozen=True)
class TrainingConfig(Pipeline):
    """Everything that decides what a run learns, the way of the images included. Defaults are the paper's, on the
    rendered toys."""

    dataset: str = setting("toys", "dataset by name, or the path of a folder of images by class or of an .npz file")
    viewpoints: str = setting(
        "all", "train on all viewpoints, or on the familiar ones of the azimuth or elevation experiment"
    )
    protocol: str = setting(
        "strict",
        "of viewpoint experiments: strict (no test toy is trained on) or pooled (as in the paper's public code)",
    )
    validation: float = setting(
        0.0, "part of the training images, whole instances where there are any, held out to choose settings on"
    )
    test: bool = setting(True, "measure the test images; without them, settings can be chosen unseen")
    data_seed: int = setting(0, "which toys the rendered dataset shows, and which images are held out")
    placement: str = setting(
        "auto", "where training images are kept: device, host (fetched ahead), or auto: the device where they fit"
    )
    model: str = setting("qcn", "network by name")
    model_settings: dict[str, Any] = setting(
        {}, "a change to the network, NAME=VALUE, such as routing.iterations=3; may be given several times"
    )
    loss: str = setting("spread", "spread or cross-entropy")
    margin_scale: float = setting(50_000.0, "steps per unit of the spread loss's margin schedule")
    score_scale: float = setting(1.0, "factor on the scores in cross-entropy; 10 suits capsule activations")
    label_smoothing: float = setting(0.0, "cross-entropy: part of the wanted probability given to all classes alike")
    pose_weight: float = setting(
        0.0, "weight of the pose objective beside the loss of the classes, on datasets of viewpoints; 0: none"
    )
    epochs: int = setting(300, "passes over the training images")
    batch: int = setting(64, "images per step, of all processes together")
    learning_rate: float = setting(3e-3, "Adam's rate at the start")
    schedule: str = setting("staircase", "how the rate falls: staircase, cosine (to 0) or constant")
    decay: float = setting(0.96, "staircase: the factor of each step down")
    decay_steps: int = setting(20_000, "staircase: training steps between steps down")
    warmup: int = setting(0, "training steps over which the rate rises to its start")
    weight_decay: float = setting(0.0, "decoupled weight decay")
    averaging: float = setting(
        0.0,
        "decay of a running average of the weights, which then is what is measured and kept: 0.999 averages about "
        "1,000 steps, at first a tenth of those taken; 0: none",
    )
    seed: int = setting(0, "seed of the weights, the order of the images and the crops")
    device: str = setting("auto", "cpu, cuda, cuda:N, or auto: cuda where there is one")
    backend: str = setting(
        "auto", "what computes the routing: reference, native, triton, or auto: the device's fastest"
    )
    cuda_graph: bool = setting(True, "on CUDA, capture the training step as one graph; never with several processes")
    evaluate_every: int = setting(
        1,
        "epochs between measurements, on the validation images where some are held out, else on the test images "
        "(never used to choose); 0: only at the end",
    )
    evaluate_images: int = setting(2000, "images measured between epochs, a fixed choice; 0: all, as at the end")
    checkpoint_every: int = setting(1000, "steps between checkpoints")
    log_every: int = setting(50, "steps between lines in the log")
    tensorboard: bool = setting(False, "write TensorBoard events too (needs the extra quatcaps[tensorboard])")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "model_settings", plain(self.model_settings))
        for name, known in (
            ("loss", LOSSES),
            ("schedule", SCHEDULES),
            ("viewpoints", VIEWPOINTS),
            ("protocol", PROTOCOLS),
            ("placement", PLACEMENTS),
            ("backend", BACKENDS),
        ):
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        positive = ("epochs", "batch", "decay_steps", "checkpoint_every", "log_every")
        for name in (*positive, "learning_rate", "margin_scale", "score_scale", "decay"):
            if not 0 < getattr(self, name) < math.inf:
                raise QuatcapsError(f"{name} = {getattr(self, name)}: it must be above 0 and finite")
        for name in ("weight_decay", "pose_weight", "warmup", "evaluate_every", "evaluate_images", "seed", "data_seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise QuatcapsError(f"{name} = {getattr(self, name)}: it must be 0 or more and finite")
        for name in ("seed", "data_seed"):
            if getattr(self, name) >= 2**63:
                raise QuatcapsError(f"{name} = {getattr(self, name)}: it must be below 2^63")
        if "\0" in self.dataset:
            raise QuatcapsError(f"dataset = {self.dataset[:100]!r}: a path has no character 0; give a name or a path")
        if not (self.test or self.validation):
            raise QuatcapsError(
                "test = False with validation = 0: nothing would be measured; hold out some images, --validation 0.2"
            )
        for name in ("validation", "averaging", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise QuatcapsError(f"{name} = {getattr(self, name)}: it must be 0 or more and below 1")

    def changed(self, changes: Mapping[str, Any]) -> TrainingConfig:
        """This configuration with some settings replaced."""
        return change(self, changes)

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> TrainingConfig:
        """The configuration that `to_json` gave, in this version or an earlier one."""
        named = {RENAMED.get(name, name): value for name, value in values.items()}
        if len(named) < len(values):
            twice = next(name for name in RENAMED if name in values)
            raise QuatcapsError(f"{twice} and {RENAMED[twice]} are the same setting: keep one of them")
        retired = {
            name: known[named[name]]
            for name, known in RETIRED.items()
            if isinstance(named.get(name), str) and named[name] in known
        }
        return change(TrainingConfig(), {**named, **retired})


def plain(model_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Model settings as JSON gives them back; what is no plain value is written by its name, if it has one."""
    try:
        return json.loads(json.dumps(model_settings))
    except TypeError:  # objects: whoever made them has loaded what they need
        from quatcaps.models.changes import written

        return {name: written(name, value) for name, value in model_settings.items()}

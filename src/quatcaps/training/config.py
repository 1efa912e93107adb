"""A run's configuration: a value that, with the code, is enough to run it again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.pipelines import Pipeline
from quatcaps.settings import change, setting, to_json, without_later

LOSSES = ("spread", "cross-entropy")
SCHEDULES = ("staircase", "exponential", "cosine", "linear", "constant")
PRECISIONS = ("float32", "bf16", "ieee")
WEIGHT_DECAYS = ("decoupled", "gradient")
VIEWPOINTS = ("all", "azimuth", "elevation")
PROTOCOLS = ("strict", "pooled")
PLACEMENTS = ("auto", "device", "host")
HELD_OUT_BY = ("instance", "image")
STEREO_VIEWS = ("together", "single")
BACKENDS = ("auto", "reference", "native", "triton")
CLASS_WEIGHTS = ("none", "balanced")
LARGEST_PART = 0.5
"""That another image may have in a mixed one."""
RETIRED = {"backend": {"lean": "auto"}}
"""Values that files of earlier versions have, by setting, and what they are read as."""
RENAMED = {"residence": "placement"}
"""Settings that files of earlier versions have by another name."""


@dataclass(frozen=True)
class TrainingConfig(Pipeline):
    """Everything that decides what a run learns, the way of the images included. Defaults are the paper's, on the
    rendered toys."""

    dataset: str = setting("toys", "dataset by name, or the path of a folder of images by class or of an .npz file")
    stereo_views: str = setting(
        "together",
        "the two views of a stereo pair: together, two channels of one image, or single, each an image of its own, in "
        "training and in every measurement",
        later=True,
    )
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
    validation_by: str = setting(
        "instance",
        "what is held out: a whole instance (instance), or single images (image), whose toys are then trained on too",
        later=True,
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
    mixup: float = setting(
        0.0,
        "cross-entropy: mix each training image with another of its batch, which has up to this part in it and in the "
        "wanted probability; 0.5: mixup with α = 1 (Zhang et al. 2018)",
        later=True,
    )
    class_weights: str = setting(
        "none",
        "weight of each image's loss by its class: none, balanced (every class weighs as much in all), or a number for "
        "each class, separated by commas",
        later=True,
    )
    pose_weight: float = setting(
        0.0, "weight of the pose objective beside the loss of the classes, on datasets of viewpoints; 0: none"
    )
    epochs: int = setting(300, "passes over the training images")
    batch: int = setting(64, "images per step, of all processes together")
    learning_rate: float = setting(3e-3, "Adam's rate at the start")
    schedule: str = setting(
        "staircase", "how the rate falls: staircase, exponential, cosine or linear (both to 0), or constant"
    )
    decay: float = setting(0.96, "staircase, exponential: the factor of each step down")
    decay_steps: int = setting(20_000, "staircase, exponential: training steps between steps down")
    warmup: int = setting(0, "training steps over which the rate rises to its start")
    weight_decay: float = setting(0.0, "weight decay")
    weight_decay_as: str = setting(
        "decoupled",
        "how weights decay: decoupled from Adam (AdamW), or as a term of the gradient that Adam sees (gradient)",
        later=True,
    )
    averaging: float = setting(
        0.0,
        "decay of a running average of the weights, which then is what is measured and kept: 0.999 averages about "
        "1,000 steps, at first a tenth of those taken; 0: none",
    )
    averaging_beside: float = setting(
        0.0,
        "the same, but kept beside the weights, where it changes nothing: --checkpoint average uses it; 0: none",
        later=True,
    )
    seed: int = setting(0, "seed of the weights, the order of the images and the crops")
    device: str = setting("auto", "cpu, cuda, cuda:N, or auto: cuda where there is one")
    backend: str = setting(
        "auto", "what computes the routing: reference, native, triton, or auto: the device's fastest"
    )
    precision: str = setting(
        "float32",
        "of the convolutions in training: float32, in which a GPU may round factors to TF32, ieee: float32 without "
        "that, or bf16 (by autocast); routing, losses, weights and measurements are float32 either way",
        later=True,
    )
    cuda_graph: bool = setting(
        True, "on CUDA, capture the training step as one graph; with several processes only by NCCL"
    )
    evaluate_every: int = setting(
        1,
        "epochs between measurements, on the validation images where some are held out, else on the test images "
        "(never used to choose); 0: only at the end",
    )
    evaluate_at: float = setting(
        0.0,
        "training error in %: also measure after the first epoch that comes so low, as where systems are compared when "
        "they are equally good; 0: never",
        later=True,
    )
    evaluate_images: int = setting(2000, "images measured between epochs, a fixed choice; 0: all, as at the end")
    patience: int = setting(
        0,
        "stop after so many epochs without a lower error on the validation images (needs --validation), and keep the "
        "best checkpoint; 0: train to the last epoch",
        later=True,
    )
    keep_best: bool = setting(
        False,
        "keep the checkpoint of the lowest error on the validation images beside the last one (needs --validation)",
        later=True,
    )
    checkpoint_every: int = setting(1000, "steps between checkpoints")
    log_every: int = setting(50, "steps between lines in the log")
    tensorboard: bool = setting(False, "write TensorBoard events too (needs the extra quatcaps[tensorboard])")
    wandb: str = setting(
        "",
        "project of Weights & Biases to log to as well (needs the extra quatcaps[wandb]; WANDB_MODE=offline keeps it "
        "on this machine)",
        later=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "model_settings", plain(self.model_settings))
        for name, known in (
            ("loss", LOSSES),
            ("schedule", SCHEDULES),
            ("weight_decay_as", WEIGHT_DECAYS),
            ("validation_by", HELD_OUT_BY),
            ("stereo_views", STEREO_VIEWS),
            ("viewpoints", VIEWPOINTS),
            ("protocol", PROTOCOLS),
            ("placement", PLACEMENTS),
            ("backend", BACKENDS),
            ("precision", PRECISIONS),
        ):
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        positive = ("epochs", "batch", "decay_steps", "checkpoint_every", "log_every")
        for name in (*positive, "learning_rate", "margin_scale", "score_scale", "decay"):
            if not 0 < getattr(self, name) < math.inf:
                raise QuatcapsError(f"{name} = {getattr(self, name)}: it must be above 0 and finite")
        for name in (
            "weight_decay",
            "pose_weight",
            "warmup",
            "evaluate_every",
            "evaluate_at",
            "evaluate_images",
            "patience",
            "seed",
            "data_seed",
        ):
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
        for name in ("validation", "averaging", "averaging_beside", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise QuatcapsError(f"{name} = {getattr(self, name)}: it must be 0 or more and below 1")
        if self.averaging and self.averaging_beside:
            raise QuatcapsError(
                f"averaging = {self.averaging} with averaging_beside = {self.averaging_beside}: the average is "
                "measured and kept, or it lies beside what is; leave one of them at 0"
            )
        if self.evaluate_at > 100:
            raise QuatcapsError(f"evaluate_at = {self.evaluate_at}: it is an error in %, so at most 100")
        self._check_mixup()
        self._check_choosing()
        numbers_of(self.class_weights)

    def _check_mixup(self) -> None:
        if not 0 <= self.mixup <= LARGEST_PART:
            raise QuatcapsError(
                f"mixup = {self.mixup}: it must be from 0 to {LARGEST_PART}, so that an image has the larger part "
                "in its mixture"
            )
        if self.mixup and self.loss != "cross-entropy":
            raise QuatcapsError(
                f"mixup = {self.mixup} with loss = {self.loss}: mixed images have two classes; give --loss "
                "cross-entropy"
            )
        if self.mixup and self.pose_weight:
            raise QuatcapsError(
                f"mixup = {self.mixup} with pose_weight = {self.pose_weight}: a mixture of two images has no pose; "
                "leave one of them at 0"
            )

    def _check_choosing(self) -> None:
        if not self.keeps_best:
            return
        what = f"patience = {self.patience}" if self.patience else "keep_best"
        if not self.validation:
            raise QuatcapsError(
                f"{what} without validation images: hold out a part of the training images, --validation 0.1; test "
                "images choose nothing"
            )
        if not self.evaluate_every:
            raise QuatcapsError(f"{what} with evaluate_every = 0: nothing is measured to choose by; give 1 or more")

    @property
    def averages(self) -> float:
        """The decay of the running average, wherever it is kept; 0: there is none."""
        return self.averaging or self.averaging_beside

    @property
    def keeps_best(self) -> bool:
        """Whether the checkpoint of the lowest validation error is kept."""
        return self.keep_best or self.patience > 0

    def changed(self, changes: Mapping[str, Any]) -> TrainingConfig:
        """This configuration with some settings replaced."""
        weights = changes.get("class_weights")
        if isinstance(weights, list | tuple):
            changes = {**changes, "class_weights": ",".join(map(str, weights))}
        return change(self, changes)

    def to_json(self) -> dict[str, Any]:
        """All settings; those that earlier versions had not, only where they are not the default."""
        return without_later(self)

    def whole(self) -> dict[str, Any]:
        """All settings, for people."""
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


def numbers_of(class_weights: str) -> tuple[float, ...]:
    """The numbers among class weights; none where they are a word.

    >>> numbers_of("1, 2.5"), numbers_of("balanced")
    ((1.0, 2.5), ())
    """
    if class_weights in CLASS_WEIGHTS:
        return ()
    try:
        numbers = tuple(float(part) for part in class_weights.split(","))
    except ValueError as error:
        raise QuatcapsError(
            f"class_weights = {class_weights[:100]!r}: give none, balanced, or a number for each class, such as 1,2.5"
        ) from error
    if not all(0 <= number < math.inf for number in numbers) or not any(numbers):
        raise QuatcapsError(
            f"class_weights = {class_weights[:100]!r}: they must be 0 or more and finite, and one above 0"
        )
    return numbers


def plain(model_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Model settings as JSON gives them back; what is no plain value is written by its name, if it has one."""
    try:
        return json.loads(json.dumps(model_settings))
    except TypeError:  # objects: whoever made them has loaded what they need
        from quatcaps.models.changes import written

        return {name: written(name, value) for name, value in model_settings.items()}

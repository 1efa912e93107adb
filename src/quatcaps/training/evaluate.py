"""The evaluation of a trained network, on familiar and novel viewpoints where it knows the difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import same_toys
from quatcaps.data.viewpoints import ALL, familiar_mask
from quatcaps.errors import QuatcapsError
from quatcaps.files import write_json
from quatcaps.training.config import TrainingConfig
from quatcaps.training.identity import difference
from quatcaps.training.measure import Evaluation, Rate, evaluate
from quatcaps.training.predictions import Predictions, activations_of, predictions_of
from quatcaps.training.run import load_experiment, with_views
from quatcaps.training.trained import Trained

Progress = Callable[[int, int], None]


def evaluate_trained(
    trained: Trained, images: ImageSet, device: torch.device, progress: Progress | None = None
) -> dict[str, Evaluation]:
    """`all` images; for a network of some viewpoints also the `familiar` and the `novel` ones. One forward pass."""
    return evaluations_of(trained, images, predicted(trained, images, device, progress))


def predicted(
    trained: Trained, images: ImageSet, device: torch.device, progress: Progress | None = None
) -> Predictions:
    """What the network says of the images."""
    trained.check_fit(images)
    return predictions_of(trained.network.to(device), images, trained.config, device, progress)


def evaluations_of(trained: Trained, images: ImageSet, found_in: Predictions) -> dict[str, Evaluation]:
    """`evaluate_trained` of predictions that were made before."""
    activations, poses = found_in.activations, found_in.poses if trained.config.pose_weight else None
    found = {"all": evaluate(images, activations, poses)}
    if trained.config.viewpoints != "all":
        familiar = familiar_mask(images, trained.config.viewpoints)
        for name, mask in (("familiar", familiar), ("novel", ~familiar)):
            if not mask.any():  # of pooled validation images, which are all familiar
                continue
            part = images.select(mask, f"{images.name}, {name} {trained.config.viewpoints}s")
            found[name] = evaluate(part, activations[mask], None if poses is None else poses[mask])
    return found


def errors_on(
    trained: Trained, tests: Mapping[str, ImageSet], device: torch.device, progress: Progress | None = None
) -> dict[str, Rate]:
    """The error on each of some sets of images."""
    found = {}
    for name, images in tests.items():
        trained.check_fit(images)
        activations = activations_of(trained.network.to(device), images, trained.config, device, progress)
        found[name] = evaluate(images, activations).total
    return found


def write_evaluation(path: Path, evaluations: dict[str, Evaluation]) -> None:
    """The numbers as JSON."""
    write_json(path, {name: evaluation.to_json() for name, evaluation in evaluations.items()})


def check_images(trained: Trained, images: ImageSet, split: str) -> str | None:
    """Whether the images of a split are those that the network was made with, as far as digests are known.

    Other training or validation images raise: what they would measure is neither training nor validation error. Other
    test images are a measurement of its own; then this is what to say about it.
    """
    own = "training" if split != "test" or is_pooled(trained.config) else "test"
    differing = difference(trained.name, trained.provenance, trained.digests, {own: images})
    if differing is None:
        return None
    if own == "training":
        raise QuatcapsError(f"{differing}: put its own images back, or train on these")
    return f"{differing}: this is not the error that it was trained to"


def is_pooled(config: TrainingConfig) -> bool:
    """Whether training and test images come from one pool."""
    return config.viewpoints != ALL and config.protocol == "pooled"


def images_of(config: TrainingConfig, split: str, load: Callable[[str], ImageSet]) -> ImageSet:
    """The images of a split of a run, all viewpoints. The pooled protocol has one pool of them, and no split by toy.

    Validation images are those that the run held out, and under the strict protocol those of the same toys from novel
    viewpoints too: it never saw them, and they are no test images. Pooled, they would be."""
    pooled = is_pooled(config)
    if split != "validation":
        return with_views(config, load(ALL if pooled else split))
    held_out = load_experiment(config, load).validation
    if held_out is None:
        raise QuatcapsError(f"this run held out no images (validation = {config.validation}): give test or train")
    by_image = config.validation_by == "image" or "instance" not in held_out.info
    if pooled or config.viewpoints == ALL or by_image:
        return held_out
    return with_views(config, same_toys(load("train"), held_out))

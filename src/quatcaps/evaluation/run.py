"""The evaluation of a trained network, on familiar and novel viewpoints where it knows the difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import familiar_mask
from quatcaps.evaluation.measure import Evaluation, Rate, activations_of, evaluate
from quatcaps.evaluation.trained import Trained, trained_run
from quatcaps.files import write_json
from quatcaps.training.run import Run

Progress = Callable[[int, int], None]


def evaluate_trained(
    trained: Trained, images: ImageSet, device: torch.device, progress: Progress | None = None
) -> dict[str, Evaluation]:
    """`all` images; for a network of some viewpoints also the `familiar` and the `novel` ones. One forward pass."""
    trained.check_fit(images)
    activations = activations_of(trained.network.to(device), images, trained.config, device, progress)
    found = {"all": evaluate(images, activations)}
    if trained.config.viewpoints != "all":
        familiar = familiar_mask(images, trained.config.viewpoints)
        for name, mask in (("familiar", familiar), ("novel", ~familiar)):
            if not mask.any():  # of pooled validation images, which are all familiar
                continue
            part = images.select(mask, f"{images.name}, {name} {trained.config.viewpoints}s")
            found[name] = evaluate(part, activations[mask])
    return found


def evaluate_run(
    run: Run, images: ImageSet, device: torch.device, progress: Progress | None = None
) -> dict[str, Evaluation]:
    """`evaluate_trained` for the newest checkpoint of a run."""
    return evaluate_trained(trained_run(run), images, device, progress)


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

"""The evaluation of a trained run, on familiar and novel viewpoints where it knows the difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import familiar_mask
from quatcaps.errors import QuatcapsError
from quatcaps.evaluation.measure import Evaluation, activations_of, evaluate
from quatcaps.files import write_json
from quatcaps.training.run import Run


def evaluate_run(
    run: Run, images: ImageSet, device: torch.device, progress: Callable[[int, int], None] | None = None
) -> dict[str, Evaluation]:
    """`all` images; for a run on some viewpoints also the `familiar` and the `novel` ones. One forward pass."""
    if images.classes != run.classes or images.channels != run.channels:
        raise QuatcapsError(
            f"{images.name} has {images.channels} channels and {len(images.classes)} classes, the network in "
            f"{run.folder} {run.channels} and {len(run.classes)}: evaluate it on a dataset that fits"
        )
    network = run.trained_network().to(device)
    activations = activations_of(network, images, run.config, device, progress)
    found = {"all": evaluate(images, activations)}
    if run.config.viewpoints != "all":
        familiar = familiar_mask(images, run.config.viewpoints)
        for name, mask in (("familiar", familiar), ("novel", ~familiar)):
            if not mask.any():  # of validation images, which are all familiar
                continue
            part = images.select(mask, f"{images.name}, {name} {run.config.viewpoints}s")
            found[name] = evaluate(part, activations[mask])
    return found


def write_evaluation(path: Path, evaluations: dict[str, Evaluation]) -> None:
    """The numbers as JSON."""
    write_json(path, {name: evaluation.to_json() for name, evaluation in evaluations.items()})

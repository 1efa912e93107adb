"""One evaluation loop, and what is counted from its predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quatcaps.accelerator import current
from quatcaps.data.batches import evaluation_batches
from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import degrees
from quatcaps.errors import QuatcapsError
from quatcaps.layers import holds_votes
from quatcaps.models import Network
from quatcaps.pipelines import Pipeline
from quatcaps.training.poses import PoseErrors, pose_errors, true_poses

MEMORY = 2**30
"""Bytes that one evaluation batch may spend on features, or on votes and what is computed from them."""
BYTES_PER_VOTE = 3 * 4 * 6
BYTES_PER_PIXEL = 64 * 4 * 4
"""Some features of 64 channels, as large as the image."""
LARGEST_BATCH = 512


def evaluation_batch(network: Network, size: tuple[int, int]) -> int:
    """How many images of height and width `size` fit in `MEMORY` at once."""
    needed = BYTES_PER_PIXEL * size[0] * size[1]
    if holds_votes(network):
        needed += BYTES_PER_VOTE * network.votes(*size)
    return max(1, min(LARGEST_BATCH, MEMORY // needed))


class Predictions(NamedTuple):
    """What a network says of N images, float32 on the CPU."""

    activations: Tensor  # (N, classes), averaged over the views that the pipeline has of an image
    poses: Tensor | None  # (N, classes, dims) of the first view, where classes have poses


@torch.no_grad()
def predictions_of(
    network: Network,
    images: ImageSet,
    pipeline: Pipeline,
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """The activation and the pose of every class for every image; restores the training mode."""
    training = network.training
    network.eval()
    found: list[Tensor] = []
    poses: list[Tensor] = []
    done = 0
    try:
        batch_size = evaluation_batch(network, pipeline.seen(images.size))
        for views in evaluation_batches(images, batch_size, pipeline, device):
            with current(device):
                outputs = [network(view) for view in views]
            found.append(torch.stack([output.activations.float() for output in outputs]).mean(0).cpu())
            if (pose := getattr(outputs[0], "poses", None)) is not None:
                poses.append(pose.float().cpu())
            done += len(views[0])
            if progress is not None:
                progress(done, len(images))
    finally:
        network.train(training)
    return Predictions(torch.cat(found), torch.cat(poses) if poses else None)


def activations_of(
    network: Network,
    images: ImageSet,
    pipeline: Pipeline,
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """(N, classes): the activations alone."""
    return predictions_of(network, images, pipeline, device, progress).activations


def mean_activations(network: Network, views: Sequence[Tensor]) -> Tensor:
    """(N, classes) float32, over several views of the same images."""
    with current(views[0].device):
        return torch.stack([network(view).activations.float() for view in views]).mean(0)


@dataclass(frozen=True)
class Rate:
    """How many of how many images were misclassified."""

    errors: int
    images: int

    @property
    def percent(self) -> float:
        """The error in %."""
        return 100 * self.errors / self.images


@dataclass(frozen=True)
class Evaluation:
    """The errors of one network on one set of images. Azimuths and elevations are in degrees."""

    name: str
    classes: tuple[str, ...]
    total: Rate
    by_class: tuple[Rate | None, ...]  # None where a class has no image
    confusion: tuple[tuple[int, ...], ...]  # [true class][named class]
    by_azimuth: dict[int, Rate]
    by_elevation: dict[int, Rate]
    by_instance: dict[str, Rate] = field(default_factory=dict)  # by class and number, such as `car 3`
    poses: PoseErrors | None = None  # where a pose objective was trained

    def to_json(self) -> dict[str, Any]:
        def rate(counted: Rate | None) -> dict[str, Any] | None:
            if counted is None:
                return None
            return {"error_percent": counted.percent, "errors": counted.errors, "images": counted.images}

        value = {
            "name": self.name,
            "error": rate(self.total),
            "by_class": {name: rate(counted) for name, counted in zip(self.classes, self.by_class, strict=True)},
            "confusion": [list(row) for row in self.confusion],
            "by_azimuth": {str(angle): rate(counted) for angle, counted in self.by_azimuth.items()},
            "by_elevation": {str(angle): rate(counted) for angle, counted in self.by_elevation.items()},
            "by_instance": {name: rate(counted) for name, counted in self.by_instance.items()},
        }
        return value if self.poses is None else {**value, "poses": self.poses.to_json()}


def evaluate(images: ImageSet, activations: Tensor, poses: Tensor | None = None) -> Evaluation:
    """Counts the errors of `activations` (N, classes); the class of the largest is what the network names. `poses`
    (N, classes, 4): where a pose objective was trained, their errors too."""
    if not len(images):
        raise QuatcapsError(f"{images.name} holds no image to evaluate")
    named = activations.argmax(1)
    wrong = named != images.labels
    count = len(images.classes)
    confusion = torch.bincount(images.labels * count + named, minlength=count**2).view(count, count)

    def rate(chosen: Tensor) -> Rate | None:
        return Rate(int(wrong[chosen].sum()), int(chosen.sum())) if chosen.any() else None

    def by_code(field: str) -> dict[int, Rate]:
        column = images.info.get(field, images.labels[:0])
        rates = {degrees(field, code): rate(column == code) for code in column.unique().tolist()}
        return {angle: counted for angle, counted in rates.items() if counted is not None}

    def by_instance() -> dict[str, Rate]:
        numbers = images.info.get("instance", images.labels[:0])
        rates = {
            f"{name} {number}": rate((images.labels == label) & (numbers == number))
            for label, name in enumerate(images.classes)
            for number in numbers.unique().tolist()
        }
        return {name: counted for name, counted in rates.items() if counted is not None}

    return Evaluation(
        name=images.name,
        classes=images.classes,
        total=Rate(int(wrong.sum()), len(images)),
        by_class=tuple(rate(images.labels == label) for label in range(count)),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        by_azimuth=by_code("azimuth"),
        by_elevation=by_code("elevation"),
        by_instance=by_instance(),
        poses=None if poses is None else pose_errors(images, true_poses(poses, images.labels)),
    )

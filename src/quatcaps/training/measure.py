"""What is counted from predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import degrees
from quatcaps.errors import QuatcapsError
from quatcaps.training.poses import PoseErrors, pose_errors, true_poses


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

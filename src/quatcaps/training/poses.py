"""What the pose of the true class is held to: the orientation of the toy, or that of two views of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quatcaps import quaternion
from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import Views, views_of
from quatcaps.errors import QuatcapsError
from quatcaps.losses import orientation_loss, own_part, relative_orientation_loss
from quatcaps.models import Network

DIMS = 4
NEAR = (10, 30)
"""Degrees: the shares of images within them are reported."""
CHANCE = 132.34645883
"""Degrees: the median angle between two random orientations, where (θ − sin θ) / π is one half."""


def true_poses(poses: Tensor, labels: Tensor) -> Tensor:
    """(N, 4): of (N, classes, 4), the pose of each image's class."""
    return poses[torch.arange(len(labels), device=labels.device), labels]


def has_orientations(network: Network, size: tuple[int, int]) -> bool:
    """Whether the poses of a network's classes are quaternions. Only shapes go through it."""
    weight = next(network.parameters())
    if weight.device.type != "meta":
        raise QuatcapsError("give a network on the device meta, for its shapes alone")
    poses = getattr(network(torch.zeros(1, network.channels, *size, device="meta")), "poses", None)
    return poses is not None and poses.shape[-1] == DIMS


def pose_loss(poses: Tensor, labels: Tensor, views: Views, relative: bool) -> Tensor:
    """Of the true class's pose: against the orientation, or, `relative`, of two views of one toy against each other."""
    chosen = true_poses(poses.float(), labels)
    if relative:
        return relative_orientation_loss(chosen, views.orientations, views.toys)
    return orientation_loss(chosen, views.orientations)


@dataclass(frozen=True)
class PoseErrors:
    """How far, in degrees, poses are from the orientations of the toys; `relative`: the turn between two poses of one
    toy from the turn between the two views."""

    median: float
    within: tuple[float, ...]  # shares of the images, as of NEAR
    by_class: tuple[float | None, ...]  # medians
    relative: bool

    def to_json(self) -> dict[str, Any]:
        shares = {f"within_{near}": share for near, share in zip(NEAR, self.within, strict=True)}
        return {"median_degrees": self.median, **shares, "by_class": list(self.by_class), "relative": self.relative}


def pose_errors(images: ImageSet, poses: Tensor) -> PoseErrors | None:
    """The errors of the true class's poses (N, 4). By chance, the median of any two rotors is 132°.

    Where views of a toy are compared with each other, images that are alone of their toy do not count; None where all
    are."""
    views = views_of(images)
    counted = torch.ones(len(images), dtype=torch.bool)
    if not images.aligned:
        counted = partners(views.toys) != torch.arange(len(images))
    if not counted.any():
        return None
    degrees = orientation_degrees(poses.double(), views.orientations.double(), None if images.aligned else views.toys)
    degrees, labels = degrees[counted], images.labels[counted]
    return PoseErrors(
        median=degrees.median().item(),
        within=tuple((degrees <= near).double().mean().item() for near in NEAR),
        by_class=tuple(
            degrees[labels == label].median().item() if (labels == label).any() else None
            for label in range(len(images.classes))
        ),
        relative=not images.aligned,
    )


def orientation_degrees(poses: Tensor, orientations: Tensor, toys: Tensor | None = None) -> Tensor:
    """(N,) the angle between each pose and its orientation; with `toys`, between the turn from one image of a toy to
    another as the poses have it and as the views have it."""
    own = own_part(poses, orientations)
    other = own.new_tensor([1.0, 0.0, 0.0, 0.0]).expand_as(own) if toys is None else own[partners(toys)]
    return quaternion.geodesic_distance(own, other).rad2deg()


def partners(toys: Tensor) -> Tensor:
    """(N,) int64: for each image another of the same toy, half the toy's images further on; itself where it is the only
    one."""
    order = toys.argsort(stable=True)
    found = torch.empty_like(order)
    start = 0
    for count in torch.unique_consecutive(toys[order], return_counts=True)[1].tolist():
        members = order[start : start + count]
        found[members] = members.roll(-(count // 2 or 1))
        start += count
    return found


def in_words(errors: PoseErrors) -> str:
    """One line."""
    what = "turn between two views of a toy" if errors.relative else "orientation"
    shares = ", ".join(f"{100 * s:.1f}% within {near}°" for near, s in zip(NEAR, errors.within, strict=True))
    return f"{what}: median error {errors.median:.1f}°, {shares}"


def check_poses(network: Network, images: Sequence[ImageSet], size: tuple[int, int]) -> None:
    """Raises unless a pose objective can be had for these images and this network."""
    for each in images:
        views_of(each)
    if not has_orientations(network, size):
        raise QuatcapsError(
            f"pose_weight is above 0, but the classes of a {type(network).__name__} with these settings have no "
            "quaternions for poses: choose --model qcn-rotor, or leave out --pose-weight"
        )

"""All diagnostics of one network on toys that it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from quatcaps import quaternion
from quatcaps.data.batches import evaluation_batches
from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import views_of
from quatcaps.errors import QuatcapsError
from quatcaps.inspection.actions import Action, Frames, Rotors, action_on
from quatcaps.inspection.algebra import Residual, algebraic_residual
from quatcaps.inspection.features import Features, features_of, principal
from quatcaps.inspection.probe import Probe, probe_across, probe_within
from quatcaps.inspection.turns import Composition, Transfer, composition, transfer
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.training.measure import evaluate
from quatcaps.training.poses import PoseErrors, pose_errors
from quatcaps.training.trained import Trained

RESIDUAL_IMAGES = 64
TRANSFER_TURNS = (20, 40, 60, 80, 100, 120, 140, 160, 180)
CLASSES = "classes"
"""The name of the class poses among the layers."""
PRINCIPAL = 4
"""Of a network whose classes have no poses, so many principal components of its last features stand in for them."""
SHOWN = 3
"""Toys whose turns are drawn."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Turn:
    """The poses of one toy over a turn of 360°."""

    toy: str
    azimuths: tuple[int, ...]  # degrees
    path: tuple[tuple[float, float], ...]  # seen from above, or along the two directions in which the pose varies most
    closed: bool


@dataclass(frozen=True)
class Inspection:
    """What the poses of a network know. None: nothing to measure, as a network without capsules has no algebra."""

    name: str
    images: str  # which, and how many
    error_percent: float
    pose: str  # what the class pose is: orientation, direction, matrix, or features
    chance_degrees: float  # between two such poses drawn at random
    residual: Residual | None
    transfer: tuple[Transfer, ...]
    composition: Composition | None
    within: dict[str, Probe]  # by layer, the classes last
    across: dict[str, Probe]
    orientation: PoseErrors | None
    turns: tuple[Turn, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        value["transfer"] = [{**asdict(each), "ratio": each.ratio} for each in self.transfer]
        value["orientation"] = None if self.orientation is None else self.orientation.to_json()
        return value


def inspect(
    trained: Trained, images: ImageSet, device: torch.device, progress: Progress | None = None, seed: int = 0
) -> Inspection:
    """Measures a network on images of toys that it was not trained on."""
    if not {"elevation", "azimuth", "instance"} <= images.info.keys():
        raise QuatcapsError(
            f"{images.name} has no viewpoints of known toys: what poses know is measured on networks of smallnorb or "
            "the toys"
        )
    trained.check_fit(images)
    network = trained.network.to(device)
    features = features_of(network, images, trained.config, device, progress)
    action, poses = class_poses(network, features)
    layers = {**features.layers, CLASSES: poses}
    orientation = None
    if trained.config.pose_weight and isinstance(action, Rotors) and features.class_poses is not None:
        orientation = pose_errors(images, features.class_poses)
    return Inspection(
        name=trained.name,
        images=f"{images.name}, {len(images):,} images",
        error_percent=evaluate(images, features.activations).total.percent,
        pose=action.name,
        chance_degrees=action.chance,
        residual=residual_of(trained, images, device),
        transfer=tuple(transfer(images, poses, action, turn, seed) for turn in turns_in(images)),
        composition=composition(images, poses, action, seed) if {20, 180} <= set(turns_in(images)) else None,
        within={name: probe_within(images, values, seed) for name, values in layers.items()},
        across={name: probe_across(images, values, seed) for name, values in layers.items()} if images.aligned else {},
        orientation=orientation,
        turns=turns_of(images, poses, action),
    )


def class_poses(network: Any, features: Features) -> tuple[Action, Tensor]:
    """The poses of the true classes and how they turn; for a network without, its last features."""
    if features.class_poses is not None:
        if isinstance(network, CapsuleNetwork):
            return action_on(network.classify.pose), features.class_poses
        return Rotors(), features.class_poses
    if not features.layers:
        raise QuatcapsError(
            f"the classes of a {type(network).__name__} have no poses, and its layers are not known here: inspect a "
            "capsule network or a resnet"
        )
    last = list(features.layers.values())[-1]
    return Frames(PRINCIPAL, 1, f"features, {PRINCIPAL} components"), principal(last, PRINCIPAL)


def residual_of(trained: Trained, images: ImageSet, device: torch.device) -> Residual | None:
    if not isinstance(trained.network, CapsuleNetwork):
        return None
    some = images.select(torch.arange(0, len(images), max(1, len(images) // RESIDUAL_IMAGES))[:RESIDUAL_IMAGES])
    trained.network.eval()
    views = next(iter(evaluation_batches(some, RESIDUAL_IMAGES, trained.config, device)))
    return algebraic_residual(trained.network, views[0])


def turns_in(images: ImageSet) -> tuple[int, ...]:
    """Those of TRANSFER_TURNS that azimuths of these images are apart."""
    codes = images.info["azimuth"].unique()
    apart = set(((codes[:, None] - codes).flatten() % 36 * 10).tolist())
    return tuple(turn for turn in TRANSFER_TURNS if turn in apart)


def turns_of(images: ImageSet, poses: Tensor, action: Action) -> tuple[Turn, ...]:
    """The poses of some toys, one of a class, from all azimuths that there are at one elevation and lighting."""
    toys = views_of(images).toys
    elevation = images.info["elevation"]
    found = []
    for label in images.labels.unique()[:SHOWN].tolist():
        best: Tensor | None = None
        first = toys[images.labels == label].min()
        for level in elevation.unique():
            here = ((toys == first) & (elevation == level)).nonzero().flatten()
            codes = images.info["azimuth"][here]
            chosen = torch.stack([here[codes == code][0] for code in codes.unique()]) if len(here) else here
            best = chosen if best is None or len(chosen) > len(best) else best
        assert best is not None
        path = seen_from_above(poses[best].double(), action)
        found.append(
            Turn(
                toy=f"{images.classes[label]} {int(images.info['instance'][best[0]])}",
                azimuths=tuple((10 * images.info["azimuth"][best]).tolist()),
                path=tuple((float(x), float(y)) for x, y in path),
                closed=len(best) == 18,
            )
        )
    return tuple(found)


def seen_from_above(poses: Tensor, action: Action) -> Tensor:
    """(N, 2): of orientations, where the toy's forward axis points, seen from above; of other poses the two principal
    components of their directions."""
    if isinstance(action, Rotors):
        forward = quaternion.rotate(
            quaternion.normalise(poses), poses.new_tensor([1.0, 0.0, 0.0]).expand(len(poses), 3)
        )
        return forward[:, :2]
    return principal(quaternion.safe_unit(poses, 1), 2)


def some_toys(images: ImageSet, count: int) -> ImageSet:
    """The images of the first `count` toys of each class."""
    toys = views_of(images).toys
    kept = torch.zeros(len(images), dtype=torch.bool)
    for label in images.labels.unique():
        here = images.labels == label
        kept |= here & torch.isin(toys, toys[here].unique()[:count])
    return images.select(kept, images.name)

"""What a network says of an image, as the page shows it: everything is a list or a number, ready for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from quatcaps import quaternion
from quatcaps.capsules import Capsules
from quatcaps.data.preprocessing import for_evaluation
from quatcaps.data.toys.catalogue import CLASSES
from quatcaps.errors import QuatcapsError
from quatcaps.explorer.toys import FRAME
from quatcaps.layers.explanation import ExplainedLayer
from quatcaps.models import parameter_count
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.models.explanation import Explanation, Part
from quatcaps.training.trained import Trained

KINDS = {3: "direction", 4: "orientation"}
"""What the pose of a class is, by its numbers."""
PARTS = 6
"""Strongest parts of the capsule that is looked below; each has BRANCHES parts of its own, and so on."""
BRANCHES = 2
DIGITS = 4


class Below(NamedTuple):
    """The capsule whose parts are asked for; of its places, the one where it is most active is shown."""

    level: int  # 0: primary capsules, which have no parts
    capsule: int  # its type


@dataclass(frozen=True)
class Shown:
    """A network on the page."""

    trained: Trained

    def __post_init__(self) -> None:
        trained = self.trained
        if trained.channels != 2:
            raise QuatcapsError(
                f"{trained.name} takes images of {trained.channels} channels: the explorer shows stereo pairs, 2; give "
                "a network that was trained on toys-many, toys or smallnorb"
            )
        if len(set(trained.size)) != 1:
            raise QuatcapsError(
                f"{trained.name} takes images of {trained.size[0]}×{trained.size[1]}: the explorer's pictures are "
                "square; give a network that was trained on square ones"
            )
        trained.network.eval()

    @property
    def side(self) -> int:
        """Of the pictures that it takes, in pixels."""
        return self.trained.size[0]

    @property
    def unit(self) -> float:
        """A pixel of its pictures in the page's units."""
        return FRAME / self.side

    @property
    def oriented(self) -> bool:
        """Whether class poses were trained to be orientations that can be held against the truth."""
        return self.trained.config.pose_weight > 0 and self.trained.config.dataset.startswith("toys")

    @property
    def knows_toys(self) -> bool:
        return self.trained.classes == CLASSES

    def to_json(self) -> dict[str, Any]:
        """What does not depend on the image."""
        seen = self.trained.config.crop or self.side
        edge = (self.side - seen) // 2 * self.unit
        return {
            "name": self.trained.name,
            "model": self.trained.config.model,
            "dataset": self.trained.config.dataset,
            "parameters": parameter_count(self.trained.network),
            "classes": list(self.trained.classes),
            "capsules": isinstance(self.trained.network, CapsuleNetwork),
            "oriented": self.oriented,
            "knowsToys": self.knows_toys,
            "pixels": seen,
            "window": {
                "top": edge,
                "left": edge,
                "height": seen * self.unit,
                "width": seen * self.unit,
                "frame": FRAME,
            },
        }

    def inputs(self, images: Tensor) -> Tensor:
        """(N, 2, H, W) uint8 → what the network sees of them."""
        return for_evaluation(self.trained.config, images)

    @torch.inference_mode()
    def look(self, image: Tensor, orientation: list[float] | None = None, below: Below | None = None) -> dict[str, Any]:
        """One image (2, H, W) uint8, with the capsules of every layer where there are capsules, and the tree below the
        winner, or below another capsule."""
        inputs, network = self.inputs(image[None]), self.trained.network
        if not isinstance(network, CapsuleNetwork):
            output = network(inputs)
            poses = getattr(output, "poses", None)
            return self.classes(output.activations[0], None if poses is None else poses[0], orientation)
        explanation = network.explain(inputs)
        classes = explanation.layers[-1].capsules
        found = self.classes(classes.activations[0].flatten(), classes.poses[0].flatten(1), orientation)
        winner = found["winner"]
        root = root_of(explanation, below or Below(len(explanation.layers) - 1, winner))
        return {
            **found,
            "layers": [
                layer_of(layer, shares, self.unit)
                for layer, shares in zip(explanation.layers, winner_shares(explanation, winner), strict=True)
            ],
            "root": part_of(root),
            "tree": [part_of(part) for part in tree(explanation, root)],
            "iterations": [
                iteration_of(step.capsules, step.assignments, winner) for step in explanation.layers[-1].iterations
            ],
        }

    @torch.inference_mode()
    def turn(self, images: Tensor, orientations: list[list[float]]) -> dict[str, Any]:
        """Many images of one toy: activations, and the pose of the class with the largest mean activation."""
        output = self.trained.network(self.inputs(images))
        activations, poses = output.activations, getattr(output, "poses", None)
        winner = int(activations.mean(0).argmax())
        found: dict[str, Any] = {"winner": winner, "activations": rounded(activations), "poses": None, "degrees": None}
        if poses is not None and poses.shape[2] in KINDS:
            chosen = quaternion.safe_unit(poses[:, winner].double(), 1)
            found["poses"] = rounded(chosen)
            if self.oriented:
                true = torch.tensor(orientations, dtype=torch.float64)
                found["degrees"] = rounded(quaternion.geodesic_distance(chosen, true).rad2deg())
        return found

    def classes(self, activations: Tensor, poses: Tensor | None, orientation: list[float] | None) -> dict[str, Any]:
        """The classes' activations (classes,), and the winner's pose, of unit length."""
        winner = int(activations.argmax())
        found: dict[str, Any] = {"activations": rounded(activations), "winner": winner, "pose": None}
        if poses is not None and poses.shape[1] in KINDS:
            pose = quaternion.safe_unit(poses[winner].double(), 0)
            length = float(poses[winner].norm())
            found["pose"] = {"kind": KINDS[len(pose)], "numbers": rounded(pose), "length": round(length, DIGITS)}
            if self.oriented and orientation is not None and len(pose) == 4 and length > 0:
                true = torch.tensor(orientation, dtype=torch.float64)
                found["pose"]["degrees"] = round(float(quaternion.geodesic_distance(pose, true).rad2deg()), 2)
        return found


def layer_of(layer: ExplainedLayer, shares: Tensor, unit: float) -> dict[str, Any]:
    """The activations of a layer of the one image, (capsules, rows, columns), and where they stand in the window: the
    middle of the first, and the step from one to the next. Shares of the winner: by place (rows, columns), by
    capsule."""
    down, across = layer.places
    return {
        "name": layer.name,
        "grid": list(layer.grid),
        "activations": rounded(layer.capsules.activations[0]),
        "first": [(scale.first + 0.5) * unit for scale in (down, across)],
        "step": [scale.step * unit for scale in (down, across)],
        "shares": {"places": rounded(shares.sum(0)), "capsules": rounded(shares.sum((1, 2)))},
    }


def winner_shares(explanation: Explanation, winner: int) -> list[Tensor]:
    """Of every layer, the share of the winner that comes from each capsule by all ways through the layers between,
    (capsules, rows, columns): shares of parts of parts multiply, and those of a layer sum to 1."""
    shares = torch.zeros_like(explanation.layers[-1].capsules.activations[0], dtype=torch.float64)
    shares[winner] = 1
    found = [shares]
    for below, layer in zip(explanation.layers[-2::-1], explanation.layers[:0:-1], strict=True):
        assert layer.reach is not None, "only primary capsules have no parts"
        window, stride, (down, across) = layer.reach[:2], layer.reach.stride, layer.reach.padding
        seen = F.pad(below.capsules.activations[0].double(), (across, across, down, down))
        children = F.unfold(seen[None], window, stride=stride).unflatten(1, (-1, *window)).permute(2, 3, 1, 0, 4)
        given = children * layer.assignments[0].double().flatten(-2)  # rows, columns, I, J, places of the parents
        given /= given.sum((0, 1, 2), keepdim=True).clamp(min=torch.finfo(given.dtype).tiny)
        by_child = (given * shares.flatten(1)).sum(3).permute(2, 0, 1, 3).flatten(0, 2)
        whole = F.fold(by_child[None], seen.shape[1:], window, stride=stride)[0]
        shares = whole[:, down : whole.shape[1] - down, across : whole.shape[2] - across]
        found.append(shares)
    return found[::-1]


def root_of(explanation: Explanation, below: Below) -> Part:
    """The capsule whose parts are shown, where it is most active; it is no part of anything here."""
    level, capsule = below
    top = len(explanation.layers) - 1
    if not 1 <= level <= top:
        raise QuatcapsError(f"parts below layer {level}: give one from 1 to {top}")
    activations = explanation.layers[level].capsules.activations[0]
    if not 0 <= capsule < len(activations):
        raise QuatcapsError(f"parts below capsule {capsule} of layer {level}: it has 0 to {len(activations) - 1}")
    row, column = divmod(int(activations[capsule].argmax()), activations.shape[2])
    return Part(level, capsule, row, column, float(activations[capsule, row, column]), assignment=1.0, share=1.0)


def tree(explanation: Explanation, root: Part) -> tuple[Part, ...]:
    """The strongest parts of a capsule, each with its own."""

    def below(part: Part) -> Part:
        parts = explanation.parts(0, part.level, part.capsule, part.row, part.column, BRANCHES)
        return part._replace(parts=tuple(below(child) for child in parts))

    parts = explanation.parts(0, root.level, root.capsule, root.row, root.column, PARTS)
    return tuple(below(part) for part in parts)


def part_of(part: Part) -> dict[str, Any]:
    value = {**part._asdict(), "parts": [part_of(child) for child in part.parts]}
    return {name: round(number, DIGITS) if isinstance(number, float) else number for name, number in value.items()}


def iteration_of(capsules: Capsules, assignments: Tensor, winner: int) -> dict[str, Any]:
    """What the classes were after an iteration, and which share of each child below the winner took, (children, rows,
    columns)."""
    shares = assignments[0, ..., winner, 0, 0].permute(2, 0, 1)
    return {"activations": rounded(capsules.activations[0].flatten()), "shares": rounded(shares)}


def rounded(values: Tensor) -> list[Any]:
    """Nested lists of numbers with few digits."""
    return values.double().mul(10**DIGITS).round().div(10**DIGITS).tolist()

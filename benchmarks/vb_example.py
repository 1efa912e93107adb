"""The example with one layer of capsules in the public code of VB, from our layers: a plug-in.

    quatcaps --plugin benchmarks/vb_example.py train --model vb-example --dataset smallnorb --loss cross-entropy

Its README says that it classifies 97.1% of smallNORB's test images correctly, and its author that the defaults suffice
for about 97% if all training images are learned (issue 6 of that repository).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError
from quatcaps.layers import ConvolutionalCapsules
from quatcaps.models import Model, Network, register_model
from quatcaps.poses import pose_type
from quatcaps.routing import VB, Routing, routing_setting

NAME = "vb-example"
POSE = "matrix-xavier"


@dataclass(frozen=True)
class ExampleSettings:
    """`grid`: the side of the grid of primary capsules, which images of 32×32 have."""

    features: int = 64
    primary: int = 16
    grid: int = 6
    routing: Routing = routing_setting(VB(iterations=3, competition="all-later"))


class Primary(nn.Module):
    """A convolution, and one for each of poses and activations, which have a stride here."""

    def __init__(self, channels: int, settings: ExampleSettings) -> None:
        super().__init__()
        features, capsules, dims = settings.features, settings.primary, pose_type(POSE).dims
        stem, poses, activations = (
            nn.Conv2d(channels, features, 5, 2, bias=False),
            nn.Conv2d(features, capsules * dims, 3, 2, bias=False),
            nn.Conv2d(features, capsules, 3, 2, bias=False),
        )
        nn.init.kaiming_uniform_(stem.weight)
        nn.init.xavier_uniform_(poses.weight)
        nn.init.xavier_uniform_(activations.weight)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(features), nn.ReLU())
        self.pose_head = nn.Sequential(poses, nn.Unflatten(1, (capsules, dims)), nn.BatchNorm3d(capsules))
        self.activation_head = nn.Sequential(activations, nn.BatchNorm2d(capsules), nn.Sigmoid())

    def forward(self, images: Tensor) -> Capsules:
        features = self.stem(images)
        return Capsules(self.pose_head(features), self.activation_head(features))


class Classes(ConvolutionalCapsules):
    """One capsule of each class, which all places vote for, each by maps of its own."""

    def forward(self, poses: Tensor, activations: Tensor) -> Capsules:
        classes = super().forward(poses, activations)
        return Capsules(classes.poses.flatten(2), classes.activations.flatten(1))


class Example(Network):
    """(N, channels, 32, 32) → class capsules: poses (N, classes, 16), activations (N, classes)."""

    def __init__(self, channels: int, classes: int, settings: ExampleSettings) -> None:
        super().__init__(channels, classes, settings)
        self.primary = Primary(channels, settings)
        self.layers = nn.ModuleList()
        self.classify = Classes(settings.primary, classes, settings.grid, pose=POSE, routing=settings.routing)

    def forward(self, images: Tensor) -> Capsules:
        poses, activations = self.primary(images)
        if activations.shape[2:] != (self.settings.grid, self.settings.grid):
            height, width = activations.shape[2:]
            raise QuatcapsError(
                f"{NAME} has a grid of {height}×{width} primary capsules for images of "
                f"{'×'.join(map(str, images.shape[2:]))}, and maps for {self.settings.grid}×{self.settings.grid}: "
                "give images of 32×32, or another grid"
            )
        return self.classify(poses, activations)


register_model(NAME, Model("the example with one layer in VB's public code", Example, ExampleSettings()))

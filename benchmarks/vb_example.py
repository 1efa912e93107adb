"""The example with one layer of capsules in the public code of VB, from our layers. Its README says that it classifies
97.1% of smallNORB's test images correctly, and its author that the defaults suffice for about 97% if all training
images are learned (issue 6 of that repository). It is no network of this library, as it takes one size of images
alone."""

from __future__ import annotations

from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.layers import ConvolutionalCapsules
from quatcaps.models import Network
from quatcaps.routing import VB

FEATURES, PRIMARY, DIMS, KERNEL = 64, 16, 16, 6
SIDE = 32
"""Of its images, of which 6 × 6 places of primary capsules are left."""


class Primary(nn.Module):
    """A convolution, and one for each of poses and activations, which have a stride here."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        stem, poses, activations = (
            nn.Conv2d(channels, FEATURES, 5, 2, bias=False),
            nn.Conv2d(FEATURES, PRIMARY * DIMS, 3, 2, bias=False),
            nn.Conv2d(FEATURES, PRIMARY, 3, 2, bias=False),
        )
        nn.init.kaiming_uniform_(stem.weight)
        nn.init.xavier_uniform_(poses.weight)
        nn.init.xavier_uniform_(activations.weight)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(FEATURES), nn.ReLU())
        self.pose_head = nn.Sequential(poses, nn.Unflatten(1, (PRIMARY, DIMS)), nn.BatchNorm3d(PRIMARY))
        self.activation_head = nn.Sequential(activations, nn.BatchNorm2d(PRIMARY), nn.Sigmoid())

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

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.primary = Primary(channels)
        self.layers = nn.ModuleList()
        routing = VB(iterations=3, competition="all-later")
        self.classify = Classes(PRIMARY, classes, KERNEL, pose="matrix-xavier", routing=routing)

    def forward(self, images: Tensor) -> Capsules:
        return self.classify(*self.primary(images))

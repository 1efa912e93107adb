"""Capsule networks: primary capsules, layers of convolutional capsules, classes. The defaults are the paper's QCN;
the systems it is compared with differ in their settings alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.layers import ClassCapsules, ConvolutionalCapsules, PrimaryCapsules
from quatcaps.layers.images import check_ends, check_images, check_size, least_size
from quatcaps.models.explanation import Explanation, explain
from quatcaps.models.network import Network
from quatcaps.poses import PoseType, pose_setting
from quatcaps.routing import EM, Routing, routing_setting


@dataclass(frozen=True)
class CapsuleSettings:
    """Everything that shapes a capsule network but the input's channels and the classes.

    Residual blocks are (channels, stride); capsule layers are (capsules, kernel, stride); a `stem`, one convolution
    (channels, kernel, stride), stands in for all blocks. `stem_norm`: batch normalisation of the stem; `head_norm`: of
    primary poses and activations; `image_norm`: of the images. `unit`: primary poses are divided by their norm.
    `stem_padding`, `pose_norm`, `convolutions`: see `PrimaryCapsules`. `pose`: a name or a `PoseType`. `routing`: `EM`,
    `VB` or settings of one's own. `coordinates`, `coordinate_rule`: see `ClassCapsules`.
    """

    branched: bool = True
    primary: int = 32
    stem: tuple[int, int, int] | None = None
    stem_norm: bool = False
    stem_padding: str = "none"
    image_norm: bool = False
    pose_blocks: tuple[tuple[int, int], ...] = ((32, 1), (64, 2))
    activation_blocks: tuple[tuple[int, int], ...] = ((32, 2),)
    joint_blocks: tuple[tuple[int, int], ...] = ((64, 1), (96, 2))
    head_norm: bool = True
    pose_norm: str = "number"
    unit: bool = False
    convolutions: str = "scaled"
    capsules: tuple[tuple[int, int, int], ...] = ((16, 5, 1), (16, 5, 1), (16, 5, 1))
    pose: str | PoseType = pose_setting("quaternion")
    coordinates: bool = False
    coordinate_rule: str = "middles"
    routing: Routing = routing_setting(EM())


class CapsuleNetwork(Network):
    """(N, channels, H, W) images → class capsules: poses (N, classes, dims), activations (N, classes)."""

    def __init__(self, channels: int, classes: int, settings: CapsuleSettings | None = None) -> None:
        settings = settings or CapsuleSettings()
        check_ends(channels, classes)
        super().__init__(channels, classes, settings)
        self.primary = PrimaryCapsules(
            channels,
            settings.primary,
            pose_blocks=settings.pose_blocks if settings.branched else settings.joint_blocks,
            activation_blocks=settings.activation_blocks if settings.branched else None,
            stem=settings.stem,
            stem_norm=settings.stem_norm,
            stem_padding=settings.stem_padding,
            image_norm=settings.image_norm,
            head_norm=settings.head_norm,
            pose_norm=settings.pose_norm,
            pose=settings.pose,
            unit=settings.unit,
            convolutions=settings.convolutions,
        )
        children = settings.primary
        self.layers = nn.ModuleList()
        for parents, kernel, stride in settings.capsules:
            self.layers.append(
                ConvolutionalCapsules(children, parents, kernel, stride, pose=settings.pose, routing=settings.routing)
            )
            children = parents
        self.classify = ClassCapsules(
            children,
            classes,
            pose=settings.pose,
            routing=settings.routing,
            coordinates=settings.coordinates,
            coordinate_rule=settings.coordinate_rule,
        )

    @property
    def least_size(self) -> int:
        """The side of the smallest square image that fits."""
        windows = [(layer.window.height, layer.window.stride) for layer in self.convolutional]
        if (stem := self.primary.stem) is not None and not self.primary.stem_padded:
            return least_size(1, [stem[1:], *windows])
        return least_size(self.primary.stride, windows)

    def forward(self, images: Tensor) -> Capsules:
        check_images(images, self.channels, next(self.parameters()))
        check_size(images, self.least_size, self.description)
        poses, activations = self.primary(images)
        for layer in self.layers:
            poses, activations = layer(poses, activations)
        return self.classify(poses, activations)

    def explain(self, images: Tensor) -> Explanation:
        """Poses, activations and assignments r_ij of every layer for a few images: who voted for whom."""
        check_images(images, self.channels, next(self.parameters()))
        check_size(images, self.least_size, self.description)
        return explain(self, images)

    def votes(self, height: int, width: int) -> int:
        """How many votes one image of that size casts, in all layers."""
        return sum(self.votes_by_layer(height, width))

    def votes_by_layer(self, height: int, width: int) -> list[int]:
        """The votes of one image of that size in each capsule layer, the classes last."""
        grid, votes = self.primary.grid(height, width), []
        for layer in self.convolutional:
            votes.append(layer.votes(*grid))
            grid = layer.positions(*grid)
        return [*votes, self.classify.votes(*grid)]

    @property
    def description(self) -> str:
        kernels = ", ".join(f"{layer.window.height}×{layer.window.width}" for layer in self.convolutional)
        return f"capsule layers of {kernels} behind a stride of {self.primary.stride}"

    @property
    def convolutional(self) -> list[ConvolutionalCapsules]:
        """The layers between the primary and the class capsules."""
        return [layer for layer in self.layers if isinstance(layer, ConvolutionalCapsules)]

"""The Quaternion Capsule Network of the paper: branches, primary capsules, three capsule layers, classes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.layers import ClassCapsules, ConvolutionalCapsules, PrimaryCapsules
from quatcaps.layers.images import check_ends, check_images, check_size, least_size
from quatcaps.routing import EM


@dataclass(frozen=True)
class QCNSettings:
    """Everything that shapes a QCN but the input's channels and the classes; the defaults are the paper's.

    Residual blocks are (channels, stride); capsule layers are (capsules, kernel, stride).
    """

    branched: bool = True
    primary: int = 32
    pose_blocks: tuple[tuple[int, int], ...] = ((32, 1), (64, 2))
    activation_blocks: tuple[tuple[int, int], ...] = ((32, 2),)
    joint_blocks: tuple[tuple[int, int], ...] = ((64, 1), (96, 2))
    capsules: tuple[tuple[int, int, int], ...] = ((16, 5, 1), (16, 5, 1), (16, 5, 1))
    pose: str = "quaternion"
    iterations: int = 2
    activation: str = "normalized"
    competition: str = "position"
    variance_floor: float = 1e-4


SMALL = QCNSettings(
    primary=8,
    pose_blocks=((16, 2), (32, 2)),
    activation_blocks=((16, 4),),
    joint_blocks=((24, 2), (32, 2)),
    capsules=((12, 3, 2), (12, 3, 1)),
)
"""The same network for CPUs: fewer capsules on a coarser grid, about 1/258 of the votes on 32×32 images."""


class QCN(nn.Module):
    """(N, channels, H, W) images → class capsules: poses (N, classes, 3), activations (N, classes)."""

    def __init__(self, channels: int, classes: int, settings: QCNSettings | None = None) -> None:
        super().__init__()
        settings = settings or QCNSettings()
        check_ends(channels, classes)
        self.channels, self.classes, self.settings = channels, classes, settings
        routing = EM(settings.iterations, settings.activation, settings.competition, settings.variance_floor)
        self.primary = PrimaryCapsules(
            channels,
            settings.primary,
            pose_blocks=settings.pose_blocks if settings.branched else settings.joint_blocks,
            activation_blocks=settings.activation_blocks if settings.branched else None,
            pose=settings.pose,
        )
        children = settings.primary
        self.layers = nn.ModuleList()
        for parents, kernel, stride in settings.capsules:
            self.layers.append(
                ConvolutionalCapsules(children, parents, kernel, stride, pose=settings.pose, routing=routing)
            )
            children = parents
        self.classify = ClassCapsules(children, classes, pose=settings.pose, routing=routing)

    @property
    def least_size(self) -> int:
        """The side of the smallest square image that fits."""
        windows = [(layer.window.height, layer.window.stride) for layer in self._layers()]
        return least_size(self.primary.stride, windows)

    def forward(self, images: Tensor) -> Capsules:
        check_images(images, self.channels, next(self.parameters()))
        check_size(images, self.least_size, self.description)
        poses, activations = self.primary(images)
        for layer in self.layers:
            poses, activations = layer(poses, activations)
        return self.classify(poses, activations)

    def votes(self, height: int, width: int) -> int:
        """How many votes one image of that size casts, in all layers."""
        grid, total = self.primary.grid(height, width), 0
        for layer in self._layers():
            total += layer.votes(*grid)
            grid = layer.window.positions(*grid)
        return total + self.classify.votes(*grid)

    @property
    def description(self) -> str:
        kernels = ", ".join(f"{layer.window.height}×{layer.window.width}" for layer in self._layers())
        return f"capsule layers of {kernels} behind a stride of {self.primary.stride}"

    def _layers(self) -> list[ConvolutionalCapsules]:
        return [layer for layer in self.layers if isinstance(layer, ConvolutionalCapsules)]

"""A plain convolutional network of the small QCN's size: the control beside it in the demo."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from quatcaps.errors import at_least_one
from quatcaps.layers.images import check_ends, check_images, check_size
from quatcaps.models.logits import Logits
from quatcaps.models.network import Network


@dataclass(frozen=True)
class SmallCNNSettings:
    """`widths`: the channels of each 3×3 convolution, each followed by BN, ReLU and 2×2 max-pooling; `poses`: classes
    have quaternions too, from a linear layer beside that of the scores."""

    widths: tuple[int, ...] = (20, 40, 60)
    poses: bool = False


class SmallCNN(Network):
    """(N, channels, H, W) images → `Logits`: convolutions, average pooling over the grid, one linear layer."""

    def __init__(self, channels: int, classes: int, settings: SmallCNNSettings | None = None) -> None:
        settings = settings or SmallCNNSettings()
        check_ends(channels, classes)
        super().__init__(channels, classes, settings)
        at_least_one("widths of convolutions", len(settings.widths))
        for width in settings.widths:
            at_least_one("channels of a convolution (widths)", width)
        self.features = nn.Sequential()
        for before, width in zip((channels, *settings.widths), settings.widths, strict=False):
            self.features.append(nn.Conv2d(before, width, 3, padding=1, bias=False))
            self.features.extend([nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)])
        self.classify = nn.Linear(settings.widths[-1], classes)
        self.pose = nn.Linear(settings.widths[-1], 4 * classes) if settings.poses else None

    @property
    def least_size(self) -> int:
        """The side of the smallest square image that fits."""
        return int(2 ** len(self.settings.widths))

    def forward(self, images: Tensor) -> Logits:
        check_images(images, self.channels, self.classify.weight)
        check_size(images, self.least_size, f"{len(self.settings.widths)} poolings by 2")
        pooled = self.features(images).mean((2, 3))
        poses = None if self.pose is None else self.pose(pooled).unflatten(1, (self.classes, 4))
        return Logits(self.classify(pooled), poses)

"""The CNN that Hinton et al. 2018 compare matrix capsules with: two convolutions and a wide layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from quatcaps.errors import QuatcapsError, at_least_one
from quatcaps.layers.dropout import Dropout
from quatcaps.layers.images import check_ends, check_images
from quatcaps.models.logits import Logits
from quatcaps.models.network import Network


@dataclass(frozen=True)
class CNNSettings:
    """`widths`: the channels of each `kernel` × `kernel` convolution, each with a ReLU and 2×2 max-pooling; `hidden`:
    the units of the fully connected layer, of which `dropout` are left out in training. `size`: height and width of the
    images, which the fully connected layer is made for."""

    widths: tuple[int, ...] = (32, 64)
    kernel: int = 5
    hidden: int = 1024
    dropout: float = 0.5
    size: tuple[int, int] = (32, 32)


class CNN(Network):
    """(N, channels, H, W) images of one size → `Logits`."""

    def __init__(self, channels: int, classes: int, settings: CNNSettings | None = None) -> None:
        settings = settings or CNNSettings()
        check_ends(channels, classes)
        super().__init__(channels, classes, settings)
        at_least_one("widths of convolutions", len(settings.widths))
        for width in settings.widths:
            at_least_one("channels of a convolution (widths)", width)
        at_least_one("pixels of a kernel", settings.kernel)
        at_least_one("hidden units", settings.hidden)
        self.features = nn.Sequential()
        for before, width in zip((channels, *settings.widths), settings.widths, strict=False):
            self.features.append(nn.Conv2d(before, width, settings.kernel, padding="same"))
            self.features.extend([nn.ReLU(), nn.MaxPool2d(2)])
        pooled = [side // 2 ** len(settings.widths) for side in settings.size]
        at_least_one("pixels after pooling", min(pooled))
        self.classify = nn.Sequential(
            nn.Linear(settings.widths[-1] * pooled[0] * pooled[1], settings.hidden),
            nn.ReLU(),
            Dropout(settings.dropout),
            nn.Linear(settings.hidden, classes),
        )

    @property
    def least_size(self) -> int:
        """The side of the image it is made for."""
        return max(self.settings.size)

    def forward(self, images: Tensor) -> Logits:
        check_images(images, self.channels, next(self.parameters()))
        if images.shape[2:] != self.settings.size:
            (height, width), (own_height, own_width) = images.shape[2:], self.settings.size
            raise QuatcapsError(
                f"input {height}×{width}: this network's fully connected layer is made for {own_height}×{own_width}; "
                f"build it with size=[{height},{width}]"
            )
        return Logits(self.classify(self.features(images).flatten(1)))

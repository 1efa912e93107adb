"""A residual network of 20 layers with average pooling (He et al. 2016): QCN's blocks without its capsules."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from quatcaps.errors import QuatcapsError, at_least_one
from quatcaps.layers import ResidualBlock
from quatcaps.layers.images import check_ends, check_images, check_size
from quatcaps.layers.residual import ResidualTrunk
from quatcaps.models.logits import Logits
from quatcaps.models.network import Network

MOST_BLOCKS = 1000


@dataclass(frozen=True)
class ResNetSettings:
    """`widths`: the channels of each stage, at half the size of the one before; `blocks`: in each stage, of two
    convolutions each; `poses`: classes have quaternions too, from a linear layer beside that of the scores."""

    widths: tuple[int, ...] = (16, 32, 64)
    blocks: int = 3
    poses: bool = False


class ResNet(Network):
    """(N, channels, H, W) images → `Logits`: a convolution, stages of residual blocks, the mean over the grid, one
    linear layer. With three stages, 6 · blocks + 2 layers as they are usually counted."""

    def __init__(self, channels: int, classes: int, settings: ResNetSettings | None = None) -> None:
        settings = settings or ResNetSettings()
        check_ends(channels, classes)
        super().__init__(channels, classes, settings)
        at_least_one("widths of stages", len(settings.widths))
        at_least_one("blocks of a stage", settings.blocks)
        if settings.blocks > MOST_BLOCKS:
            raise QuatcapsError(f"{settings.blocks:,} blocks of a stage: at most {MOST_BLOCKS:,}")
        self.stem = nn.Conv2d(channels, settings.widths[0], 3, padding=1, bias=False)
        nn.init.kaiming_uniform_(self.stem.weight, nonlinearity="relu")
        self.stages = ResidualTrunk()
        before = settings.widths[0]
        for stage, width in enumerate(settings.widths):
            for block in range(settings.blocks):
                self.stages.append(ResidualBlock(before, width, 2 if stage and not block else 1, plain_skip=True))
                before = width
        self.norm = nn.BatchNorm2d(before)
        self.classify = nn.Linear(before, classes)
        self.pose = nn.Linear(before, 4 * classes) if settings.poses else None

    def forward(self, images: Tensor) -> Logits:
        check_images(images, self.channels, self.classify.weight)
        check_size(images, self.least_size, "a residual network")
        features = self.norm(self.stages(self.stem(images))).relu()
        pooled = features.mean((2, 3))
        poses = None if self.pose is None else self.pose(pooled).unflatten(1, (self.classes, 4))
        return Logits(self.classify(pooled), poses)

"""The residual block of the paper's figure 4: pre-activation, as in Deep Complex Networks."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quatcaps.errors import at_least_one
from quatcaps.layers import inference
from quatcaps.layers.as_made import watched
from quatcaps.layers.convolution import Convolution
from quatcaps.layers.fused import trunk
from quatcaps.routing.backends import AUTO, REFERENCE

CHANNELS_LAST_FROM = 2**14
"""Numbers per image."""


class ResidualBlock(nn.Module):
    """BN-ReLU-3×3(stride s)-BN-ReLU-3×3, plus a 1×1 stride-s convolution of the activated input; no biases.

    (N, channels_in, H, W) → (N, channels_out, ⌈H/s⌉, ⌈W/s⌉). Convolutions start Kaiming-uniform. `plain_skip`: where
    nothing changes its shape, the input itself is added, as in other residual networks.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int = 1, *, plain_skip: bool = False) -> None:
        super().__init__()
        for what, count in (
            ("channels in", channels_in),
            ("channels of a block", channels_out),
            ("stride of a block", stride),
        ):
            at_least_one(what, count)
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = Convolution(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.conv2 = Convolution(channels_out, channels_out, 3, padding=1, bias=False)
        plain = plain_skip and stride == 1 and channels_in == channels_out
        self.skip = None if plain else Convolution(channels_in, channels_out, 1, stride=stride, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for conv in (self.conv1, self.conv2, self.skip):
            if conv is not None:
                nn.init.kaiming_uniform_(conv.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        activated = F.relu(self.norm1(images))
        deeper = well_laid(self.conv1(activated))
        if deeper.is_contiguous(memory_format=torch.channels_last):
            activated = activated.contiguous(memory_format=torch.channels_last)
        skipped = images if self.skip is None else self.skip(activated)
        return self.conv2(F.relu(self.norm2(deeper))) + skipped


def well_laid(features: Tensor) -> Tensor:
    """The same features, laid out in memory as convolutions and normalisations like them best: on a GPU, large ones
    with channels last. Measured in docs/performance.md; images and small features are faster as they are."""
    if features.is_cuda and features[0].numel() >= CHANNELS_LAST_FROM:
        return features.contiguous(memory_format=torch.channels_last)
    return features


class ResidualTrunk(nn.Sequential):
    """Residual blocks and what follows them. Unless the `backend` is the reference, or somebody has a hook inside,
    blocks run faster where they can: on a GPU by kernels of our own (`fused`), but for gradients in evaluation; where a
    network predicts on an ARM CPU, in C (`inference`)."""

    backend = AUTO

    @property
    def blocks(self) -> list[ResidualBlock]:
        """Those at its beginning."""
        return [module for module in itertools.takewhile(is_block, self) if isinstance(module, ResidualBlock)]

    def runs_fused(self, features: Tensor) -> bool:
        """Whether kernels of our own compute the blocks."""
        return trunk.can_run(self.backend, self.blocks, features)

    def forward(self, features: Tensor) -> Tensor:
        blocks, rest = self.blocks, list(self)
        if trunk.can_run(self.backend, blocks, features):
            features, rest = trunk.run(blocks, features), rest[len(blocks) :]
        elif self.backend != REFERENCE and inference.applies(blocks, features):
            features, rest = inference.predict(blocks, features), rest[len(blocks) :]
        for module in rest:
            features = module(features)
        return features


@contextlib.contextmanager
def by_modules(*networks: nn.Module) -> Iterator[None]:
    """Their blocks are computed by PyTorch's modules alone, with gradients and without, in training and evaluation."""
    trunks = [module for network in networks for module in network.modules() if isinstance(module, ResidualTrunk)]
    backends = [trunk.backend for trunk in trunks]
    try:
        for trunk in trunks:
            trunk.backend = REFERENCE
        yield
    finally:
        for trunk, backend in zip(trunks, backends, strict=True):
            trunk.backend = backend


def is_block(module: nn.Module) -> bool:
    return isinstance(module, ResidualBlock)


def with_head(blocks: nn.Sequential, head: nn.Sequential, images: Tensor) -> Tensor:
    """What a head makes of a trunk that ends in a ReLU; together, where both run by kernels of our own."""
    if isinstance(blocks, ResidualTrunk) and blocks.runs_fused(images):
        closed = len(blocks) == len(blocks.blocks) + 1 and isinstance(blocks[-1], nn.ReLU)
        heard = watched(blocks) or watched(blocks[-1])
        if closed and not heard and trunk.can_run_head(head, blocks.training):
            return trunk.run_head(head, trunk.run(blocks.blocks, images))
    return head(blocks(images))


def residual_trunk(channels_in: int, channels: tuple[int, ...], strides: tuple[int, ...]) -> ResidualTrunk:
    """Residual blocks one after the other, closed by a ReLU."""
    at_least_one("residual blocks", len(channels))
    before = (channels_in, *channels[:-1])
    blocks = [ResidualBlock(*shape) for shape in zip(before, channels, strides, strict=True)]
    return ResidualTrunk(*blocks, nn.ReLU())

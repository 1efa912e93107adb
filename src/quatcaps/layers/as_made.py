"""Whether modules are as they were made: faster ways compute what they say only then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from quatcaps.layers.convolution import Convolution

if TYPE_CHECKING:
    from quatcaps.layers.residual import ResidualBlock


def parts_of(block: ResidualBlock) -> list[nn.Module]:
    return [part for part in (block.norm1, block.conv1, block.norm2, block.conv2, block.skip) if part is not None]


def fits(blocks: Sequence[ResidualBlock], features: Tensor) -> bool:
    """Whether (N, C, H, W) features can go through blocks that are as made, one after the other."""
    if not blocks or features.ndim != 4 or features.numel() == 0 or nn.modules.module._has_any_global_hook():
        return False
    if not all(as_made(part) for block in blocks for part in parts_of(block)) or any(map(watched, blocks)):
        return False
    channels = [features.shape[1], *(block.conv2.out_channels for block in blocks)]
    return all(
        (block.norm1.num_features, block.conv1.in_channels, block.conv2.in_channels) == (before, before, after)
        for block, before, after in zip(blocks, channels, channels[1:], strict=False)
    )


def as_made(part: nn.Module) -> bool:
    """Whether a part of a block is what blocks are made of, and nobody watches it."""
    if watched(part):
        return False
    if isinstance(part, nn.BatchNorm2d):
        return part.running_mean is not None and part.affine
    if type(part) is not Convolution or part.padding_mode != "zeros" or part.bias is not None:
        return False
    return usual(part)


def usual(conv: nn.Conv2d) -> bool:
    """Whether a convolution is square, with as much padding as keeps the size, and of all channels."""
    side = conv.kernel_size[0]
    made = ((side, side), (side // 2, side // 2), (1, 1), 1)
    return (conv.kernel_size, conv.padding, conv.dilation, conv.groups) == made


def watched(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )

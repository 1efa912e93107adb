"""Residual blocks in C, where a network predicts on an ARM CPU: in evaluation mode, without gradients, in float32.

PyTorch's convolutions there take a third to twice as long, and copy between layouts (docs/performance.md). On other
processors, and whenever somebody watches or changes what is inside a block, PyTorch's own modules run: under hooks,
transforms, autocast, tracing and compiling, and with parts that are not those a block was made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from quatcaps.layers import native
from quatcaps.layers.as_made import fits
from quatcaps.layers.convolution import ON_ARM, plain

if TYPE_CHECKING:
    from quatcaps.layers.residual import ResidualBlock


FEWEST = 2
"""Images that repay what it takes to lay out the weights; a single one is a thread's work besides."""


def applies(blocks: Sequence[ResidualBlock], images: Tensor) -> bool:
    """Whether `predict` computes what the blocks would, one after the other."""
    if (
        not blocks
        or not ON_ARM
        or torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or torch._C._get_tracing_state()
    ):
        return False
    if torch.is_autocast_enabled("cpu") or not fits(blocks, images) or not plain(images) or len(images) < FEWEST:
        return False
    return all(map(predicts, blocks)) and native.problem() is None


def predicts(block: ResidualBlock) -> bool:
    """Whether a block is in evaluation mode, and of plain numbers."""
    norms = (block.norm1, block.norm2)
    if block.training or any(norm.training for norm in norms):
        return False
    weights = [conv.weight for conv in (block.conv1, block.conv2, block.skip) if conv is not None]
    learned = [numbers for norm in norms for numbers in (norm.weight, norm.bias, norm.running_mean, norm.running_var)]
    return all(tensor is not None and plain(tensor) for tensor in (*weights, *learned))


def predict(blocks: Sequence[ResidualBlock], images: Tensor) -> Tensor:
    """What the last block makes of it, with channels last in memory. The second normalisation of a block is a factor on
    the weights before it, and a bias."""
    parts: list[Tensor | None] = []
    for block in blocks:
        factor, bias = factors(block.norm2)
        parts += [*factors(block.norm1), block.conv1.weight * factor[:, None, None, None], bias, block.conv2.weight]
        parts.append(None if block.skip is None else block.skip.weight)
    found: Tensor = native.residual_blocks(images, parts, [block.conv1.stride[0] for block in blocks])
    return found


def factors(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Normalisation by what was learned, as x · scale + shift."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    return scale, norm.bias - norm.running_mean * scale

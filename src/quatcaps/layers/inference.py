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
from quatcaps.layers.convolution import ON_ARM, Convolution, plain

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
    if torch.is_autocast_enabled("cpu") or nn.modules.module._has_any_global_hook():
        return False
    if images.ndim != 4 or images.shape[1] != blocks[0].norm1.num_features or images.numel() == 0 or not plain(images):
        return False
    if len(images) < FEWEST:
        return False
    return all(map(usual_block, blocks)) and native.problem() is None


def usual_block(block: ResidualBlock) -> bool:
    parts = [part for part in (block.norm1, block.conv1, block.norm2, block.conv2, block.skip) if part is not None]
    inside = [
        tensor for part in parts for tensor in (*part.parameters(), *part.buffers()) if tensor.is_floating_point()
    ]
    watched = block._forward_hooks or block._forward_pre_hooks
    return not block.training and not watched and all(map(usual, parts)) and all(map(plain, inside))


def usual(part: nn.Module) -> bool:
    """Whether a part of a block is as it was made, and nobody watches it."""
    if part._forward_hooks or part._forward_pre_hooks:
        return False
    if isinstance(part, nn.BatchNorm2d):
        return not part.training and part.running_mean is not None and part.affine
    if type(part) is not Convolution or part.padding_mode != "zeros":
        return False
    side = part.kernel_size[0]
    made = ((side, side), (side // 2, side // 2), (1, 1), 1, None)
    return (part.kernel_size, part.padding, part.dilation, part.groups, part.bias) == made


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

"""Blocks one after the other by the kernels, where they can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from quatcaps.accelerator import current, unavailable
from quatcaps.layers.as_made import fits, usual, watched
from quatcaps.layers.convolution import Convolution
from quatcaps.layers.fused import functions
from quatcaps.layers.fused.functions import Block, BlockPlan, BlockWeights, Head, HeadWeights, Lay
from quatcaps.layers.fused.launch import Running, lay
from quatcaps.routing.backends import AUTO, default

if TYPE_CHECKING:
    from quatcaps.layers.residual import ResidualBlock

BACKEND = "triton"
MOST_CHANNELS, MOST_STRIDE = 256, 2
"""Of a block: a program holds all channels, at either end."""


def can_run(backend: str, blocks: Sequence[ResidualBlock], features: Tensor) -> bool:
    """Whether the kernels do what these modules would do: on a GPU, in float32 or bf16, in training or without
    gradients, and with nobody listening to what happens inside of them."""
    if (default(features.device) if backend == AUTO else backend) != BACKEND:
        return False
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if not fits(blocks, features):
        return False
    widest = max(max(block.conv1.in_channels, block.conv1.out_channels) for block in blocks)
    return (
        features.dtype == torch.float32
        and features.numel() // features.shape[1] * widest < 2**31
        and widest <= MOST_CHANNELS
        and precision_of(features) is not None
        and unavailable(features.device) is None
        and all(runs(block, features.device, blocks[0].training) for block in blocks)
        and (blocks[0].training or not differentiated(blocks, features))
    )


def differentiated(blocks: Sequence[ResidualBlock], features: Tensor) -> bool:
    """Whether somebody may ask for gradients."""
    if not torch.is_grad_enabled():
        return False
    return features.requires_grad or any(weight.requires_grad for block in blocks for weight in block.parameters())


def runs(block: ResidualBlock, device: torch.device, training: bool) -> bool:
    """Whether the kernels know a block's stride, its normalisations and its numbers."""
    return (
        block.conv1.stride[0] <= MOST_STRIDE
        and all(normalises(norm, training) for norm in (block.norm1, block.norm2))
        and all(parameter.dtype == torch.float32 and parameter.device == device for parameter in block.parameters())
    )


def can_run_head(head: nn.Sequential, training: bool) -> bool:
    """Whether a head is a 1×1 convolution and a normalisation, as made, and nobody watches."""
    if len(head) != 2 or any(watched(module) for module in head.modules()):
        return False
    conv, norm = head
    return (
        type(conv) is Convolution
        and usual(conv)
        and (conv.kernel_size, conv.stride) == ((1, 1), (1, 1))
        and max(conv.in_channels, conv.out_channels) <= MOST_CHANNELS
        and conv.weight.dtype == torch.float32
        and isinstance(norm, nn.BatchNorm2d)
        and norm.affine
        and norm.running_mean is not None
        and normalises(norm, training)
    )


def normalises(norm: nn.BatchNorm2d, training: bool) -> bool:
    return norm.training == training and norm.momentum is not None


def precision_of(features: Tensor) -> str | None:
    """Of products: what convolutions would have here. None: one that the kernels do not know."""
    kind = features.device.type
    if torch.is_autocast_enabled(kind):
        return "bf16" if torch.get_autocast_dtype(kind) == torch.bfloat16 else None
    return "tf32" if features.is_cuda and tf32_allowed() else "ieee"


def tf32_allowed() -> bool:
    """In convolutions, by the name that knows both ways of setting it."""
    return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]


def run(blocks: Sequence[ResidualBlock], features: Tensor) -> Tensor:
    """What the blocks make of (N, C, H, W) features; with channels last in memory."""
    precision, training = precision_of(features), blocks[0].training
    assert precision is not None
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    with current(features.device):
        if not training:
            laid = lay(features, dtype)
            for block in blocks:
                laid, _ = functions.block(laid, weights_of(block), plan_of(block, precision))
            return laid.values.permute(0, 3, 1, 2)
        values, parts = Lay.apply(features, dtype)
        for block in blocks:
            values, parts = Block.apply(values, parts, plan_of(block, precision), *weights_of(block))
        return values


def run_head(head: nn.Sequential, features: Tensor) -> Tensor:
    """ReLU of what blocks made, a 1×1 convolution, and batch normalisation."""
    conv, norm = head
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    precision = precision_of(features)
    assert precision is not None
    weights = HeadWeights(conv.weight, conv.bias, norm.weight, norm.bias)
    with current(features.device):
        if not norm.training:
            return functions.head(features.permute(0, 2, 3, 1), weights, running(norm), precision, False)[0]
        return Head.apply(features, running(norm), precision, *weights)


def weights_of(block: ResidualBlock) -> BlockWeights:
    skip = None if block.skip is None else block.skip.weight
    norm1, norm2 = block.norm1, block.norm2
    return BlockWeights(
        norm1.weight, norm1.bias, block.conv1.weight, norm2.weight, norm2.bias, block.conv2.weight, skip
    )


def plan_of(block: ResidualBlock, precision: str) -> BlockPlan:
    norms = running(block.norm1), running(block.norm2)
    return BlockPlan(norms, block.conv1.stride[0], precision, block.training)


def running(norm: nn.BatchNorm2d) -> Running:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    return Running(norm.running_mean, norm.running_var, norm.num_batches_tracked, norm.eps, norm.momentum)

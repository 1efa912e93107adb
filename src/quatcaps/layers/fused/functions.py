"""Residual blocks and heads as functions with gradients; (N, C, H, W) outside, channels last in memory.

Beside features go `parts`, the moments of their tiles (`launch.Features`), of which a normalisation is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quatcaps.accelerator import current
from quatcaps.layers.fused import launch
from quatcaps.layers.fused.launch import Features, Normalisation, Running, Shortcut
from quatcaps.layers.fused.plan import CONVOLVED, PLAIN, Sizes
from quatcaps.operators import no_derivative


class BlockWeights(NamedTuple):
    """Of a block: both normalisations, all convolutions; without `skip` the input itself is the shortcut."""

    weight1: Tensor
    bias1: Tensor
    conv1: Tensor
    weight2: Tensor
    bias2: Tensor
    conv2: Tensor
    skip: Tensor | None


class BlockPlan(NamedTuple):
    running: tuple[Running, Running]
    stride: int
    precision: str
    training: bool


class Kept(NamedTuple):
    """What the gradient of a block is made of."""

    source: Tensor
    middle: Tensor
    norm1: Normalisation
    norm2: Normalisation
    laid: list[Tensor]
    first: Sizes
    second: Sizes


def normalisation(
    parts: Tensor, positions: int, weight: Tensor, bias: Tensor, running: Running, training: bool
) -> Normalisation:
    if training:
        return launch.finish(parts, positions, weight, bias, running)
    return Normalisation(launch.recall(weight, bias, running), parts)


def block(features: Features, weights: BlockWeights, plan: BlockPlan) -> tuple[Features, Kept]:
    """`ResidualBlock.forward`."""
    source, (running1, running2), precision = features.values, plan.running, plan.precision
    images, height, width, channels = source.shape
    ends = math.ceil(height / plan.stride), math.ceil(width / plan.stride)
    first = Sizes(height, width, channels, *ends, len(weights.conv1), 3, plan.stride)
    second = Sizes(*ends, first.OUT, *ends, first.OUT, 3, 1)
    laid = launch.lay_weights([each for each in (weights.conv1, weights.conv2, weights.skip) if each is not None])
    norm1 = normalisation(
        features.parts, images * height * width, weights.weight1, weights.bias1, running1, plan.training
    )
    middle = launch.convolve(source, norm1.affine, laid[0], first, precision, measured=plan.training)
    norm2 = normalisation(
        middle.parts, images * math.prod(ends), weights.weight2, weights.bias2, running2, plan.training
    )
    made = launch.convolve(
        middle.values,
        norm2.affine,
        laid[1],
        second._replace(
            SHORTCUT=PLAIN if weights.skip is None else CONVOLVED,
            BESIDE=channels,
            BESIDE_HEIGHT=height,
            BESIDE_WIDTH=width,
            BESIDE_STRIDE=plan.stride,
        ),
        precision,
        Shortcut(source, norm1.affine, laid[-1]),
        measured=plan.training,
    )
    return made, Kept(source, middle.values, norm1, norm2, laid, first, second)


def block_back(grad: Tensor, kept: Kept, precision: str, wanted: bool) -> tuple[Tensor | None, BlockWeights]:
    """The gradients of the block's input, if it is wanted, and of its weights."""
    source, middle, norm1, norm2, laid, first, second = kept
    summed = [launch.sum_weights(middle, norm2.affine, grad, second, precision)]
    grad_middle, parts = launch.convolve_back(grad, laid[1], middle, norm2, second, precision)
    weight2, bias2 = launch.finish_back(parts)
    launch.normalise_back(grad_middle, middle, norm2, weight2, bias2)
    summed.append(launch.sum_weights(source, norm1.affine, grad_middle, first, precision))
    back, shortcut, convolved = first, None, len(laid) == 3
    if convolved:
        back, shortcut = first._replace(SHORTCUT=CONVOLVED, BESIDE=first.OUT), (grad, laid[2])
        summed.append(launch.sum_weights(source, norm1.affine, grad, first._replace(KERNEL=1), precision))
    grad_source, parts = launch.convolve_back(
        grad_middle, laid[0], source, norm1, back, precision, shortcut, keep=wanted
    )
    weight1, bias1 = launch.finish_back(parts)
    if wanted:
        launch.normalise_back(grad_source, source, norm1, weight1, bias1, None if convolved else grad)
    conv2, conv1, *skip = launch.add_weights(summed)
    found = BlockWeights(weight1, bias1, conv1, weight2, bias2, conv2, skip[0] if skip else None)
    return grad_source if wanted else None, found


def first_alone(name: str, compute: Callable[..., tuple[Tensor | None, ...]]) -> Callable[..., Any]:
    """A backward that computes without recording. If gradients of gradients are recorded, taking one raises."""

    def backward(ctx: Any, grad: Tensor | None, *rest: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * len(ctx.needs_input_grad)
        with torch.no_grad(), current(grad.device):
            found = compute(ctx, grad)
        if not torch.is_grad_enabled():
            return found
        return tuple(each if each is None else _End.apply(name, each, grad) for each in found)

    return backward


class _End(torch.autograd.Function):
    """A gradient that depends on `grad` in a way nobody computes."""

    @staticmethod
    def forward(ctx: Any, name: str, values: Tensor, grad: Tensor) -> Tensor:
        ctx.name = name
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        no_derivative(ctx.name, ctx, grad)


class Lay(torch.autograd.Function):
    """Features of any layout → with channels last, and their parts."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        laid = launch.lay(features, dtype)
        ctx.dtype = features.dtype
        ctx.mark_non_differentiable(laid.parts)
        ctx.set_materialize_grads(False)
        return laid.values.permute(0, 3, 1, 2), laid.parts

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_parts: None) -> tuple[Tensor | None, None]:
        return None if grad is None else grad.to(ctx.dtype), None


class Block(torch.autograd.Function):
    """A block in training."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, parts: Tensor, plan: BlockPlan, *weights: Any) -> tuple[Tensor, Tensor]:
        made, kept = block(Features(features.permute(0, 2, 3, 1), parts), BlockWeights(*weights), plan)
        ctx.save_for_backward(*kept[:2], *kept.norm1, *kept.norm2, *kept.laid)
        ctx.sizes, ctx.precision = (kept.first, kept.second), plan.precision
        ctx.mark_non_differentiable(made.parts)
        ctx.set_materialize_grads(False)
        return made.values.permute(0, 3, 1, 2), made.parts

    @staticmethod
    def compute(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        source, middle, *vectors = ctx.saved_tensors[:6]
        norms = Normalisation(*vectors[:2]), Normalisation(*vectors[2:])
        kept = Kept(source, middle, *norms, list(ctx.saved_tensors[6:]), *ctx.sizes)
        grad = grad_out.permute(0, 2, 3, 1).contiguous()
        features, found = block_back(grad, kept, ctx.precision, ctx.needs_input_grad[0])
        return None if features is None else features.permute(0, 3, 1, 2), None, None, *found

    backward = staticmethod(first_alone("residual_block", compute.__func__))  # type: ignore[attr-defined]


class HeadWeights(NamedTuple):
    """Of a 1×1 convolution and the normalisation behind it."""

    conv: Tensor
    conv_bias: Tensor | None
    weight: Tensor
    bias: Tensor


class HeadKept(NamedTuple):
    source: Tensor
    made: Tensor
    norm: Normalisation
    laid: Tensor
    sizes: Sizes


def head(
    source: Tensor, weights: HeadWeights, running: Running, precision: str, training: bool
) -> tuple[Tensor, HeadKept]:
    """ReLU, a 1×1 convolution with or without a bias, and batch normalisation; float32, channels first in memory."""
    images, height, width, channels = source.shape
    conv, conv_bias, weight, bias = weights
    sizes = Sizes(height, width, channels, height, width, len(conv), 1, 1, False, conv_bias is not None)
    (laid,) = launch.lay_weights([conv])
    made = launch.convolve(source, weight, laid, sizes, precision, bias=conv_bias, measured=training)
    norm = normalisation(made.parts, images * height * width, weight, bias, running, training)
    return launch.normalise(made.values, norm.affine), HeadKept(source, made.values, norm, laid, sizes)


class Head(torch.autograd.Function):
    """A head in training. Normalisation takes the convolution's bias out again: its gradient is 0."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, running: Running, precision: str, *weights: Any) -> Tensor:
        out, kept = head(features.permute(0, 2, 3, 1), HeadWeights(*weights), running, precision, True)
        ctx.save_for_backward(kept.source, kept.made, *kept.norm, kept.laid)
        ctx.sizes, ctx.precision = kept.sizes, precision
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def compute(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        source, made, affine, moments, laid = ctx.saved_tensors
        sizes, precision, norm = ctx.sizes, ctx.precision, Normalisation(affine, moments)
        grad, parts = launch.lay_back(grad_out, made, moments)
        weight, bias = launch.finish_back(parts)
        launch.normalise_back(grad, made, norm, weight, bias)
        (conv,) = launch.add_weights([launch.sum_weights(source, affine, grad, sizes, precision)])
        features = launch.convolve_back(grad, laid, source, norm, sizes, precision).values
        conv_bias = torch.zeros_like(bias) if sizes.BIASED else None
        return features.permute(0, 3, 1, 2), None, None, conv, conv_bias, weight, bias

    backward = staticmethod(first_alone("capsule_head", compute.__func__))  # type: ignore[attr-defined]

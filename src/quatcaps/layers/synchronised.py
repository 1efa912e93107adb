"""Batches that several processes share, normalised and dropped out of as one process would do it.

PyTorch's own synchronised batch normalisation needs a GPU; this one is plain PyTorch, for any device.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from quatcaps.layers.dropout import Dropout


def synchronise(network: nn.Module, group: dist.ProcessGroup) -> nn.Module:
    """Has a network take a batch as one part of a whole, of which every process of `group` has an equal one, in the
    order of their ranks; returns the network. Names and shapes of parameters and buffers stay as they are."""
    for module in list(network.modules()):
        if isinstance(module, Dropout):
            module.part_of_batch = dist.get_rank(group)
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
                setattr(module, name, SynchronisedBatchNorm(child, group))
    return network


class SynchronisedBatchNorm(_BatchNorm):
    """Another batch normalisation with its own parameters and buffers, but means and variances over the features of
    all processes. Each must have as many as the others."""

    def __init__(self, norm: _BatchNorm, group: dist.ProcessGroup) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        self.group = group
        self.weight, self.bias = norm.weight, norm.bias
        self.running_mean, self.running_var = norm.running_mean, norm.running_var
        self.num_batches_tracked = norm.num_batches_tracked
        self.train(norm.training)

    def _check_input_dim(self, features: Tensor) -> None:
        """Features of any number of dimensions, (N, C, …), are welcome."""

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return super().forward(features)
        normalised, mean, variance = _Normalise.apply(features, self.weight, self.bias, self.eps, self.group)
        if self.running_mean is not None and self.running_var is not None:
            count = dist.get_world_size(self.group) * features.numel() // features.shape[1]
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            # Without a momentum, running values are means over all batches.
            momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * (count / max(1, count - 1)), momentum)
        return normalised


class _Normalise(torch.autograd.Function):
    """(N, C, …) → the same, normalised; and the mean and the variance (C,) of each channel over all processes."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float, group: dist.ProcessGroup
    ) -> tuple[Tensor, Tensor, Tensor]:
        own = torch.stack([features.mean(_but_channels(features)), features.var(_but_channels(features), correction=0)])
        means, variances = torch.stack(gathered(own, group)).unbind(1)
        mean = means.mean(0)
        variance = (variances + (means - mean).square()).mean(0)
        scale = (variance + epsilon).rsqrt()
        standard = (features - _beside(mean, features)) * _beside(scale, features)
        ctx.save_for_backward(standard, scale, weight)
        ctx.group = group
        ctx.mark_non_differentiable(mean, variance)
        if weight is None or bias is None:
            return standard, mean, variance
        return torch.addcmul(_beside(bias, features), standard, _beside(weight, features)), mean, variance

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        standard, scale, weight = ctx.saved_tensors
        sums = torch.stack([grad.sum(_but_channels(grad)), (grad * standard).sum(_but_channels(grad))])
        grad_bias, grad_weight = (None, None) if weight is None else sums.unbind(0)
        if not ctx.needs_input_grad[0]:
            return None, grad_weight, grad_bias, None, None
        means = torch.stack(gathered(sums, ctx.group)).mean(0) / (grad.numel() // grad.shape[1])
        constant, slope = (_beside(values, grad) for values in means)
        factor = scale if weight is None else scale * weight
        return (grad - constant - standard * slope) * _beside(factor, grad), grad_weight, grad_bias, None, None


def gathered(values: Tensor, group: dist.ProcessGroup) -> list[Tensor]:
    """The values of all processes, in the order of their ranks: sums over them have the same bits everywhere."""
    everyone = [torch.empty_like(values) for _ in range(dist.get_world_size(group))]
    work = dist.all_gather(everyone, values, group=group, async_op=True)
    # Even if asked for on several streams, what is asynchronous is sent on one, in the order of asking.
    assert work is not None
    work.wait()
    return everyone


def _but_channels(features: Tensor) -> list[int]:
    return [0, *range(2, features.ndim)]


def _beside(values: Tensor, features: Tensor) -> Tensor:
    """(C,) → a view that goes with (N, C, …)."""
    return values.view(-1, *[1] * (features.ndim - 2))

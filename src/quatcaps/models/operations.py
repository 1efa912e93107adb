"""What a network computes for one image: multiply-adds, counted from its layers."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from quatcaps.layers import ClassCapsules, ConvolutionalCapsules, use_backend
from quatcaps.routing.backends import REFERENCE


def multiply_adds(network: nn.Module, channels: int, size: tuple[int, int]) -> int:
    """Of convolutions, linear layers and routing, forward, for one image of height and width `size`.

    A vote costs its pose's numbers times the columns of its map; each iteration three per number of the pose: one for
    the distance to the parent, two for the sums. Normalisations and activations are left out.
    """
    total = 0

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv2d):
            total += output.shape[1:].numel() * layer.weight[0].numel()
        elif isinstance(layer, nn.Linear):
            total += layer.weight.numel()
        elif isinstance(layer, ConvolutionalCapsules | ClassCapsules):
            each = layer.pose.dims * (layer.pose.columns + 3 * layer.iterations)
            total += layer.votes(*inputs[0].shape[-2:]) * each

    # No image at all has shapes too, and takes no memory; on `meta` PyTorch would load its compiler first, for seconds.
    alone = use_backend(copy.deepcopy(network).cpu().eval(), REFERENCE)
    for layer in alone.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear | ConvolutionalCapsules | ClassCapsules):
            layer.register_forward_hook(count)
    dtype = next(alone.parameters()).dtype
    with torch.no_grad():
        try:
            alone(torch.zeros(0, channels, *size, dtype=dtype))
        except RuntimeError:  # a network that reshapes by `view(len(images), -1)`, or the like, needs one
            total = 0
            alone(torch.zeros(1, channels, *size, dtype=dtype))
    return total

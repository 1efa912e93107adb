"""What a network computes for one image: multiply-adds, counted from its layers."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from quatcaps.layers import ClassCapsules, ConvolutionalCapsules


def multiply_adds(network: nn.Module, channels: int, size: tuple[int, int]) -> int:
    """Of convolutions, linear layers and routing, forward, for one image of height and width `size`.

    A vote costs its pose's numbers times the columns of its map; each iteration three per number of the pose: one for
    the distance to the parent, two for the sums. Normalisations and activations are left out.
    """
    total = 0

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv2d):
            total += output[0].numel() * layer.weight[0].numel()
        elif isinstance(layer, nn.Linear):
            total += layer.weight.numel()
        elif isinstance(layer, ConvolutionalCapsules | ClassCapsules):
            each = layer.pose.dims * (layer.pose.columns + 3 * layer.iterations)
            total += layer.votes(*inputs[0].shape[-2:]) * each

    counted = (nn.Conv2d, nn.Linear, ConvolutionalCapsules, ClassCapsules)
    handles = [layer.register_forward_hook(count) for layer in network.modules() if isinstance(layer, counted)]
    training = network.training
    # On `meta` shapes go through the layers, and nothing else: no memory is taken, and no backend is built.
    tensors = [*network.named_parameters(), *network.named_buffers()]
    images = torch.empty(1, channels, *size, dtype=next(network.parameters()).dtype, device="meta")
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about backends that the network was given, and `meta` has not
            functional_call(network.eval(), {name: tensor.to("meta") for name, tensor in tensors}, images)
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
    return total

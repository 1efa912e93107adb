"""Where a number stopped being finite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from quatcaps.errors import QuatcapsError


class NonFiniteError(QuatcapsError):
    """The loss or a gradient became NaN or infinite; training has stopped before the weights took it in."""


def finite(tensors: Iterator[Tensor] | list[Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


class Origin(NamedTuple):
    """Where a number stopped being finite; the lower its place, the earlier."""

    place: int
    words: str


def origin(network: nn.Module, images: Tensor) -> Origin:
    """The first place, in the order of computation, with a number that is not finite: weights or output of a layer
    in a forward pass, or else the gradient nearest to the loss."""
    if not finite([images]):
        return Origin(0, "the input images")
    found: list[str] = []
    looked_at = 0

    def watch(name: str, module: nn.Module) -> None:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            nonlocal looked_at
            if found:
                return
            looked_at += 1
            if not finite(list(module.parameters(recurse=False))):
                found.append(f"the weights of {name}")
            elif not finite(_tensors(output)):
                found.append(f"the output of {name}")

        handles.append(module.register_forward_hook(hook))

    handles: list[torch.utils.hooks.RemovableHandle] = []
    for name, module in network.named_modules():
        if name:
            watch(name, module)
    try:
        with torch.no_grad():
            network(images)
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return Origin(looked_at, found[0])
    for name, parameter in reversed(list(network.named_parameters())):
        looked_at += 1
        if parameter.grad is not None and not finite([parameter.grad]):
            return Origin(looked_at, f"the gradient of {name}")
    return Origin(looked_at + 1, "the loss itself")


def _tensors(output: object) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    return [item for item in output if isinstance(item, Tensor)] if isinstance(output, tuple) else []

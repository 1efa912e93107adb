"""The ways to compute a capsule network that are held against each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from quatcaps.bench.paper import as_in_the_paper
from quatcaps.bench.rows import REFERENCE
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.layers import CapsuleLayer, use_backend
from quatcaps.models import Network
from quatcaps.routing import BACKENDS, Votes
from quatcaps.routing.backends import default

ELSEWHERE = {"cuda": ("native",), "cpu": ("triton",)}
"""Backends of other devices."""
BATCHES = {"cpu": (8,), "cuda": (64,)}
FAST_BATCHES = {"cpu": (8,), "cuda": (64, 128, 256, 512)}
"""The batches measured unless told: of all variants, and of the device's fastest backend, which holds no votes."""


@dataclass(frozen=True)
class Variant:
    """A way to compute: `prepare` gives the network that computes so, with the weights of the one it is given."""

    prepare: Callable[[Network], nn.Module]
    captured: bool = True
    """Whether it is measured as a CUDA graph too, unless told otherwise."""


def by_backend(network: nn.Module, backend: str) -> nn.Module:
    """The network on that backend; its first pass raises where another stands in for it."""
    use_backend(network, backend)
    if backend != REFERENCE:  # which does everything
        for layer in network.modules():
            if isinstance(layer, CapsuleLayer):
                insist(layer, backend)
    return network


def insist(layer: CapsuleLayer, backend: str) -> None:
    """Has the next pass of `layer`, and no other, raise if its votes are not summed by that backend."""

    def check(routing: nn.Module, given: tuple[Votes]) -> None:
        hook.remove()
        (votes,) = given
        if votes.backend != backend:
            weight = next(layer.parameters())
            reason = BACKENDS[backend].refuses(votes.shapes, weight.dtype, weight.device)
            raise QuatcapsError(reason or f"{votes.backend} stood in for it")

    hook = layer.routing.register_forward_pre_hook(check)


def compiled(network: Network) -> nn.Module:
    """`torch.compile` of the reference, for the one size that is measured."""
    torch.compiler.reset()
    by_backend(network, REFERENCE)
    return torch.compile(network, dynamic=False)  # type: ignore[return-value]


VARIANTS: dict[str, Variant] = {name: Variant(partial(by_backend, backend=name)) for name in BACKENDS} | {
    "paper": Variant(as_in_the_paper),
    "compile": Variant(compiled, captured=False),
}


def usual_variants(device: torch.device) -> tuple[str, ...]:
    """The variants measured on a device unless told otherwise."""
    return tuple(name for name in VARIANTS if name not in ELSEWHERE.get(device.type, ()))


def usual_batches(variant: str, device: torch.device) -> tuple[int, ...]:
    """The batches measured unless told otherwise: more for the backend that has the memory and the speed for it."""
    return (FAST_BATCHES if variant == default(device) else BATCHES)[device.type]


def check_variant(name: str) -> None:
    if name not in VARIANTS:
        raise unknown_name("backend", name, VARIANTS)

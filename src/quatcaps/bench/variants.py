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
from quatcaps.layers import ClassCapsules, ConvolutionalCapsules, use_backend
from quatcaps.models import MODELS, Network
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.routing import BACKENDS
from quatcaps.routing.backends import default
from quatcaps.routing.shapes import Shapes

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


def by_backend(network: Network, backend: str) -> nn.Module:
    """The network on that backend; an error where another would stand in for it."""
    if (reason := refusal(network, backend)) is not None:
        raise QuatcapsError(reason)
    return use_backend(network, backend)


def compiled(network: Network) -> nn.Module:
    """`torch.compile` of the reference, for the one size that is measured."""
    torch.compiler.reset()
    by_backend(network, REFERENCE)
    return torch.compile(network, dynamic=False)  # type: ignore[return-value]


VARIANTS: dict[str, Variant] = {name: Variant(partial(by_backend, backend=name)) for name in BACKENDS} | {
    "paper": Variant(as_in_the_paper),
    "compile": Variant(compiled, captured=False),
}


def refusal(network: nn.Module, backend: str) -> str | None:
    """Why a backend cannot compute the layers of `network`, or None."""
    for layer in network.modules():
        if isinstance(layer, ConvolutionalCapsules | ClassCapsules):
            window = layer.window if isinstance(layer, ConvolutionalCapsules) else layer.window_of(1, 1)
            sizes = (1, layer.capsules_in, layer.pose.dims, window.height, window.width)
            shapes = Shapes(*sizes, layer.capsules_out, layer.pose.columns, window, layer.competition)
            weight = next(layer.parameters())
            reason = BACKENDS[backend].refuses(shapes, weight.dtype, weight.device)
            if reason is not None:
                return reason
    return None


def usual_variants(device: torch.device) -> tuple[str, ...]:
    """The variants measured on a device unless told otherwise."""
    return tuple(name for name in VARIANTS if name not in ELSEWHERE.get(device.type, ()))


def usual_batches(variant: str, device: torch.device) -> tuple[int, ...]:
    """The batches measured unless told otherwise: more for the backend that has the memory and the speed for it."""
    return (FAST_BATCHES if variant == default(device) else BATCHES)[device.type]


def check_variant(name: str) -> None:
    if name not in VARIANTS:
        raise unknown_name("backend", name, VARIANTS)


def check_model(name: str) -> None:
    """Raises unless `name` is a capsule network that all variants can compute."""
    known = [known for known, model in MODELS.items() if model.module is CapsuleNetwork]
    if name not in known:
        raise unknown_name("model to measure", name, known)

"""Which backend computes the moments: the one place where that is chosen."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from quatcaps.errors import unknown_name
from quatcaps.routing.soft_moments import fused, lean, native, reference
from quatcaps.routing.soft_moments.moments import SoftMoments

AUTO = "auto"


@dataclass(frozen=True)
class Backend:
    """A way to compute moments.

    `bind(poses, activations, maps, window, competition=…)` takes a layer's children and maps. `refuses` says why it
    cannot, in words that end a sentence, or None if it can.
    """

    bind: Callable[..., SoftMoments]
    refuses: Callable[[Tensor, Tensor, str], str | None]
    instead: str | None = None
    """Who does it where this one cannot."""
    coordinates: bool = False
    """Whether it adds a window's coordinates to the votes."""


BACKENDS: dict[str, Backend] = {
    "reference": Backend(reference.bind, lambda poses, maps, competition: None, coordinates=True),
    "lean": Backend(lean.bind, lean.refuses, instead="reference"),
    "native": Backend(native.bind, native.refuses, instead="lean"),
    "triton": Backend(fused.bind, fused.refuses, instead="lean", coordinates=True),
}


def check(name: str) -> None:
    """Raises unless there is a backend of that name."""
    if name != AUTO and name not in BACKENDS:
        raise unknown_name("routing backend", name, (AUTO, *BACKENDS))


def choose(name: str, poses: Tensor, maps: Tensor, competition: str) -> str:
    """The name of the backend that will run: the one asked for, or the device's own for `auto`, or whoever stands in
    for it; a stand-in is announced once."""
    check(name)
    wanted = chosen = default(poses.device) if name == AUTO else name
    reason = None
    while (refusal := BACKENDS[chosen].refuses(poses, maps, competition)) is not None:
        instead = BACKENDS[chosen].instead
        assert instead is not None
        chosen, reason = instead, reason or refusal
    if reason is not None and not torch.compiler.is_compiling():
        announce(wanted, chosen, reason)
    return chosen


def default(device: torch.device) -> str:
    """The fastest backend of a device, if its inputs allow it."""
    return {"cuda": "triton", "cpu": "native"}.get(device.type, "lean")


@functools.cache
def announce(refused: str, instead: str, reason: str) -> None:
    """Says, once per process, that another backend stands in."""
    warnings.warn(f"routing runs on the {instead} backend: {refused} {reason}", stacklevel=3)

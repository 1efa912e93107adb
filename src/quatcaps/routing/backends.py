"""Which backend computes the moments: the one place where that is chosen."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from quatcaps.errors import BackendWarning, unknown_name
from quatcaps.routing import native, reference, triton
from quatcaps.routing.moments import SummedVotes, limited
from quatcaps.routing.shapes import Shapes

AUTO = "auto"
REFERENCE = "reference"


@dataclass(frozen=True)
class Backend:
    """A way to compute moments.

    `bind(poses, activations, maps, shapes, iterations)` takes a layer's children and maps; `iterations` is how many the
    routing means to run. `refuses` says why it cannot, in words that end a sentence, or None if it can. `within` is
    `limited`, for children as a layer is given them.
    """

    bind: Callable[..., SummedVotes]
    refuses: Callable[[Shapes, torch.dtype, torch.device], str | None]
    within: Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]] = limited


BACKENDS: dict[str, Backend] = {
    REFERENCE: Backend(reference.bind, lambda shapes, dtype, device: None),
    "native": Backend(native.bind, native.refuses),
    "triton": Backend(triton.bind, triton.refuses, triton.within),
}
"""What can compute the sums over votes, by name; `auto` is the fastest of a device."""
IN_PIECES = Backend(reference.bind_in_pieces, lambda shapes, dtype, device: None)
"""The reference where it stands in for a faster one: a few images at a time."""


class Choice(NamedTuple):
    name: str
    backend: Backend


def check(name: str) -> None:
    """Raises unless there is a backend of that name."""
    if name != AUTO and name not in BACKENDS:
        raise unknown_name("routing backend", name, (AUTO, *BACKENDS))


def default(device: torch.device) -> str:
    """The fastest backend of a device, if its inputs allow it."""
    return {"cuda": "triton", "cpu": "native"}.get(device.type, REFERENCE)


def choose(name: str, shapes: Shapes, dtype: torch.dtype, device: torch.device) -> Choice:
    """The backend that will run: the one asked for, or the device's own for `auto`; where it cannot, the reference
    stands in, which is announced. A program that `torch.export` makes is to run without quatcaps: for `auto`, it has
    the reference, whose operators are PyTorch's own."""
    check(name)
    if name == AUTO and torch.compiler.is_exporting():
        return Choice(REFERENCE, BACKENDS[REFERENCE])
    wanted = default(device) if name == AUTO else name
    refusal = BACKENDS[wanted].refuses(shapes, dtype, device)
    if refusal is not None:
        if not torch.compiler.is_compiling():
            announce(f"routing runs on the reference backend, a few images at a time: {wanted} {refusal}")
        return Choice(REFERENCE, IN_PIECES)
    return Choice(wanted, IN_PIECES if name == AUTO and wanted == REFERENCE else BACKENDS[wanted])


_said: set[str] = set()


def announce(words: str) -> None:
    """Warns once per process; a warning that is suppressed has not been said."""
    if words in _said:
        return
    warnings.warn(words, BackendWarning, stacklevel=2)
    if not suppressed(words):
        _said.add(words)


def suppressed(words: str) -> bool:
    """Whether the filters of this moment keep such a warning from being seen."""
    for action, message, category, module, _ in warnings.filters:
        matches = message is None or re.compile(message).match(words)
        if matches and module is None and issubclass(BackendWarning, category):
            return action == "ignore"
    return False

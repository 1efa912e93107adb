"""Networks from files: what a run or a card asks for is bounded before any memory is taken for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from quatcaps.errors import QuatcapsError
from quatcaps.models import build, parameter_count, settings_of

MOST_CHANNELS, MOST_CLASSES, LARGEST_SIDE = 4096, 65_536, 4096
LARGEST_NUMBER = 1_000_000
"""Of the whole numbers among a model's settings, such as its channels."""
MOST_ENTRIES = 1000
"""Of a list among them, such as its blocks."""
MOST_PARAMETERS = 2_000_000_000
REMEDY = "the file is damaged or foreign; use one that quatcaps wrote"


def check_shape(channels: Any, classes: int, size: tuple[Any, ...]) -> None:
    """Raises unless a network can be built for so many channels and classes and images of that height and width."""
    limits = {"channels": (channels, 1, MOST_CHANNELS), "classes": (classes, 2, MOST_CLASSES)}
    limits |= {what: (side, 1, LARGEST_SIDE) for what, side in zip(("height", "width"), size, strict=True)}
    for what, (value, least, most) in limits.items():
        if type(value) is not int or not least <= value <= most:
            raise QuatcapsError(f"{what} = {str(value)[:40]}: a whole number from {least} to {most:,} is needed")


def check_network(name: str, channels: int, classes: int, settings: Mapping[str, Any]) -> int:
    """Raises where a network is larger than any that can be trained; else how many parameters it has.

    Only shapes are computed, on the `meta` device.
    """
    for what, number in numbers(settings_of(name, settings), ""):
        if abs(number) > LARGEST_NUMBER:
            raise QuatcapsError(f"model setting {what} = {str(number)[:40]}: at most {LARGEST_NUMBER:,}; {REMEDY}")
    try:
        with torch.device("meta"):
            count = parameter_count(build(name, channels=channels, classes=classes, seed=0, **settings))
    except QuatcapsError:
        raise
    except (RuntimeError, TypeError, ValueError, ArithmeticError, MemoryError) as error:
        raise QuatcapsError(f"the network {name} cannot be built: {str(error).splitlines()[0][:200]}") from error
    if count > MOST_PARAMETERS:
        raise QuatcapsError(f"the network {name} has {count:,} parameters: at most {MOST_PARAMETERS:,}; {REMEDY}")
    return count


def numbers(value: Any, what: str) -> Iterator[tuple[str, int]]:
    """The whole numbers among settings, with their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, int):
        yield what, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from numbers(item, f"{what}.{name}" if what else str(name))
    elif isinstance(value, tuple | list):
        if len(value) > MOST_ENTRIES:
            raise QuatcapsError(f"model setting {what} has {len(value):,} entries: at most {MOST_ENTRIES:,}; {REMEDY}")
        for item in value:
            yield from numbers(item, what)

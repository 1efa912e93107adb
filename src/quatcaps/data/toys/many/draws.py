"""Chance by name: every property of a kind is a pure function of the kind and the property's name."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

Choice = TypeVar("Choice")

_GOLDEN = 0.6180339887498949
_BITS = 52  # of a number in [0, 1): any float64 holds them exactly

Span = tuple[float, float]


class Draw:
    """The draws for kind number `number` of a category under a seed.

    A draw does not depend on which others were made, nor on their order, and is the same on every platform: it is a
    hash of its name.
    """

    def __init__(self, seed: int, category: str, number: int) -> None:
        self._key = f"toys-many/{seed}/{category}"
        self._number = number

    def share(self, name: str) -> float:
        """Uniform in [0, 1)."""
        return _share(f"{self._key}/{self._number}/{name}")

    def span(self, name: str, low: float, high: float) -> float:
        """Uniform between `low` and `high`."""
        return low + (high - low) * self.share(name)

    def chance(self, name: str, probability: float) -> bool:
        return self.share(name) < probability

    def pick(self, name: str, choices: Sequence[Choice]) -> Choice:
        """One of the choices, all of them equally likely."""
        return choices[int(self.share(name) * len(choices))]

    def plan(self, plans: Sequence[Choice]) -> Choice:
        """The body plan. Numbers that follow each other spread evenly over the plans, by steps of the golden ratio, so
        that a few kinds show all of them."""
        place = (_share(f"{self._key}/plan") + self._number * _GOLDEN) % 1.0
        return plans[int(place * len(plans))]

    def spans(self, ranges: dict[str, Span]) -> dict[str, float]:
        """A draw for each named range."""
        return {name: self.span(name, *limits) for name, limits in ranges.items()}


def _share(name: str) -> float:
    digest = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
    return float((digest >> (64 - _BITS)) / 2**_BITS)

"""Chance by counting: numbers that follow from a key alone, the same on every device and in every order of asking."""

from __future__ import annotations

from torch import Tensor

# The 64-bit finisher of splitmix64, with its factors as signed numbers: PyTorch's int64 wraps around as it needs.
FACTORS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))
STEP = 0x9E3779B97F4A7C15 - 2**64
"""Keys that lie so far apart give independent numbers."""


def mixed(keys: Tensor) -> Tensor:
    """int64 → int64, every bit of the result from every bit of the key."""
    for shift, factor in FACTORS:
        keys = (keys ^ shifted(keys, shift)) * factor
    return keys ^ shifted(keys, 31)


def shifted(values: Tensor, places: int) -> Tensor:
    """To the right, with zeros coming in as if there were no sign."""
    return (values >> places) & (2 ** (64 - places) - 1)


def uniform(keys: Tensor) -> Tensor:
    """float32 in [0, 1), from the upper 24 bits."""
    return shifted(mixed(keys), 40).float() / 2**24


def bell(keys: Tensor) -> Tensor:
    """float32 of mean 0 and deviation 1, nearly normal: the sum of four uniform numbers of 16 bits, within ±3.47."""
    bits = mixed(keys)
    total = (bits & 0xFFFF) + (shifted(bits, 16) & 0xFFFF) + (shifted(bits, 32) & 0xFFFF) + shifted(bits, 48)
    return (total - 2 * 0xFFFF).float() / ((2**32 - 1) / 3) ** 0.5

"""JSON as the standard has it: no NaN, no infinite numbers, and nothing nested without end."""

from __future__ import annotations

import json
import math
from typing import Any

DEEPEST = 64
"""Levels of objects and lists within each other. No file of the library has more than ten."""


def parse(text: str) -> Any:
    """The value of a JSON text; ValueError where it is none.

    >>> parse('{"epochs": [1, 2.5]}')
    {'epochs': [1, 2.5]}
    >>> parse('{"epochs": Infinity}')
    Traceback (most recent call last):
    ValueError: it holds the number Infinity: JSON has finite numbers alone
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from None
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [item for each in level if isinstance(each, dict | list) for item in _items(each)]
        if not level:
            return value
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")


def _items(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> Any:
    raise ValueError(f"it holds the number {text[:20]}: JSON has finite numbers alone")

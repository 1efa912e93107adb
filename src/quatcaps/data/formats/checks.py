"""Values that a file may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from quatcaps.errors import QuatcapsError


def one_of(values: npt.NDArray[np.integer[Any]], allowed: Sequence[int], what: str, name: str) -> None:
    """Raises where one of `values` (N,) is none of those `allowed`: the first such, its position and the limit.

    >>> one_of(np.array([1, 2, 17]), range(10), "label", "train.bin")
    Traceback (most recent call last):
    quatcaps.errors.QuatcapsError: train.bin: label 17 at position 2 is not one of 0 … 9: wrong or damaged file
    """
    wrong = np.flatnonzero(~np.isin(values, np.array(allowed)))
    if wrong.size:
        contiguous = list(allowed) == list(range(allowed[0], allowed[-1] + 1))
        limit = f"{allowed[0]} … {allowed[-1]}" if contiguous else ", ".join(map(str, allowed))
        position = int(wrong[0])
        raise QuatcapsError(
            f"{name}: {what} {values[position]} at position {position} is not one of {limit}: wrong or damaged file"
        )

"""What the runs of one setting have more than those of another: a mean difference and its standard error."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """In percentage points: a mean, and its standard error where there is more than one number."""

    mean: float
    uncertainty: float | None

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + ("" if self.uncertainty is None else f" ± {self.uncertainty:.2f}")


def error_of_mean(values: Sequence[float]) -> float | None:
    """The standard error, s / √n."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """What the first has more than the second with the same seeds, whose runs share images: None without such seeds.

    >>> str(paired({0: 3.0, 1: 5.0, 2: 9.0}, {0: 2.0, 1: 2.0})), paired({0: 1.0}, {1: 1.0})
    ('+2.00 ± 1.00', None)
    """
    differences = [first[seed] - second[seed] for seed in first if seed in second]
    return Difference(statistics.fmean(differences), error_of_mean(differences)) if differences else None


def unpaired(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """The same of runs that share nothing but what they are measured on.

    >>> str(unpaired({0: 1.0, 1: 3.0}, {7: 1.0, 8: 1.0})), unpaired({}, {0: 1.0})
    ('+1.00 ± 1.00', None)
    """
    if not first or not second:
        return None
    one, other = (error_of_mean(list(each.values())) for each in (first, second))
    apart = None if one is None or other is None else math.hypot(one, other)
    return Difference(statistics.fmean(first.values()) - statistics.fmean(second.values()), apart)

"""Intervals of 95% that pictures show, of an error rate, where images are few, and of a mean, where seeds are; and how
many differences are beyond chance when many are looked at."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from quatcaps.training.measure import Rate

Z = 1.959964
T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""Student's quantile for 1, 2, … degrees of freedom."""
FEWEST = 3
"""Seeds that a mean needs for its interval: of two it would be nine deviations wide."""


class Interval(NamedTuple):
    """Where a number lies with 95% confidence."""

    low: float
    high: float


def wilson(rate: Rate) -> Interval:
    """Of an error rate, in %, by Wilson's score: within 0 … 100, and not empty where no image was misclassified.

    It takes images as independent. Images of one toy are not, so that the truth is wider.

    >>> [round(bound, 1) for bound in wilson(Rate(0, 20))]
    [0.0, 16.1]
    """
    share, scale = rate.errors / rate.images, 1 + Z**2 / rate.images
    middle = (share + Z**2 / (2 * rate.images)) / scale
    half = Z / scale * math.sqrt(share * (1 - share) / rate.images + Z**2 / (4 * rate.images**2))
    low = 0.0 if rate.errors == 0 else max(0.0, middle - half)
    high = 1.0 if rate.errors == rate.images else min(1.0, middle + half)
    return Interval(100 * low, 100 * high)


def of_mean(values: Sequence[float]) -> Interval | None:
    """Of the mean of some seeds, by Student's t; None where they are fewer than `FEWEST`.

    >>> [round(bound, 2) for bound in of_mean([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    if len(values) < FEWEST:
        return None
    mean = statistics.fmean(values)
    half = quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean - half, mean + half)


def quantile(freedom: int) -> float:
    """Student's quantile of 97.5%; beyond the table by its expansion in 1 / freedom."""
    if freedom <= len(T):
        return T[freedom - 1]
    return Z + (Z**3 + Z) / (4 * freedom) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * freedom**2)


def chance(deviations: float, freedom: int) -> float:
    """That Student's t is so far from 0 or farther: the finite sums in cos² for whole degrees of freedom (Abramowitz
    and Stegun 26.7.3 and 26.7.4).

    >>> round(chance(2.2622, 9), 4), round(chance(-1.0, 1), 4), chance(math.inf, 4)
    (0.05, 0.5, 0.0)
    """
    angle = math.atan(abs(deviations) / math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for count in range(freedom // 2):
        total += term
        place = 2 * count + 1 + odd
        term *= square * place / (place + 1)
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return min(1.0, max(0.0, 1 - within))


def mcnemar(first: int, second: int) -> float:
    """How likely chance alone splits `first` + `second` images so unevenly, or more, between two networks of which one
    alone misclassifies each of them: the exact binomial test.

    >>> mcnemar(1, 7), mcnemar(0, 0)
    (0.0703125, 1.0)
    """
    count, ways, total = first + second, 1, 0
    for k in range(min(first, second) + 1):
        total += ways
        ways = ways * (count - k) // (k + 1)
    return min(1.0, 2 * total / 2**count)


def by_holm(chances: Sequence[float]) -> list[float]:
    """The same of several differences looked at together, so that the chance of one false verdict among all of them
    stays below 5% if those below 0.05 are believed (S. Holm, 1979).

    >>> by_holm([0.01, 0.04, 0.03]), by_holm([0.5, 0.9])
    ([0.03, 0.06, 0.06], [1.0, 1.0])
    """
    corrected, highest = [0.0] * len(chances), 0.0
    for place, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        highest = min(1.0, max(highest, (len(chances) - place) * chances[index]))
        corrected[index] = highest
    return corrected

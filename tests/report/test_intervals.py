"""Student's t and Holm's correction beside independent implementations."""

from __future__ import annotations

import math

import pytest
from scipy.stats import binomtest, false_discovery_control, t

from quatcaps.report.intervals import by_holm, chance, mcnemar, quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 18, 29, 120])
@pytest.mark.parametrize("deviations", [0.0, 0.3, -1.7, 2.5, 9.0, math.inf])
def test_the_chance_of_a_deviation_is_students(deviations: float, freedom: int) -> None:
    assert chance(deviations, freedom) == pytest.approx(2 * t.sf(abs(deviations), freedom), abs=1e-12)


@pytest.mark.parametrize("freedom", [2, 9, 10, 11, 40])
def test_an_interval_excludes_0_where_the_chance_is_below_5_percent(freedom: int) -> None:
    """Up to what the quantile's expansion leaves out."""
    assert chance(quantile(freedom), freedom) == pytest.approx(0.05, abs=2e-4)


def test_holms_correction_by_its_definition() -> None:
    """Hypotheses are rejected from the least likely on, until one is above its share of 5%."""
    chances = [0.012, 0.2, 0.0001, 0.03, 0.013, 0.9]
    rejected, left = set(), sorted(chances)
    while left and left[0] <= 0.05 / len(left):
        rejected.add(left.pop(0))
    corrected = by_holm(chances)
    assert {each for each, found in zip(chances, corrected, strict=True) if found <= 0.05} == rejected == {0.0001}
    assert by_holm([0.012, 0.0001]) == [0.012, 0.0002]
    assert all(found >= weak for found, weak in zip(corrected, false_discovery_control(chances), strict=True))
    assert by_holm([]) == []


@pytest.mark.parametrize(("first", "second"), [(0, 5), (7, 1), (3, 3), (12, 30), (600, 500), (4000, 6000)])
def test_pairs_by_the_exact_binomial_test(first: int, second: int) -> None:
    assert mcnemar(first, second) == pytest.approx(binomtest(first, first + second).pvalue, rel=1e-9)
    assert mcnemar(0, 0) == 1.0, "nothing differs"

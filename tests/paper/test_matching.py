"""Where runs are compared: by hand, and by property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quatcaps.errors import QuatcapsError
from quatcaps.paper.matching import Match, curve, match, match_familiar, match_training, trend


def log(*errors: tuple[float | None, float | None], training: float = 0.5) -> list[dict]:
    return [
        {"epoch": epoch, "error": training, "test_error": familiar, "novel_error": novel}
        for epoch, (familiar, novel) in enumerate(errors)
    ]


def test_novel_error_is_interpolated_where_the_familiar_error_crosses() -> None:
    found = match_familiar(log((0.20, 0.50), (0.047, 0.16), (0.027, 0.10), (0.01, 0.05)), 3.7)
    assert found.familiar == 3.7
    assert found.novel == pytest.approx(13.0)
    assert (found.epoch, found.reached) == (3, True)


def test_the_first_crossing_counts_even_if_the_error_rises_again() -> None:
    found = match_familiar(log((0.05, 0.20), (0.03, 0.12), (0.06, 0.30), (0.02, 0.08)), 4.0)
    assert found.novel == pytest.approx(16.0)
    assert found.epoch == 2


def test_an_epoch_at_the_reference_is_taken_as_it_is() -> None:
    assert match_familiar(log((0.05, 0.20), (0.04, 0.12)), 4.0).novel == pytest.approx(12.0)


def test_a_first_epoch_below_the_reference_has_nothing_to_interpolate_with() -> None:
    assert match_familiar(log((0.03, 0.12), (0.01, 0.05)), 3.7) == Match(3.0, 12.0, 1, True)


def test_a_run_that_never_gets_there_gives_its_best_and_is_marked() -> None:
    found = match_familiar(log((0.20, 0.50), (0.05, 0.25), (0.06, 0.10)), 3.7)
    assert found == Match(5.0, 25.0, 2, False)


def test_unmeasured_epochs_are_left_out() -> None:
    found = match_familiar(log((0.05, 0.20), (None, None), (0.03, 0.12)), 4.0)
    assert (found.epoch, found.novel) == (3, pytest.approx(16.0))


def test_pooled_takes_the_first_epoch_by_training_error_as_it_is() -> None:
    entries = [
        {"epoch": epoch, "error": error, "novel_error": novel}
        for epoch, (error, novel) in enumerate([(0.2, 0.4), (0.03, 0.11), (0.01, 0.08)])
    ]
    assert match_training(entries, 3.7) == Match(3.0, 11.0, 2, True)
    assert match_training(entries, 0.5) == Match(1.0, 8.0, 3, False)
    assert match(entries, "pooled", 3.7) == match_training(entries, 3.7)


def test_strict_does_not_look_at_training_error() -> None:
    entries = log((0.05, 0.20), (0.03, 0.12), training=0.001)
    assert match(entries, "strict", 4.0) == match_familiar(entries, 4.0)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(QuatcapsError, match="novel_error"):
        match_familiar([{"epoch": 0, "error": 0.1, "test_error": 0.2}], 3.7)


fractions = st.floats(0.0, 1.0)


@given(st.lists(st.tuples(fractions, fractions), min_size=1, max_size=20), st.floats(0.5, 99.5))
def test_the_match_lies_between_neighbours(errors: list[tuple[float, float]], reference: float) -> None:
    entries = log(*errors)
    found, points = match_familiar(entries, reference), curve(entries, "test_error")
    assert found.reached == any(point.familiar <= reference for point in points)
    if found.reached and found.epoch > 1:
        before, after = points[found.epoch - 2 : found.epoch]
        assert before.familiar > reference >= after.familiar
        slack = 1e-9
        assert min(before.novel, after.novel) - slack <= found.novel <= max(before.novel, after.novel) + slack
    if not found.reached:
        assert found.familiar == min(point.familiar for point in points)


def test_the_trend_goes_through_medians_of_neighbours() -> None:
    errors = ((3.0, 9.0), (1.0, 4.0), (2.0, 5.0), (9.0, 8.0), (7.0, 10.0), (8.0, 30.0))
    points = [Match(familiar, novel, 1, False) for familiar, novel in errors]
    assert trend(points, parts=2, fewest=3) == [(2.0, 5.0), (8.0, 10.0)]
    assert trend(points, parts=8, fewest=3) == [(2.0, 5.0), (8.0, 10.0)]
    assert trend(points, parts=8, fewest=7) == []
    assert trend([]) == []

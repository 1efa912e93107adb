"""A budget stops what is done inside it, in training and outside."""

from __future__ import annotations

import math
import signal
import threading
import time

import pytest

from quatcaps.errors import QuatcapsError
from quatcaps.paper import stopping
from quatcaps.paper.stopping import stopping_after
from quatcaps.training.loop import RunInterruptedError
from quatcaps.training.signals import stop_signals

SOON = 0.05 / 60  # minutes


def test_the_training_loops_event_is_set_when_the_time_is_up() -> None:
    with stopping_after(SOON) as deadline, stop_signals() as stopped:
        assert stopped.wait(20)
        assert deadline.passed


def test_a_training_loop_that_begins_too_late_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "SECONDS_BETWEEN", 0.05)
    with stopping_after(SOON) as deadline:
        while not deadline.passed:
            time.sleep(0.01)
        time.sleep(0.1)
        with stop_signals() as stopped:
            assert stopped.wait(20)
            monkeypatch.setattr(stopping, "SECONDS_BETWEEN", 20.0)


def test_a_signal_from_elsewhere_stops_at_once() -> None:
    with stopping_after(10.0), pytest.raises(RunInterruptedError):
        signal.raise_signal(signal.SIGTERM)


def test_no_signal_comes_after_the_end() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping_after(2 / 60) as deadline:  # two seconds: enough to get out of it on a busy machine
        assert not deadline.passed
    assert signal.getsignal(signal.SIGTERM) is before
    while not deadline.passed:
        time.sleep(0.05)
    time.sleep(0.1)


def test_without_a_budget_there_is_no_end() -> None:
    with stopping_after(None) as deadline:
        assert not deadline.passed


def test_off_the_main_thread_only_the_clock_tells() -> None:
    seen = []

    def work() -> None:
        with stopping_after(SOON) as deadline:
            time.sleep(0.1)
            seen.append(deadline.passed)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


@pytest.mark.parametrize("minutes", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_is_above_zero(minutes: float) -> None:
    with pytest.raises(QuatcapsError, match="above 0"), stopping_after(minutes):
        pass


def test_a_budget_may_be_as_long_as_one_likes() -> None:
    with stopping_after(1e300) as deadline:
        assert not deadline.passed

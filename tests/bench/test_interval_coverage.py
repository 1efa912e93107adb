"""`benchmarks/interval_coverage.py`, whose figures docs/evidence.md has."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import interval_coverage as coverage
from quatcaps.files import read_json

ROOT = Path(__file__).parents[2]


def percents(value: dict, of: str, *, few: bool) -> list[float]:
    worlds = [found for name, found in value["worlds"].items() if (name == "a few toys") == few]
    return [each[of]["covered_percent"] for found in worlds for each in found]


def test_the_docs_have_its_figures() -> None:
    value = read_json(coverage.RESULTS, "what was simulated")
    assert value["trials"] == 1000
    differences = percents(value, "difference", few=False) + percents(value, "difference", few=True)
    ends = [differences, percents(value, "mean", few=False), percents(value, "mean", few=True)]
    text = " ".join((ROOT / "docs/evidence.md").read_text(encoding="utf-8").split())
    between = r"([\d.]+) to ([\d.]+)"
    told = re.search(rf"in {between}% of cases, and those of means in {between}, or {between} if a few toys", text)
    assert told is not None
    assert list(map(float, told.groups())) == [end for each in ends for end in (min(each), max(each))]


@pytest.mark.parametrize("number", range(len(coverage.WORLDS)))
def test_both_systems_are_equally_good(number: int) -> None:
    chance = list(coverage.WORLDS.values())[number]
    random = np.random.default_rng(0)
    pairs = [coverage.drawn(chance, 5, random) for _ in range(300)]
    means = np.array([[one.percents.mean() for one in pair] for pair in pairs])
    error = means.std(0) / np.sqrt(len(pairs))
    assert (np.abs(means.mean(0) - coverage.MEAN) < 4 * error).all()


def test_a_small_one_is_shown() -> None:
    value = {"trials": 4, "worlds": {"all alike": [coverage.measured(0, coverage.WORLDS["all alike"], 3, 4)]}}
    (line,) = coverage.table_of(value).rows
    assert line[:2] == ("all alike", "3")
    assert 0 <= float(line[2]) <= 100
    assert float(line[3]) > 0

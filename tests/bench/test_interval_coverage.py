"""`benchmarks/interval_coverage.py`, whose figures docs/evidence.md has."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

import interval_coverage as coverage
from quatcaps.files import read_json
from quatcaps.paper import evidence_statistics

ROOT = Path(__file__).parents[2]
ACTING_TOGETHER = ("mostly cells", "all alike", "a few toys")


OF_IMAGES = ("images, mostly seeds", "images, mostly cells", "images, all alike")


def percents(value: dict, of: str, names: Collection[str]) -> list[float]:
    return [each[of]["covered_percent"] for name in names for each in value["worlds"][name]]


def test_the_docs_have_its_figures() -> None:
    value = read_json(coverage.RESULTS, "what was simulated")
    assert value["trials"] == 1000
    of_toys = value["worlds"].keys() - set(OF_IMAGES)
    differences, means = percents(value, "difference", of_toys), percents(value, "mean", of_toys - {"a few toys"})
    of_images = percents(value, "difference", OF_IMAGES) + percents(value, "mean", OF_IMAGES)
    ends = [differences, means, percents(value, "mean", ["a few toys"]), of_images]
    text = " ".join((ROOT / "docs/evidence.md").read_text(encoding="utf-8").split())
    between = r"([\d.]+) to ([\d.]+)"
    means_told = rf"those of means in {between}, or {between} if a few toys make most errors"
    told = re.search(rf"in {between}% of cases, and {means_told}; .* intervals of images and seeds in {between}%", text)
    assert told is not None
    assert list(map(float, told.groups())) == [end for each in ends for end in (min(each), max(each))]


def test_as_drawn_they_covered_too_much_where_seeds_and_toys_act_together() -> None:
    value = read_json(coverage.RESULTS.with_stem("interval-coverage-as-drawn"), "what was simulated")
    found = [each["difference"]["covered_percent"] for name in ACTING_TOGETHER for each in value["worlds"][name]]
    assert min(found) >= 99, "as the docs say"


def test_as_drawn_counts_them_three_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(coverage, "WORLDS", {"mostly cells": coverage.WORLDS["mostly cells"]})
    monkeypatch.setattr(evidence_statistics, "variance_of_cells", evidence_statistics.variance_of_cells)
    widths = []
    for words in ([], ["--as-drawn"]):
        path = tmp_path / "found.json"
        monkeypatch.setattr("sys.argv", ["interval_coverage.py", "--trials", "2", "--output", str(path), *words])
        coverage.main()
        worlds = read_json(path, "what was simulated")["worlds"]
        widths.append(worlds["mostly cells"][-1]["difference"]["half_width"])
    assert widths[1] > 1.15 * widths[0]


@pytest.mark.parametrize("number", range(len(coverage.WORLDS)))
def test_both_systems_are_equally_good(number: int) -> None:
    world = list(coverage.WORLDS.values())[number]
    random = np.random.default_rng(0)
    pairs = [world.drawn(5, random) for _ in range(300)]
    means = np.array([[one.percents.mean() for one in pair] for pair in pairs])
    error = means.std(0) / np.sqrt(len(pairs))
    assert (np.abs(means.mean(0) - world.mean) < 4 * error).all()


def test_a_small_one_is_shown() -> None:
    value = {"trials": 4, "worlds": {"all alike": [coverage.measured(0, coverage.WORLDS["all alike"], 3, 4)]}}
    (line,) = coverage.table_of(value).rows
    assert line[:2] == ("all alike", "3")
    assert 0 <= float(line[2]) <= 100
    assert float(line[3]) > 0

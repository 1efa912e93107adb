from __future__ import annotations

import pytest
import torch

from quatcaps.bench import data_path
from quatcaps.bench.data_path import BASE, data_cases, measure_data
from quatcaps.bench.precision import TF32

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(data_path.IMAGES, "cpu", 12)
    monkeypatch.setitem(data_path.STEPS, "cpu", 1)
    monkeypatch.setattr(data_path, "WARM_UP", 1)


def test_models_with_settings_and_ratios_to_one_batch() -> None:
    rows = measure_data(data_cases(["qcn-small:pose=free"], [2]), CPU, 2, lambda words: None)
    assert [row.label for row in rows][:2] == [BASE, "images on the device"]
    assert len(rows) == 4
    base = rows[0].timing
    assert base is not None
    for row in rows:
        assert row.timing is not None, row.note
        assert len(row.timing.seconds) == 2
        assert row.time_ratio == pytest.approx(row.timing.median / base.median)
    assert rows[0].to_json()["model"] == "qcn-small:pose=free"


def test_both_ways_of_tf32_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    ways, seen = [TF32(False, False), TF32(True, True)], set()
    usual = data_path.one_round

    def watched(*arguments: object) -> float:
        seen.add(TF32.now())
        return usual(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(data_path, "one_round", watched)
    rows = measure_data(data_cases(["qcn-small"], [2], ways), CPU, 1, lambda words: None)
    assert seen == set(ways)
    assert [row.time_ratio == 1 for row in rows] == 2 * [True, False, False, False]
    assert [row.to_json()["tf32_products"] for row in rows] == 4 * [False] + 4 * [True]


def test_what_cannot_be_measured_says_why() -> None:
    rows = measure_data(data_cases(["qcn:capsules=[[16,40,1]]"], [2]), CPU, 1, lambda words: None)
    assert {row.timing for row in rows} == {None}
    assert "too small" in rows[0].note

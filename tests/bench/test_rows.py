from __future__ import annotations

import json
from dataclasses import replace

import pytest

from quatcaps.bench.failures import OUT_OF_MEMORY, reason
from quatcaps.bench.rows import Case, LayerRow, Row, Timing, with_ratios
from quatcaps.report.benchmarks import benchmark_tables

MIB = 2**20
REFERENCE = Case("qcn", "train", "reference", 64)


def row(seconds: float, peak: int | None, **changes: object) -> Row:
    return Row(replace(REFERENCE, **changes), Timing(1.0, (seconds, seconds, seconds), peak))  # type: ignore[arg-type]


def test_ratios_are_to_the_reference_of_the_same_model_pass_batch_and_launch() -> None:
    rows = with_ratios(
        [
            row(0.4, 100 * MIB),
            row(0.1, 10 * MIB, variant="triton"),
            row(0.2, 80 * MIB, graph=True),
            row(0.02, 8 * MIB, variant="triton", graph=True),
            row(0.1, 10 * MIB, variant="triton", batch=128),
            row(0.1, 10 * MIB, variant="triton", passing="forward"),
            row(0.1, 10 * MIB, variant="triton", model="qcn-small"),
            row(0.8, None, variant="paper"),
            Row(replace(REFERENCE, variant="compile"), note=OUT_OF_MEMORY),
        ]
    )
    assert [found.time_ratio for found in rows] == pytest.approx([1, 0.25, 1, 0.1, None, None, None, 2, None])
    assert [found.memory_ratio for found in rows] == pytest.approx([1, 0.1, 1, 0.1, None, None, None, None, None])


def test_no_ratio_to_a_reference_that_failed() -> None:
    rows = with_ratios([Row(REFERENCE, note=OUT_OF_MEMORY), row(0.1, MIB, variant="native")])
    assert [found.time_ratio for found in rows] == [None, None]


def test_no_memory_ratio_to_a_peak_within_the_noise() -> None:
    rows = with_ratios([row(0.1, MIB), row(0.2, 3 * MIB, variant="native")])
    assert [found.memory_ratio for found in rows] == [None, None]
    assert rows[1].time_ratio == pytest.approx(2)


def test_median_and_percentiles_of_the_counted_steps() -> None:
    found = Row(REFERENCE, Timing(9.0, tuple(number / 10 for number in range(11)), 3 * MIB, 4 * MIB)).to_json()
    assert found["seconds"] == pytest.approx(0.5)
    assert (found["seconds_p10"], found["seconds_p90"]) == pytest.approx((0.1, 0.9))
    assert found["images_per_second"] == pytest.approx(128)
    assert (found["steps"], found["first_seconds"]) == (11, 9.0)
    assert (found["peak_bytes"], found["peak_reserved_bytes"]) == (3 * MIB, 4 * MIB)


def test_a_row_has_the_same_fields_whether_measured_or_not() -> None:
    measured, failed = row(0.1, MIB).to_json(), Row(REFERENCE, note=OUT_OF_MEMORY).to_json()
    assert measured.keys() == failed.keys()
    assert failed["seconds"] is None
    assert json.loads(json.dumps(failed))["note"] == "out of memory"


def test_tables_show_ratios_failures_and_launches() -> None:
    rows = with_ratios(
        [
            row(0.4, 100 * MIB),
            row(0.4, 100 * MIB, graph=True),
            row(0.01, 5 * MIB, variant="triton", graph=True),
            Row(replace(REFERENCE, variant="paper"), note=OUT_OF_MEMORY),
            row(0.2, 50 * MIB, passing="forward"),
        ]
    )
    training, forward = benchmark_tables(rows)
    assert training.title == "qcn: training step, forward to optimiser"
    lines = [dict(zip(training.columns, cells, strict=True)) for cells in training.rows]
    assert [line["graph"] for line in lines] == ["no", "yes", "yes", "no"]
    assert lines[2]["time (×)"] == "0.025"
    assert lines[2]["memory (×)"] == "0.050"
    assert lines[2]["images/s"] == "6,400"
    assert (lines[3]["computed by"], lines[3]["ms"], lines[3]["note"]) == ("paper 4×4", "–", "out of memory")
    assert not {"graph", "note", "held (MiB)"} & set(forward.columns), "columns that say nothing are left out"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), OUT_OF_MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), OUT_OF_MEMORY),
        (RuntimeError("CUDA out of memory. Tried to allocate 9 GiB"), OUT_OF_MEMORY),
        (RuntimeError("\n  no compiler found \nmore"), "RuntimeError: no compiler found"),
        (KeyError(), "KeyError"),
    ],
)
def test_reasons_are_a_few_words(error: Exception, words: str) -> None:
    assert reason(error) == words


def test_a_failed_capture_does_not_hide_what_made_it_fail() -> None:
    error = RuntimeError("operation failed due to a previous error during capture")
    error.__context__ = RuntimeError("CUDA out of memory")
    assert reason(error) == OUT_OF_MEMORY
    error.__context__ = RuntimeError("operation not permitted when stream is capturing")
    assert reason(error) == "RuntimeError: operation not permitted when stream is capturing"


def test_long_reasons_are_cut() -> None:
    assert len(reason(ValueError("x" * 1000))) == 160


def test_layer_rows_know_which_size_varies() -> None:
    import torch

    from quatcaps.bench.plan import Plan

    layers = Plan().layers(torch.device("cpu"))
    for axis in ("children", "parents", "positions"):
        varied = [layer for layer in layers if layer.axis == axis]
        assert len({layer.size for layer in varied}) >= 5
        others = {name: {LayerRow(layer).to_json()[name] for layer in varied} for name in ("children", "parents")}
        others["positions"] = {layer.side**2 for layer in varied}
        assert {name for name, sizes in others.items() if len(sizes) > 1} == {axis}

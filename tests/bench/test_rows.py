from __future__ import annotations

import json
from dataclasses import replace

import pytest

from quatcaps.bench.cases import Case, Layer, SizedNetwork
from quatcaps.bench.failures import OUT_OF_MEMORY, reason
from quatcaps.bench.precision import TF32
from quatcaps.bench.rows import Results, Row, ScalingRow, Timing, with_ratios
from quatcaps.bench.tables import benchmark_tables, remarks, scaling_tables

MIB = 2**20
REFERENCE = Case("qcn", "train", "reference", 64)
ON, OFF, DEFAULT = TF32(True, True), TF32(False, False), TF32(True, False)


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


def test_ratios_compare_rows_of_the_same_tf32() -> None:
    rows = [row(0.4, None, tf32=OFF), row(0.2, None, tf32=ON)]
    rows += [row(0.1, None, tf32=tf32, variant="triton") for tf32 in (OFF, ON, DEFAULT)]
    assert [found.time_ratio for found in with_ratios(rows)] == pytest.approx([1, 1, 0.25, 0.5, None])
    rows += [row(0.3, None, tf32=OFF, variant="triton", model="em")]
    assert [found.against_ratio for found in with_ratios(rows, "em")] == pytest.approx(
        [None, None, 1 / 3, None, None, 1]
    )


def test_time_against_another_model_of_the_same_pass_variant_batch_and_launch() -> None:
    rows = with_ratios(
        [
            row(0.3, None),
            row(0.2, None, graph=True),
            row(0.1, None, variant="triton"),
            row(0.1, None, passing="forward"),
            row(0.6, None, batch=128),
            row(0.2, None, model="em"),
            row(0.1, None, model="em", graph=True),
            Row(replace(REFERENCE, model="em", batch=128), note=OUT_OF_MEMORY),
        ],
        "em",
    )
    assert [found.against_ratio for found in rows] == pytest.approx([1.5, 2, None, None, None, 1, 1, None])
    assert {found.to_json()["against"] for found in rows} == {"em"}
    training, forward = benchmark_tables(rows)
    assert training.title == "training step, forward to optimiser; against em"
    lines = [dict(zip(training.columns, cells, strict=True)) for cells in training.rows]
    assert [line["model"] for line in lines] == ["qcn", "qcn", "qcn", "qcn", "em", "em", "em"]
    assert [line["against (×)"] for line in lines] == ["1.50", "2.00", "–", "–", "1.00", "1.00", "–"]
    assert "against (×)" not in forward.columns, "nothing would stand in it"


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
    assert not {"graph", "note", "TF32"} & set(forward.columns), "columns that say nothing are left out"


def test_what_is_the_same_in_all_rows_is_no_column() -> None:
    (table,) = benchmark_tables([row(0.4, None, graph=True, tf32=ON), row(0.1, None, graph=True, tf32=ON, batch=128)])
    assert not {"graph", "TF32"} & set(table.columns)
    assert table.title == "qcn: training step, forward to optimiser, captured as one graph"
    (table,) = benchmark_tables([row(0.4, None, tf32=OFF), row(0.1, None, tf32=ON)])
    place = table.columns.index("TF32")
    assert [cells[place] for cells in table.rows] == ["no", "yes"]


@pytest.mark.parametrize(
    ("ways", "words"),
    [
        ((DEFAULT,), "TF32 was allowed in convolutions, not in matrix products"),
        ((ON,), "TF32 was allowed in convolutions and matrix products"),
        ((OFF,), "TF32 was allowed nowhere"),
        ((TF32(False, True),), "TF32 was allowed in matrix products, not in convolutions"),
        ((OFF, ON), "TF32: no: allowed nowhere; yes: allowed in convolutions and matrix products"),
        ((None,), "TF32: a CPU has none"),
    ],
)
def test_a_remark_and_every_row_say_where_tf32_was_allowed(ways: tuple[TF32 | None, ...], words: str) -> None:
    rows = [row(0.4, None, tf32=tf32) for tf32 in ways]
    assert words in remarks(Results({"device": "cuda", "cold": False}, rows))
    fields = [(found.to_json()["tf32_convolutions"], found.to_json()["tf32_products"]) for found in rows]
    assert fields == [(None, None) if tf32 is None else tuple(tf32) for tf32 in ways]


def test_a_remark_has_the_largest_spread() -> None:
    steady, moving = (Timing(1.0, tuple(0.1 + step * number for number in range(11))) for step in (0, 0.01))
    rows = [Row(REFERENCE, steady), Row(replace(REFERENCE, batch=8), moving), Row(REFERENCE, note=OUT_OF_MEMORY)]
    lines = remarks(Results({"device": "cpu"}, rows))
    words = "at most 53% of the median apart (qcn, train, batch 8, reference)"
    assert [line.endswith(words) for line in lines if "percentile" in line] == [True]


def test_remarks_have_the_longest_first_step_of_each_variant() -> None:
    rows = [
        Row(replace(REFERENCE, variant="triton", graph=graph), Timing(first, (0.1,)))
        for graph, first in ((False, 12.34), (True, 0.2))
    ]
    rows += [row(0.4, None), row(0.4, None, passing="forward")]
    rows += [Row(replace(REFERENCE, variant="paper"), note=OUT_OF_MEMORY)]
    lines = remarks(Results({"device": "cuda", "cold": True}, rows))
    assert "qcn, first training step: triton 12.3 s; reference 1.00 s" in lines
    assert "qcn, first forward pass: reference 1.00 s" in lines
    assert "first steps compile their kernels" in lines
    assert any("--cold" in line for line in remarks(Results({"device": "cuda", "cold": False}, rows)))
    assert not any("compile" in line for line in remarks(Results({"device": "cpu", "cold": False}, rows)))


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
        others = {name: {ScalingRow(layer).to_json()[name] for layer in varied} for name in ("children", "parents")}
        others["positions"] = {layer.side**2 for layer in varied}
        assert {name for name, sizes in others.items() if len(sizes) > 1} == {axis}


def test_layers_and_networks_by_size_have_tables_of_their_own() -> None:
    layer = ScalingRow(Layer("parents", "triton", 64, 5, 16, 8, 6, True), Timing(1.0, (0.002,), 3 * MIB))
    case = replace(REFERENCE, model="qcn:pose=free", variant="triton", graph=True, side=224)
    network = ScalingRow(SizedNetwork("side", case), note=OUT_OF_MEMORY)
    many = ScalingRow(SizedNetwork("classes", replace(case, side=32, classes=1000)), Timing(1.0, (0.02,), 40 * MIB))
    of_layer, of_networks = scaling_tables([layer, network, many])
    assert of_layer.title == "one routing layer: forward and backward, 5×5 kernel, batch 64, captured as one graph"
    assert of_networks.title == "qcn:pose=free: training step, batch 64, captured as one graph"
    assert of_networks.columns == ("varied", "size", "fixed", "backend", "ms", "peak (MiB)", "note")
    assert of_networks.rows == (
        ("side", "224", "5 classes", "triton", "–", "–", "out of memory"),
        ("classes", "1,000", "images of 32×32", "triton", "20.0", "40", ""),
    )
    found = many.to_json()
    assert (found["axis"], found["size"], found["side"], found["classes"]) == ("classes", 1000, 32, 1000)
    assert (found["model"], found["pass"], found["first_seconds"]) == ("qcn:pose=free", "train", 1.0)
    assert network.to_json().keys() == found.keys()
    assert layer.to_json()["positions"] == 36

from __future__ import annotations

import json
import signal
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from quatcaps import accelerator
from quatcaps.bench import measure, processes, steps
from quatcaps.bench.cases import Case, Layer, SizedNetwork
from quatcaps.bench.failures import reason
from quatcaps.bench.figures import scaling_figure, throughput_figure
from quatcaps.bench.gpu import CudaClock
from quatcaps.bench.measure import measure_networks, measure_scaling
from quatcaps.bench.precision import TF32
from quatcaps.bench.rows import Results, Row, ScalingRow, Timing
from quatcaps.bench.tables import SEE_BELOW, benchmark_tables, remarks
from quatcaps.bench.variants import VARIANTS, Variant, by_backend
from quatcaps.errors import BackendWarning, QuatcapsError
from quatcaps.layers import ConvolutionalCapsules
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.report.styles import VERMILLION
from quatcaps.routing import backends, native

CPU = torch.device("cpu")
SMALL = ("--model", "qcn-small", "--device", "cpu", "--batch", "2", "--steps", "2")
FIELDS = {
    "model",
    "pass",
    "variant",
    "batch",
    "graph",
    "precision",
    "tf32_convolutions",
    "tf32_products",
    "side",
    "classes",
    "steps",
    "seconds",
    "seconds_p10",
    "seconds_p90",
    "first_seconds",
    "peak_bytes",
    "peak_reserved_bytes",
    "images_per_second",
    "time_ratio",
    "memory_ratio",
    "against",
    "against_ratio",
    "note",
}


class Quiet:
    def doing(self, words: str) -> None: ...

    def done(self, row: Row | ScalingRow) -> None: ...


class HereWorker(processes.Worker):
    """Does in this process what a worker does in its own."""

    def __init__(self, case: Case) -> None:
        self.case, self.times, self.note = case, [], ""

    def __enter__(self) -> HereWorker:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def ask(self, request: str) -> object:
        if request == processes.STOP:
            return 1000
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return processes.seconds(steps.network_step(self.case, CPU))
        except Exception as error:
            return reason(error)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "Worker", HereWorker)


def test_the_command_leaves_numbers_and_picture(tmp_path: Path, command: Callable) -> None:
    chosen = ("--backend", "reference", "--backend", "paper", "--pass", "train", "--machine", "mine")
    outcome = command("bench", *SMALL, *chosen, "--output", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "paper 4×4" in outcome.out
    found = json.loads((tmp_path / "bench.json").read_text())
    assert (found["machine"], found["device"], found["format"]) == ("mine", "cpu", 1)
    assert found["versions"]["torch"] == torch.__version__
    assert {"python", "quatcaps", "triton", "cuda", "gpu"} < found["versions"].keys()
    assert found["flags"]["cudnn_deterministic"] is True
    assert found["threads"] == torch.get_num_threads()
    assert found["date"].endswith("Z")
    assert [row["variant"] for row in found["rows"]] == ["reference", "paper 4×4"]
    for row in found["rows"]:
        assert set(row) == FIELDS
        assert row["seconds_p10"] <= row["seconds"] <= row["seconds_p90"]
        assert row["images_per_second"] == pytest.approx(2 / row["seconds"])
        assert row["peak_bytes"] >= 0
    assert found["rows"][1]["time_ratio"] == pytest.approx(found["rows"][1]["seconds"] / found["rows"][0]["seconds"])
    assert found["scaling"] == []
    with Image.open(tmp_path / "bench.png") as picture:
        assert picture.width > 150
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.json", "bench.png"]


@pytest.mark.usefixtures("here")
def test_out_of_memory_is_a_row(tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(network: object) -> object:
        raise RuntimeError("CUDA out of memory. Tried to allocate 9 GiB")

    monkeypatch.setitem(VARIANTS, "paper", Variant(exhausted))  # type: ignore[arg-type]
    chosen = ("--backend", "paper", "--backend", "reference", "--pass", "forward")
    outcome = command("bench", *SMALL, *chosen, "--output", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "out of memory" in outcome.out
    paper, reference = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert (paper["note"], paper["seconds"], paper["time_ratio"]) == ("out of memory", None, None)
    assert reference["time_ratio"] == 1
    outcome = command("bench", *SMALL, "--backend", "paper", "--output", tmp_path / "none")
    assert outcome.code == 1
    assert outcome.err == "error: nothing could be measured; paper 4×4: out of memory\n"


def test_on_a_gpu_what_fails_is_a_row_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(CudaClock):
        def __init__(self, device: torch.device) -> None: ...

        def measure(self, make: object, steps: int, *, graph: bool, tf32: TF32 | None, ahead: bool) -> Timing:
            ways.append(tf32)
            if graph:
                raise torch.OutOfMemoryError("Tried to allocate 9 GiB")
            return Timing(1.0, (0.5,) * steps, 10, 20)

    ways: list[TF32 | None] = []
    monkeypatch.setattr(measure, "CudaClock", Clock)
    cases = [Case("qcn", "train", "reference", 4, graph, TF32(graph, False)) for graph in (True, False)]
    failed, measured = measure_networks(cases, torch.device("cuda"), 3, Quiet())
    assert (failed.timing, failed.note) == (None, "out of memory")
    assert measured.time_ratio == 1
    sized = [SizedNetwork("side", cases[0]), SizedNetwork("side", cases[1])]
    failed_row, measured_row = measure_scaling(sized, torch.device("cuda"), 3, Quiet())
    assert (failed_row.timing, failed_row.note) == (None, "out of memory")
    assert measured_row.timing is not None
    assert ways == 2 * [TF32(True, False), TF32(False, False)]


def test_unknown_backend_is_one_line_and_leaves_nothing(tmp_path: Path, command: Callable) -> None:
    outcome = command("bench", *SMALL, "--backend", "nativ", "--output", tmp_path / "bench")
    assert outcome.code == 1
    assert outcome.err.startswith("error: unknown backend 'nativ': did you mean 'native'?")
    assert not (tmp_path / "bench").exists()


@pytest.mark.usefixtures("here")
def test_a_backend_that_the_device_lacks_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    accelerator._unavailable.cache_clear()
    (row,) = measure_networks([Case("qcn-small", "forward", "triton", 2)], CPU, 1, Quiet())
    accelerator._unavailable.cache_clear()
    assert row.timing is None
    assert row.note.startswith("needs")
    assert remarks(Results({"device": "cpu"}, [row, row]))[0] == f"triton: {row.note}"
    (table,) = benchmark_tables([row])
    assert table.rows == (("triton", "2", SEE_BELOW),), "a long reason stands under the table"


@pytest.mark.usefixtures("here")
def test_interrupt_leaves_no_file(tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(HereWorker, "ask", interrupted)
    outcome = command("bench", *SMALL, "--output", tmp_path)
    assert outcome.code == 130
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_is_killed_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = processes.Worker(Case("qcn-small", "forward", "reference", 1))
    with worker:
        worker.process.kill()
        worker.process.join()
        worker.step()
        worker.step()
        row = worker.finish()
    assert row.timing is None
    assert "killed, most often for being out of memory" in row.note
    assert f"exit code {-signal.SIGKILL}" in row.note


def test_peak_counts_memory_that_is_free_again() -> None:
    before = processes.start_of_peak()
    # More than other tests may have left free in this process.
    assert torch.ones(128 * 2**20).sum() == 128 * 2**20
    assert 400 * 2**20 < processes.peak() - before < 700 * 2**20


@pytest.mark.parametrize("variant", ["reference", "native", "paper"])
def test_a_training_step_changes_weights_and_a_forward_pass_does_not(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, networks = VARIANTS[variant], []

    def prepare(network: CapsuleNetwork) -> torch.nn.Module:
        networks.append(usual.prepare(network))
        return networks[-1]

    monkeypatch.setitem(VARIANTS, variant, Variant(prepare))
    for passing, changed in (("train", True), ("forward", False)):
        step = steps.network_step(Case("qcn-small", passing, variant, 2), CPU)
        before = [parameter.clone() for parameter in networks[-1].parameters()]
        step()
        after = list(networks[-1].parameters())
        assert any(not torch.equal(*pair) for pair in zip(before, after, strict=True)) == changed
        assert networks[-1].training == changed


def test_layers_of_growing_size(tmp_path: Path) -> None:
    layers = [Layer("parents", "reference", 1, 3, 2, parents, 2) for parents in (1, 2, 4)]
    layers.append(Layer("children", "reference", 1, 3, 0, 2, 2))
    rows = measure_scaling(layers, CPU, 2, Quiet())
    assert [row.to_json()["size"] for row in rows] == [1, 2, 4, 0]
    assert all(row.timing and len(row.timing.seconds) == 2 for row in rows[:3])
    assert rows[3].note == "0 child capsules: at least 1 is needed"
    scaling_figure(rows, "machine", tmp_path / "scaling.png")
    with Image.open(tmp_path / "scaling.png") as picture:
        assert picture.width > 150


def test_picture_of_several_batches_and_of_graphs(tmp_path: Path) -> None:
    rows = [
        Row(Case("qcn", "train", variant, batch, graph), Timing(1.0, (batch / speed / (1 + graph),)))
        for variant, speed, batches in (("reference", 900, (64,)), ("triton", 9000, (64, 128)))
        for batch in batches
        for graph in (False, True)
    ]
    rows.append(Row(Case("qcn", "train", "paper", 64), note="out of memory"))
    throughput_figure(rows, "a $machine$", tmp_path / "bench.png")
    with Image.open(tmp_path / "bench.png") as picture:
        assert picture.height > 100
    with pytest.raises(QuatcapsError, match="nothing to draw"):
        throughput_figure(rows[-1:], "", tmp_path / "none.png")


def test_variants_have_one_colour_and_panels_one_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr("quatcaps.bench.figures.save", lambda figure, path: drawn.append(figure))
    rows = [
        Row(Case("qcn", passing, variant, 8), Timing(1.0, (seconds,)))
        for variant, seconds in (("native", 0.1), ("triton", 0.01))
        for passing in ("train", "forward")
    ]
    throughput_figure(rows, "a machine, with a name that has no room on a single line of so narrow a picture", tmp_path)
    layers = [
        ScalingRow(Layer(axis, "triton", 1, 3, size, 2, 2), Timing(1.0, (size / 100,)))
        for axis, sizes in (("children", (1, 2)), ("parents", (3, 8)))
        for size in sizes
    ]
    scaling_figure(layers, "machine", tmp_path)
    train, forward = drawn[0].axes
    assert train.get_xlim() == forward.get_xlim()
    assert "\n" in drawn[0].get_suptitle()
    children, parents = drawn[1].axes
    assert children.get_ylim() == parents.get_ylim()
    assert train.lines[3].get_color() == children.lines[1].get_color() == VERMILLION


@pytest.mark.usefixtures("here")
def test_a_backend_that_another_stands_in_for_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poses too long for native: the reference's time is not native's."""
    monkeypatch.setattr(backends, "_said", set())
    monkeypatch.setattr(native, "MOST_DIMS", 2)
    layer = ConvolutionalCapsules(2, 2, 3)
    by_backend(layer, "native")
    poses, activations = torch.randn(1, 2, 3, 5, 5), torch.rand(1, 2, 5, 5)
    with pytest.warns(BackendWarning), pytest.raises(QuatcapsError, match="at most 2 numbers"):
        layer(poses, activations)


def test_a_backend_that_computes_is_asked_once() -> None:
    layer = ConvolutionalCapsules(2, 2, 3)
    by_backend(layer, "native")
    assert layer.routing._forward_pre_hooks
    layer(torch.randn(1, 2, 3, 5, 5), torch.rand(1, 2, 5, 5))
    assert layer.backend == "native"
    assert not layer.routing._forward_pre_hooks, "counted steps are as in training"


@pytest.mark.usefixtures("here")
def test_the_papers_formulation_of_other_poses_says_so() -> None:
    (row,) = measure_networks([Case("qcn-small:pose=free", "forward", "paper", 1)], CPU, 1, Quiet())
    assert row.note == "turns quaternions, not poses of the kind 'free'"


def test_images_and_classes_are_those_of_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Size] = []

    class Seen(torch.nn.Module):
        def __init__(self, network: CapsuleNetwork) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: torch.Tensor) -> object:
            output = self.network(images)
            seen.extend((images.shape, output.activations.shape))
            return output

    monkeypatch.setitem(VARIANTS, "reference", Variant(Seen))
    case = Case("qcn-small:primary=4", "train", "reference", 2, side=48, classes=7)
    steps.network_step(case, CPU)()
    assert seen == [(2, 2, 48, 48), (2, 7)]


@pytest.mark.usefixtures("here")
def test_networks_by_size_on_a_cpu(tmp_path: Path) -> None:
    case = Case("qcn-small", "train", "reference", 1)
    sized = [SizedNetwork("classes", replace(case, classes=classes)) for classes in (2, 20)]
    sized += [SizedNetwork("side", replace(case, side=side)) for side in (32, 4)]
    rows = measure_scaling(sized, CPU, 1, Quiet())
    assert [row.timing is not None for row in rows] == [True, True, True, False]
    assert all(row.timing and row.timing.peak == 1000 for row in rows[:3])
    assert "too small" in rows[3].note
    scaling_figure(rows, "machine", tmp_path / "scaling.png")
    with Image.open(tmp_path / "scaling.png") as picture:
        assert picture.height > 2 * 100, "a panel for each size"
    with pytest.raises(QuatcapsError, match="nothing to draw"):
        scaling_figure(rows[3:], "", tmp_path / "none.png")


def test_models_held_against_one_take_turns() -> None:
    cases = [Case(model, "train", variant, 1) for model in ("em", "qcn") for variant in ("reference", "native")]
    assert measure.those_that_take_turns(cases, models=False) == [cases[:2], cases[2:]]
    assert measure.those_that_take_turns(cases, models=True) == [cases]


@pytest.mark.usefixtures("here")
def test_the_command_measures_models_with_settings_against_one(tmp_path: Path, command: Callable) -> None:
    chosen = ("--model", "qcn-small:pose=free", "--against", "qcn-small", "--backend", "reference", "--pass", "forward")
    outcome = command("bench", *chosen, "--device", "cpu", "--batch", "1", "--steps", "2", "--output", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "qcn-small:pose=free" in outcome.out
    assert "TF32: a CPU has none" in outcome.out
    assert "qcn-small, first forward pass: reference" in outcome.out
    free, small = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert (free["model"], small["model"]) == ("qcn-small:pose=free", "qcn-small")
    assert free["against_ratio"] == pytest.approx(free["seconds"] / small["seconds"])
    assert (free["tf32_convolutions"], free["tf32_products"]) == (None, None)


def test_picture_of_both_ways_of_tf32(tmp_path: Path) -> None:
    ways = (TF32(False, False), TF32(True, True))
    rows = [Row(Case("qcn", "train", "triton", 64, tf32=tf32), Timing(1.0, (0.01,))) for tf32 in ways]
    heights = []
    for shown in (rows, rows[:1]):
        throughput_figure(shown, "machine", tmp_path / "bench.png")
        with Image.open(tmp_path / "bench.png") as picture:
            heights.append(picture.height)
    assert heights[0] > heights[1], "each has a line of its own"

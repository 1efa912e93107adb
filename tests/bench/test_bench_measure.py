from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from quatcaps import accelerator
from quatcaps.bench import measure, processes, steps
from quatcaps.bench.failures import reason
from quatcaps.bench.measure import measure_layers, measure_networks
from quatcaps.bench.rows import Case, Layer, LayerRow, Row, Timing
from quatcaps.bench.variants import VARIANTS, Variant
from quatcaps.errors import QuatcapsError
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.report.benchmarks import SEE_BELOW, benchmark_tables, remarks, scaling_figure, throughput_figure

CPU = torch.device("cpu")
SMALL = ("--model", "qcn-small", "--device", "cpu", "--batch", "2", "--steps", "2")
FIELDS = {
    "model",
    "pass",
    "variant",
    "batch",
    "graph",
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
    "note",
}


class Quiet:
    def doing(self, words: str) -> None: ...

    def done(self, row: Row | LayerRow) -> None: ...


class HereWorker(processes.Worker):
    """Does in this process what a worker does in its own."""

    def __init__(self, case: Case) -> None:
        self.case, self.times, self.note = case, [], ""

    def __enter__(self) -> HereWorker:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def ask(self, request: str) -> object:
        try:
            step = steps.network_step(self.case, CPU)
        except Exception as error:
            return reason(error)
        return processes.seconds(step) if request == processes.STEP else 1000


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
        assert picture.width > 600
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
    class Clock:
        def __init__(self, device: torch.device) -> None: ...

        def measure(self, make: object, steps: int, *, graph: bool) -> Timing:
            if graph:
                raise torch.OutOfMemoryError("Tried to allocate 9 GiB")
            return Timing(1.0, (0.5,) * steps, 10, 20)

    monkeypatch.setattr(measure, "CudaClock", Clock)
    cases = [Case("qcn", "train", "reference", 4, graph) for graph in (True, False)]
    failed, measured = measure_networks(cases, torch.device("cuda"), 3, Quiet())
    assert (failed.timing, failed.note) == (None, "out of memory")
    assert measured.time_ratio == 1


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
    assert remarks([row, row]) == [f"triton: {row.note}"]
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
    rows = measure_layers(layers, CPU, 2, Quiet())
    assert [row.to_json()["size"] for row in rows] == [1, 2, 4, 0]
    assert all(row.timing and len(row.timing.seconds) == 2 for row in rows[:3])
    assert rows[3].note == "0 child capsules: at least 1 is needed"
    scaling_figure(rows, "machine", tmp_path / "scaling.png")
    with Image.open(tmp_path / "scaling.png") as picture:
        assert picture.width > 600


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
        assert picture.height > 400
    with pytest.raises(QuatcapsError, match="nothing to draw"):
        throughput_figure(rows[-1:], "", tmp_path / "none.png")

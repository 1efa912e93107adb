"""Training on a GPU: the captured step, and numbers that are not finite."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from quatcaps.bench.cases import Case
from quatcaps.bench.kernels import GRADIENT, GROUPS, NORMALISATION, plain
from quatcaps.bench.timeline import measure_timeline
from quatcaps.data.batches import TrainingBatches
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.models import build
from quatcaps.paper.timed import warm_up
from quatcaps.pipelines import PIPELINES, Pipeline
from quatcaps.training import predictions
from quatcaps.training.config import PRECISIONS, TrainingConfig
from quatcaps.training.health import NonFiniteError
from quatcaps.training.log import read_log
from quatcaps.training.loop import Trainer
from quatcaps.training.predictions import Predictor
from quatcaps.training.processes import Processes
from quatcaps.training.run import create_run
from quatcaps.training.step import STEPS_BEFORE_CAPTURE, TrainingStep

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CONFIG = TrainingConfig(
    dataset="noise", model="qcn-small", crop=28, image_size=32, epochs=4, batch=16, log_every=1, device="cuda"
)


class Silent:
    def step(self, *values: object) -> None: ...

    def epoch(self, *values: object) -> None: ...


def trainer(images: ImageSet, folder: Path, **changes: object) -> Trainer:
    return Trainer(create_run(folder, CONFIG.changed(changes), images), Experiment(images, {"test": images}))


@pytest.mark.parametrize(
    "changes", [*({"precision": precision} for precision in PRECISIONS), {"loss": "cross-entropy", "mixup": 0.5}]
)
def test_the_same_losses_with_and_without_a_graph(
    changes: dict[str, object], noise_images: ImageSet, tmp_path: Path
) -> None:
    runs = {graph: trainer(noise_images, tmp_path / str(graph), cuda_graph=graph, **changes) for graph in (True, False)}
    for run in runs.values():
        run.train(Silent())
    assert runs[True].step.graph is not None
    assert runs[False].step.graph is None
    logs = [[r["loss"] for r in read_log(tmp_path / str(graph) / "log.jsonl")] for graph in runs]
    assert logs[0] == logs[1]
    for one, other in zip(runs[True].network.parameters(), runs[False].network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_throw_away_start_captures_and_changes_nothing(noise_images: ImageSet, tmp_path: Path) -> None:
    changes = {"batch": 8, "averaging": 0.99}  # eight steps in an epoch, four of them before the capture and at it
    trained = []
    for number, thrown_away in enumerate((False, True)):
        folder = tmp_path / str(number)
        if thrown_away:
            assert warm_up(CONFIG.changed(changes), Experiment(noise_images, {}), folder) > STEPS_BEFORE_CAPTURE + 1
            assert not folder.exists()
        trained.append(trainer(noise_images, folder, **changes))
        trained[-1].train(Silent())
    for one, other in zip(*(each.network.parameters() for each in trained), strict=True):
        assert torch.equal(one, other)


def test_measurements_by_graphs_find_what_the_network_says(
    noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between epochs the weights change in their place, and a graph reads them anew."""
    monkeypatch.setattr(predictions, "LARGEST_BATCH", 16)
    run = trainer(noise_images, tmp_path, averaging=0.9)
    run.train(Silent())
    assert sorted(len(graph.pixels) for graph in run.measuring.predictor.graphs.values() if graph) == [12, 16]
    by_graph = run.measuring.predictor(noise_images)
    plain = Predictor(run.kept, run.config, run.device, capture=False)(noise_images)
    assert torch.equal(by_graph.activations, plain.activations)
    assert by_graph.poses is not None
    assert plain.poses is not None
    assert torch.equal(by_graph.poses, plain.poses)


def test_a_step_that_tells_other_processes_is_captured() -> None:
    """By NCCL, in a group of one: what is sent in the graph arrives."""
    images, labels = torch.rand(16, 2, 28, 28, device="cuda"), torch.arange(16, device="cuda") % 3
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    found = []
    try:
        group = dist.new_group(backend="nccl")
        for graph in (True, False):
            network = build("qcn-small", channels=2, classes=3, seed=0).cuda()
            step = TrainingStep(
                network, CONFIG.changed({"cuda_graph": graph}), torch.device("cuda"), Processes(group=group)
            )
            with torch.backends.cudnn.flags(enabled=True, deterministic=True):
                for number in range(STEPS_BEFORE_CAPTURE + 4):
                    step(images, labels, 1e-3, number)
            assert (step.graph is not None) == graph
            found.append([parameter.clone() for parameter in network.parameters()])
    finally:
        dist.destroy_process_group()
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("graph", [False, True])
def test_a_timeline_knows_what_kernels_are_for(graph: bool) -> None:
    case = Case("qcn-deep", "train", "triton", 16, graph)
    found = measure_timeline(case, torch.device("cuda"), "")
    names = {span.name for span in found.spans}
    assert {"sum_moments", "sum_children"} <= {plain(name) for name in names}
    assert set(found.sums()) == set(GROUPS)
    assert 100 < found.count < 1000
    assert found.seconds is not None
    assert found.busy / 1e6 < 1.5 * found.seconds
    wrong = [span for span in found.spans if "bn_" in span.name and span.group != NORMALISATION]
    wrong += [span for span in found.spans if "wgrad" in span.name and span.group != GRADIENT]
    assert not wrong


def test_a_resumed_run_ends_with_the_same_bits(noise_images: ImageSet, tmp_path: Path) -> None:
    whole = trainer(noise_images, tmp_path / "whole")
    whole.train(Silent())

    class Cut(Silent):
        def step(self, step: int, *values: object) -> None:
            if step == 7:
                raise InterruptedError

    cut = trainer(noise_images, tmp_path / "cut", checkpoint_every=5)
    with pytest.raises(InterruptedError):
        cut.train(Cut())
    again = Trainer(cut.run, Experiment(noise_images, {"test": noise_images}))
    assert again.position.step == 5
    again.train(Silent())
    for one, other in zip(whole.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_number_that_is_not_finite_stops_a_captured_run(noise_images: ImageSet, tmp_path: Path) -> None:
    run = trainer(noise_images, tmp_path, log_every=10**6, evaluate_every=0, epochs=2000)
    weights: dict[str, torch.Tensor] = {}

    class Poison(Silent):
        def step(self, step: int, *values: object) -> None:
            if not weights and run.step.graph is not None:
                with torch.no_grad():
                    run.network.layers[0].maps.angle[0, 0, 0] = math.nan
                weights.update({name: p.clone() for name, p in run.network.named_parameters()})
                self.at = step

    poison = Poison()
    with pytest.raises(NonFiniteError) as stopped:
        run.train(poison)
    assert f"stopped at step {poison.at + 1}:" in str(stopped.value)
    assert "the weights of layers.0.maps" in str(stopped.value)
    for name, parameter in run.network.named_parameters():
        assert torch.equal(parameter.nan_to_num(), weights[name].nan_to_num()), "no update after it"


def test_a_step_that_cannot_be_captured_runs_without(
    noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", refuse)
    run = trainer(noise_images, tmp_path)
    with pytest.warns(UserWarning, match="without a CUDA graph.*not permitted"):
        run.train(Silent())
    assert run.position.step == run.steps


def test_images_fetched_from_the_host_train_to_the_same_bits(noise_images: ImageSet, tmp_path: Path) -> None:
    runs = [
        trainer(noise_images, tmp_path / placement, placement=placement, flip=True, rotation=5.0, patch=0.5, noise=0.3)
        for placement in ("device", "host")
    ]
    for run in runs:
        run.train(Silent())
        assert run.step.graph is not None
    for one, other in zip(runs[0].network.parameters(), runs[1].network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_gpu_prepares_images_as_a_cpu_does(noise_images: ImageSet) -> None:
    everything = Pipeline(32, 24, flip=True, rotation=9.0, scale=0.2, brightness=0.1, patch=0.5, noise=0.3, erase=0.2)
    pipelines = [*PIPELINES.values(), everything]
    for pipeline in pipelines:
        if len(pipeline.mean) == 3:
            continue
        sizes = {"image_size": 32, "crop": min(pipeline.crop, 32)}
        streams = [
            TrainingBatches(noise_images, 7, replace(pipeline, **sizes), 3, torch.device(device)).epoch(0, 2)
            for device in ("cpu", "cuda")
        ]
        for here, there in zip(*streams, strict=True):
            assert torch.equal(here.labels, there.labels.cpu())
            assert torch.allclose(here.images, there.images.cpu(), atol=1e-4)

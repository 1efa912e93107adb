"""That a run on any GPU computes with that GPU as the current one. No GPU is needed: CUDA is a recorder here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from quatcaps.accelerator import current
from quatcaps.data.imageset import ImageSet
from quatcaps.data.placement import OnHost, _Slot
from quatcaps.models import build
from quatcaps.pipelines import Pipeline
from quatcaps.training import run
from quatcaps.training.config import TrainingConfig
from quatcaps.training.health import NonFiniteError
from quatcaps.training.predictions import Predictor
from quatcaps.training.step import STEPS_BEFORE_CAPTURE, TrainingStep

SECOND = torch.device("cuda", 1)


class Recorder:
    """Stands in for `torch.cuda`: which device is current, and on what a graph is captured."""

    def __init__(self) -> None:
        self.devices: list[object] = [torch.device("cuda", 0)]
        self.captured_on: list[object] = []
        self.replayed_on: list[object] = []

    @contextlib.contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        self.devices.append(device)
        try:
            yield
        finally:
            self.devices.pop()

    @contextlib.contextmanager
    def graph(self, graph: object, *, stream: Any = None, **options: object) -> Iterator[None]:
        self.captured_on.append((self.devices[-1], stream and stream.device))
        yield

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        with self.device(stream.device):  # as PyTorch does
            yield

    def CUDAGraph(self) -> object:  # noqa: N802
        return SimpleNamespace(replay=lambda: self.replayed_on.append(self.devices[-1]))

    def Stream(self, device: torch.device) -> object:  # noqa: N802
        return SimpleNamespace(device=device, wait_stream=lambda other: None)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    for name in ("device", "graph", "stream", "CUDAGraph", "Stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(recorder, name))
    monkeypatch.setattr(torch.cuda, "current_stream", recorder.Stream)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return recorder


def seen_by(network: nn.Module, cuda: Recorder) -> list[object]:
    """The current device of every forward pass."""
    seen: list[object] = []
    network.register_forward_pre_hook(lambda module, inputs: seen.append(cuda.devices[-1]))
    return seen


def on_second(network: nn.Module) -> TrainingStep:
    """A step whose tensors are on the CPU, and which takes itself to be on the second GPU."""
    step = TrainingStep(network, TrainingConfig(model="cnn-small", loss="cross-entropy"), torch.device("cpu"))
    step.device, step.on_gpu, step.may_capture, step.side = SECOND, True, True, torch.cuda.Stream(SECOND)
    return step


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 2, 16, 16), torch.tensor([0, 1, 2, 0])


def test_a_step_computes_captures_and_replays_on_its_device(cuda: Recorder) -> None:
    network = build("cnn-small", channels=2, classes=3, seed=0)
    seen, step = seen_by(network, cuda), on_second(network)
    for number in range(STEPS_BEFORE_CAPTURE + 2):
        step(*batch(), 1e-3, number)
    assert seen == [SECOND] * (1 + STEPS_BEFORE_CAPTURE + 1), "a rehearsal first, and the last of them while capturing"
    assert cuda.captured_on == [(SECOND, SECOND)]
    assert cuda.replayed_on == [SECOND, SECOND]
    assert cuda.devices == [torch.device("cuda", 0)], "left as it was"


def test_where_a_number_stopped_being_finite_is_looked_for_on_its_device(cuda: Recorder) -> None:
    network = build("cnn-small", channels=2, classes=3, seed=0)
    step = on_second(network)
    step(*batch(), 1e-3, 0)
    seen = seen_by(network, cuda)
    step.bad.fill_(1.0)
    with pytest.raises(NonFiniteError):
        step.check()
    assert seen == [SECOND]


def test_images_are_pinned_and_sent_by_their_device(
    cuda: Recorder, noise_images: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned_by = []

    def pinned(values: Tensor, pin_memory: bool) -> Tensor:
        assert pin_memory
        pinned_by.append(cuda.devices[-1])
        return values.clone()

    monkeypatch.setattr(torch, "empty_like", pinned)
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda stream: None))
    images = OnHost(noise_images, torch.device("cpu"))
    images.stream = torch.cuda.Stream(SECOND)
    numbers = torch.tensor([3, 1])
    assert torch.equal(images.fetch(numbers, _Slot()), noise_images.at(numbers))
    assert pinned_by == [SECOND]


def test_evaluation_computes_captures_and_replays_on_its_device(cuda: Recorder) -> None:
    network = build("cnn-small", channels=2, classes=3).eval()
    seen: list[object] = []
    forward = network.forward
    network.forward = lambda images: (seen.append(cuda.devices[-1]), forward(images))[1]  # type: ignore[method-assign]
    predictor = Predictor(network, Pipeline(16, 0), SECOND)
    for _ in range(3):
        assert predictor.of_batch(torch.zeros(2, 2, 16, 16, dtype=torch.uint8)).activations.shape == (2, 3)
    assert seen == [SECOND] * 2, "then captured"
    assert cuda.captured_on == [(SECOND, torch.device("cpu"))], "the stream is one of the images' device"
    assert cuda.replayed_on == [SECOND] * 2


def test_a_cpu_needs_no_current_device(cuda: Recorder) -> None:
    with current(torch.device("cpu")):
        assert len(cuda.devices) == 1
    with current(SECOND):
        assert cuda.devices[-1] == SECOND


def test_a_run_names_the_gpu_that_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(device: torch.device | None = None) -> str:
        return f"GPU {0 if device is None else device.index}"

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", named)
    assert run.versions(SECOND)["gpu"] == "GPU 1"
    assert run.versions(torch.device("cpu"))["gpu"] == "GPU 0"

"""Batches of evaluation as graphs: when, not how. That a GPU makes the same of them is tested there (test_gpu.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from quatcaps.data.imageset import ImageSet
from quatcaps.models import Network, build
from quatcaps.pipelines import Pipeline
from quatcaps.training import predictions
from quatcaps.training.predictions import Predictions, Predictor

CPU = torch.device("cpu")
PIPELINE = Pipeline(16, 0)


class Recorded:
    """Computes when it is replayed, as a graph does."""

    made: ClassVar[list[int]] = []
    replayed: ClassVar[list[int]] = []

    def __init__(self, forward: Callable[[Tensor], Predictions], pixels: Tensor) -> None:
        self.forward = forward
        self.made.append(len(pixels))

    def __call__(self, pixels: Tensor) -> Predictions:
        self.replayed.append(len(pixels))
        return self.forward(pixels)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    """Batches of 16 images, of which `noise_images` are 60."""
    monkeypatch.setattr(predictions, "LARGEST_BATCH", 16)
    monkeypatch.setattr(predictions, "Graph", Recorded)
    monkeypatch.setattr(Recorded, "made", [])
    monkeypatch.setattr(Recorded, "replayed", [])
    return Recorded


@pytest.fixture
def network() -> Network:
    return build("qcn-small", channels=2, classes=3, seed=0).eval()


def capturing(network: Network) -> Predictor:
    predictor = Predictor(network, PIPELINE, CPU)
    assert not predictor.may_capture, "nothing is captured on a CPU"
    predictor.may_capture = True
    return predictor


def test_a_shape_that_comes_again_is_a_graph(graphs: type[Recorded], network: Network, noise_images: ImageSet) -> None:
    wanted = Predictor(network, PIPELINE, CPU)(noise_images)
    predictor = capturing(network)
    for made, replayed in (([16], [16, 16]), ([16, 12], [16] * 5 + [12])):
        found = predictor(noise_images)
        assert torch.equal(found.activations, wanted.activations)
        assert found.poses is not None
        assert wanted.poses is not None
        assert torch.equal(found.poses, wanted.poses)
        assert (graphs.made, graphs.replayed) == (made, replayed)


@pytest.mark.parametrize("all_modules", [False, True])
def test_who_watches_modules_sees_every_batch(
    all_modules: bool, graphs: type[Recorded], network: Network, noise_images: ImageSet
) -> None:
    predictor, seen = capturing(network), []
    predictor(noise_images)
    del graphs.replayed[:]
    primary = network.get_submodule("primary")

    def note(module: nn.Module, given: tuple[Tensor, ...], made: object) -> None:
        if module is primary:
            seen.append(len(given[0]))

    hook = register_module_forward_hook(note) if all_modules else primary.register_forward_hook(note)
    try:
        predictor(noise_images)
    finally:
        hook.remove()
    assert seen == [16, 16, 16, 12]
    assert not graphs.replayed


def test_what_cannot_be_captured_is_computed(
    graphs: type[Recorded], network: Network, noise_images: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        graphs.made.append(0)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(predictions, "Graph", refuse)
    wanted = Predictor(network, PIPELINE, CPU)(noise_images)
    found = capturing(network)(noise_images)
    assert torch.equal(found.activations, wanted.activations)
    assert graphs.made == [0], "tried once"

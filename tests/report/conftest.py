"""Small sets of images, evaluations and logs to report on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from quatcaps.data.imageset import ImageSet
from quatcaps.training.measure import Evaluation, evaluate

CLASSES = ("four-legged animal", "human figure", "airplane", "truck", "car")


@pytest.fixture(scope="session")
def toys() -> ImageSet:
    """Two stereo pairs of each class from each viewpoint; an image's grey is its index modulo 200."""
    rows = torch.tensor(list(itertools.product(range(5), range(2), range(9), range(0, 36, 2))))
    greys = (torch.arange(len(rows)) % 200).to(torch.uint8)
    images = greys.view(-1, 1, 1, 1).expand(-1, 2, 12, 12).clone()
    images[:, 1] = 255
    info = {"instance": rows[:, 1], "elevation": rows[:, 2], "azimuth": rows[:, 3]}
    return ImageSet("toys test", images, rows[:, 0], CLASSES, info)


@pytest.fixture(scope="session")
def evaluated() -> Callable[[ImageSet, float, int], Evaluation]:
    """Evaluates a network that is wrong with a given probability."""

    def run(images: ImageSet, error: float, seed: int) -> Evaluation:
        generator = torch.Generator().manual_seed(seed)
        wrong = torch.rand(len(images), generator=generator) < error
        shift = torch.randint(1, 5, (len(images),), generator=generator)
        named = torch.where(wrong, (images.labels + shift) % 5, images.labels)
        return evaluate(images, torch.nn.functional.one_hot(named, 5).float())

    return run


@pytest.fixture(scope="session")
def evaluation(toys: ImageSet, evaluated: Callable[[ImageSet, float, int], Evaluation]) -> Evaluation:
    return evaluated(toys, 0.2, 0)


@pytest.fixture(scope="session")
def log() -> Callable[[int], list[dict[str, Any]]]:
    """The log of a run of some epochs, which tested every second one."""

    def make(epochs: int) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = []
        for epoch in range(epochs):
            step = {"step": 10 * epoch + 10, "epoch": epoch, "loss": 1 / (1 + epoch), "learning_rate": 1e-3}
            test_error = None if epoch % 2 else 0.9 / (1 + epoch)
            records += [
                {"kind": "step", **step},
                {"kind": "epoch", **step, "error": 0.8 / (1 + epoch), "test_error": test_error, "seconds": 1.5},
            ]
        return records

    return make


@pytest.fixture(scope="session")
def of_many_classes() -> Evaluation:
    """150 classes of 20 images; of class n, n % 7 images are taken for the next class, and of class 3 nine for class
    100."""
    labels = torch.arange(150).repeat_interleave(20)
    place = torch.arange(20).repeat(150)
    named = torch.where(place < labels % 7, (labels + 1) % 150, labels)
    named[(labels == 3) & (place >= 11)] = 100
    names = tuple(f"kind {number} of a thing" for number in range(150))
    images = ImageSet("many test", torch.zeros(3000, 1, 1, 1, dtype=torch.uint8), labels, names)
    return evaluate(images, torch.nn.functional.one_hot(named, 150).float())

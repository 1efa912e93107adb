"""Errors counted by hand."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.layers import use_backend
from quatcaps.models import Network, build
from quatcaps.models.logits import Logits
from quatcaps.pipelines import Pipeline
from quatcaps.training.measure import Rate, evaluate
from quatcaps.training.predictions import activations_of, evaluation_batch

PIPELINE = Pipeline(32, 28)


def named(classes: list[int], count: int = 3) -> Tensor:
    return nn.functional.one_hot(torch.tensor(classes), count).float()


@pytest.fixture
def six() -> ImageSet:
    return ImageSet(
        "six",
        torch.zeros(6, 1, 4, 4, dtype=torch.uint8),
        torch.tensor([0, 0, 1, 1, 1, 0]),
        ("a", "b", "c"),
        {"azimuth": torch.tensor([0, 0, 34, 34, 2, 2]), "elevation": torch.tensor([0, 8, 0, 8, 0, 8])},
    )


def test_counts(six: ImageSet) -> None:
    found = evaluate(six, named([0, 1, 1, 2, 2, 0]))
    assert found.total == Rate(3, 6)
    assert found.total.percent == 50
    assert found.by_class == (Rate(1, 3), Rate(2, 3), None)
    assert found.confusion == ((2, 1, 0), (0, 1, 2), (0, 0, 0))
    assert found.by_azimuth == {0: Rate(1, 2), 20: Rate(1, 2), 340: Rate(1, 2)}
    assert found.by_elevation == {30: Rate(1, 3), 70: Rate(2, 3)}
    assert found.to_json()["by_class"]["c"] is None


def test_set_without_viewpoints(six: ImageSet) -> None:
    plain = ImageSet("plain", six.images, six.labels, six.classes)
    found = evaluate(plain, named([0] * 6))
    assert found.by_azimuth == found.by_elevation == {}


def test_nothing_to_evaluate(six: ImageSet) -> None:
    with pytest.raises(QuatcapsError, match="six holds no image"):
        evaluate(six.select(torch.tensor([], dtype=torch.int64)), torch.zeros(0, 3))


class Brightest(Network):
    """Names the class by the mean of the middle pixels; remembers the mode it was called in."""

    def forward(self, images: Tensor) -> Logits:
        self.was_training = self.training
        return Logits(torch.stack([images.mean((1, 2, 3)), -images.mean((1, 2, 3)), images[:, 0, 0, 0]], 1))


def test_mode_is_restored_and_order_kept(noise_images: ImageSet) -> None:
    network = Brightest(2, 3).train()
    counted: list[tuple[int, int]] = []
    found = activations_of(network, noise_images, PIPELINE, torch.device("cpu"), lambda *n: counted.append(n))
    assert network.training
    assert network.was_training is False
    assert found.shape == (60, 3)
    assert counted[-1] == (60, 60)
    alone = activations_of(network, noise_images.select(torch.tensor([33])), PIPELINE, torch.device("cpu"))
    assert torch.allclose(found[33], alone[0])


def test_activations_are_averaged_over_windows(noise_images: ImageSet) -> None:
    network = Brightest(2, 3)
    several = dataclasses.replace(PIPELINE, standardise="none", test_crops=2)
    found = activations_of(network, noise_images, several, torch.device("cpu"))
    images, size = noise_images.images.float() / 255, several.crop
    most = images.shape[2] - size
    corners = [images[:, :, top : top + size, left : left + size] for top in (0, most) for left in (0, most)]
    assert torch.allclose(found, torch.stack([network(corner).activations for corner in corners]).mean(0))


def test_batch_size_does_not_change_the_activations(noise_images: ImageSet) -> None:
    network = build("qcn-small", channels=2, classes=3, seed=0)
    together = activations_of(network, noise_images, PIPELINE, torch.device("cpu"))
    alone = torch.cat(
        [
            activations_of(network, noise_images.select(torch.tensor([i])), PIPELINE, torch.device("cpu"))
            for i in range(5)
        ]
    )
    assert torch.allclose(together[:5], alone, atol=1e-6)


def test_evaluation_batches_fit_in_memory() -> None:
    full, small = (use_backend(build(name, channels=2, classes=5), "reference") for name in ("qcn", "qcn-small"))
    assert evaluation_batch(full, (32, 32)) * 2_356_480 * 12 < 2**30
    assert 1 <= evaluation_batch(full, (32, 32)) < evaluation_batch(small, (32, 32)) <= 512
    assert evaluation_batch(build("cnn-small", channels=2, classes=5), (32, 32)) == 512
    assert evaluation_batch(use_backend(full, "auto"), (32, 32)) == 512, "no other backend holds votes"
    assert evaluation_batch(full, (128, 128)) == 64
    stands_in = build("qcn", channels=2, classes=5, competition="all")
    assert evaluation_batch(stands_in, (32, 32)) == 512, "the reference stands in a few images at a time"

"""Mixup: what images of a batch are mixed with, and how much of it."""

from __future__ import annotations

import pytest
import torch

from quatcaps.data.batches import Share, TrainingBatches
from quatcaps.data.imageset import ImageSet
from quatcaps.data.mixing import mix_up
from quatcaps.errors import QuatcapsError
from quatcaps.models import build
from quatcaps.pipelines import Pipeline
from quatcaps.training.config import TrainingConfig
from quatcaps.training.step import TrainingStep

CPU = torch.device("cpu")
SEEN = Pipeline(32, 20, flip=True, patch=0.5, noise=0.2)


def batches_of(images: ImageSet, batch: int, mixup: float, **options: object) -> TrainingBatches:
    return TrainingBatches(images, batch, SEEN, 3, CPU, mixup=mixup, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_images_are_mixed_with_their_neighbours(count: int) -> None:
    """By loops; the last of an odd number with itself."""
    images, labels = torch.rand(count, 2, 3, 3), torch.arange(count)
    made, mixed = mix_up(images, labels, torch.arange(count) * 2**40, 0.4)
    for number in range(count):
        other = number + 1 if number % 2 == 0 else number - 1
        other = number if other == count else other
        part = mixed.parts[number]
        assert mixed.labels[number] == other
        torch.testing.assert_close(made[number], (1 - part) * images[number] + part * images[other])


def test_parts_are_uniform_and_of_each_image_by_itself() -> None:
    keys = torch.randint(2**62, (4000,), generator=torch.Generator().manual_seed(0))
    _, mixed = mix_up(torch.zeros(4000, 1, 1, 1), torch.zeros(4000, dtype=torch.int64), keys, 0.5)
    assert 0 <= mixed.parts.min() < 0.002
    assert 0.498 < mixed.parts.max() < 0.5
    assert mixed.parts.mean().item() == pytest.approx(0.25, abs=0.01)
    assert mixed.parts[0::2].sub(mixed.parts[1::2]).abs().mean().item() == pytest.approx(0.5 / 3, abs=0.01)


def test_batches_are_mixed_after_everything_else(noise_images: ImageSet) -> None:
    """Crops, patches and noise are those of a run without."""
    for plain, found in zip(
        batches_of(noise_images, 9, 0.0).epoch(1), batches_of(noise_images, 9, 0.5).epoch(1), strict=True
    ):
        assert plain.mixed is None
        assert found.mixed is not None
        assert torch.equal(found.labels, plain.labels)
        pairs = torch.tensor([1, 0, 3, 2, 5, 4, 7, 6, 8])
        assert torch.equal(found.mixed.labels, plain.labels[pairs])
        parts = found.mixed.parts[:, None, None, None]
        torch.testing.assert_close(found.images, plain.images + parts * (plain.images[pairs] - plain.images))


def test_mixtures_are_the_same_for_several_processes_and_batches_together(noise_images: ImageSet) -> None:
    """From the middle of an epoch too; where a pair would be torn, an error says so."""
    alone = list(batches_of(noise_images, 8, 0.5).epoch(2))
    halves = [list(batches_of(noise_images, 8, 0.5, share=Share(rank, 2)).epoch(2)) for rank in range(2)]
    together = list(batches_of(noise_images, 8, 0.5, together=5).epoch(2, 3))
    for number, whole in enumerate(alone):
        assert torch.equal(torch.cat([half[number].images for half in halves]), whole.images)
        if number >= 3:
            found = together[number - 3]
            assert torch.equal(found.images, whole.images)
            assert all(torch.equal(*pair) for pair in zip(found.mixed or (), whole.mixed or (), strict=True))


def test_shares_that_would_tear_a_pair_are_refused(noise_images: ImageSet) -> None:
    """The mixtures would be others than those of one process."""
    with pytest.raises(QuatcapsError, match=r"batch of 6 .* 2 processes: .*mixup.* pairs; give a multiple of 4"):
        batches_of(noise_images, 6, 0.5, share=Share(0, 2))
    assert batches_of(noise_images, 6, 0.0, share=Share(0, 2)).share == slice(0, 3)
    assert batches_of(noise_images, 9, 0.5).share == slice(0, 9)


def test_a_step_learns_both_classes(noise_images: ImageSet) -> None:
    """After steps on one mixture, the probabilities are its parts."""
    network = build("cnn-small", channels=1, classes=3, seed=0)
    config = TrainingConfig(model="cnn-small", loss="cross-entropy", mixup=0.5)
    step = TrainingStep(network, config, CPU)
    images, mixed = mix_up(torch.rand(2, 1, 8, 8), torch.tensor([0, 2]), torch.tensor([5, 6]), 0.5)
    for number in range(60):
        step(images, torch.tensor([0, 2]), 2e-2, number, mixed=mixed)
    found = network.eval()(images).scores.softmax(1)
    parts = mixed.parts.tolist()
    wanted = torch.tensor([[1 - parts[0], 0.0, parts[0]], [parts[1], 0.0, 1 - parts[1]]])
    torch.testing.assert_close(found, wanted, atol=0.05, rtol=0)

"""Batched crops and standardisation, pixel by pixel against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quatcaps.data.augment import centre_crop, random_crop, standardise
from quatcaps.data.batches import TrainingBatches, epoch_order, evaluation_batches, mix
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError


@pytest.fixture
def pictures() -> torch.Tensor:
    return torch.randint(256, (40, 2, 11, 9), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


def test_random_crop_is_a_window_of_each_image_alike_in_both_views(pictures: torch.Tensor) -> None:
    cropped = random_crop(pictures, 6, torch.Generator().manual_seed(0)).numpy()
    seen = set()
    for image, window in zip(pictures.numpy(), cropped, strict=True):
        places = [
            (top, left)
            for top in range(6)
            for left in range(4)
            if np.array_equal(image[:, top : top + 6, left : left + 6], window)
        ]
        assert len(places) == 1
        seen |= set(places)
    assert {top for top, _ in seen} == set(range(6))
    assert {left for _, left in seen} == set(range(4))


def test_random_crop_depends_on_the_generator_alone(pictures: torch.Tensor) -> None:
    first, second = (random_crop(pictures, 5, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, random_crop(pictures, 5, torch.Generator().manual_seed(5)))


def test_centre_crop(pictures: torch.Tensor) -> None:
    assert torch.equal(centre_crop(pictures, 5), pictures[:, :, 3:8, 2:7])
    assert torch.equal(centre_crop(pictures, 4), pictures[:, :, 3:7, 2:6])


@pytest.mark.parametrize("size", [0, 10, -1])
def test_crop_that_does_not_fit(pictures: torch.Tensor, size: int) -> None:
    for crop in (lambda: centre_crop(pictures, size), lambda: random_crop(pictures, size, torch.Generator())):
        with pytest.raises(QuatcapsError, match=f"a crop of {size}×{size} from images of 11×9: .* between 1 and 9"):
            crop()


def test_standardise_each_view_by_its_own_numbers(pictures: torch.Tensor) -> None:
    values = pictures.numpy().astype(np.float64)
    mean = values.mean((2, 3), keepdims=True)
    expected = (values - mean) / values.std((2, 3), keepdims=True)
    assert np.allclose(standardise(pictures).numpy(), expected, atol=1e-5)


def test_flat_image_becomes_zero() -> None:
    flat = standardise(torch.full((2, 1, 8, 8), 77, dtype=torch.uint8))
    assert torch.equal(flat, torch.zeros_like(flat))


def test_epoch_order_is_a_permutation_of_its_own() -> None:
    orders = [epoch_order(100, seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert all(sorted(order.tolist()) == list(range(100)) for order in orders)
    assert len({tuple(order.tolist()) for order in orders}) == 6


def test_streams_of_chance_do_not_meet() -> None:
    assert len({mix(seed, stream) for seed in range(50) for stream in range(-2, 300)}) == 50 * 302


def test_an_epoch_shows_every_image_at_most_once(noise_images: ImageSet) -> None:
    batches = TrainingBatches(noise_images, 7, 32, 0, torch.device("cpu"), torch.Generator().manual_seed(0))
    shown = torch.cat([batch.images for batch in batches.epoch(3)])
    assert batches.per_epoch == 8
    assert len(shown) == 56
    assert len({image.numpy().tobytes() for image in shown}) == 56


def test_an_epoch_can_begin_in_the_middle(noise_images: ImageSet) -> None:
    def labels(position: int) -> list[list[int]]:
        batches = TrainingBatches(noise_images, 8, 32, 0, torch.device("cpu"), torch.Generator().manual_seed(0))
        return [batch.labels.tolist() for batch in batches.epoch(1, position)]

    assert labels(3) == labels(0)[3:]


def test_evaluation_shows_all_images_in_order(noise_images: ImageSet) -> None:
    batches = list(evaluation_batches(noise_images, 16, 28, torch.device("cpu")))
    assert torch.equal(torch.cat([batch.labels for batch in batches]), noise_images.labels)
    expected = standardise(noise_images.images[:, :, 2:30, 2:30])
    assert torch.equal(torch.cat([batch.images for batch in batches]), expected)


@pytest.mark.parametrize("batch", [0, 61])
def test_batch_that_does_not_fit(noise_images: ImageSet, batch: int) -> None:
    with pytest.raises(QuatcapsError, match=f"a batch of {batch} from 60"):
        TrainingBatches(noise_images, batch, 20, 0, torch.device("cpu"), torch.Generator())

"""Augmentation in whole batches, pixel by pixel against plain NumPy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.interpolate import BSpline
from torch import Tensor

from quatcaps.data.preprocessing import Draws, draws, for_evaluation, for_training, jitter, views_for_evaluation
from quatcaps.data.standardising import standardise_channels, standardise_views
from quatcaps.data.windows import bends, centre_crop, mirror, warped_windows, windows
from quatcaps.errors import QuatcapsError
from quatcaps.pipelines import PIPELINES, Pipeline

Array = NDArray[np.float64]


def bytes_of(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    return bytes_of(40, 2, 11, 9)


# The plain version: one image at a time, one pixel at a time, in float64.


def pixel(image: Array, row: int, column: int, padded: bool) -> Array:
    """(C,): 0 outside a padded image, else the nearest."""
    height, width = image.shape[1:]
    if padded and not (0 <= row < height and 0 <= column < width):
        return np.zeros(len(image))
    return image[:, min(max(row, 0), height - 1), min(max(column, 0), width - 1)]


def between(image: Array, row: float, column: float, padded: bool) -> Array:
    top, left = math.floor(row), math.floor(column)
    down, across = row - top, column - left
    value = np.zeros(len(image))
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight = (down if i else 1 - down) * (across if j else 1 - across)
        value += weight * pixel(image, top + i, left + j, padded)
    return value


def splitmix(key: int) -> int:
    key &= 2**64 - 1
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = (key ^ key >> shift) * factor & 2**64 - 1
    return key ^ key >> 31


def random_numbers(key: int, count: int) -> Array:
    """Nearly normal, from a key."""
    keys = [splitmix(key) + place * 0x9E3779B97F4A7C15 for place in range(count)]
    parts = [[splitmix(key) >> places & 0xFFFF for places in (0, 16, 32, 48)] for key in keys]
    return (np.sum(parts, 1) - 2 * 65535) / math.sqrt(4 * (65536**2 - 1) / 12)


def bend(key: int, size: int) -> Array:
    """(2, size, size): where each pixel moves to; SciPy has the splines."""
    knots = np.arange(-3, 4 + 4)  # four cells, and three more knots on each side
    basis = BSpline.design_matrix(np.linspace(0, 4, size), knots, 3).toarray()
    basis /= np.sqrt((basis**2).sum(1, keepdims=True))
    points = random_numbers(key ^ 0x2545F4914F6CDD1D, 2 * 7 * 7).reshape(2, 7, 7)
    return np.einsum("ip,dpq,jq->dij", basis, points, basis)


def plainly(pipeline: Pipeline, image: NDArray[np.uint8], chance: Draws, k: int, other: Array | None = None) -> Array:
    """What `for_training` does to image number k; `other`: what it may be patched with, as seen."""
    values, padded = image.astype(np.float64), pipeline.pad > 0
    height, width = pipeline.seen(image.shape[1:])
    top, left = int(chance.top[k]) - pipeline.pad, int(chance.left[k]) - pipeline.pad
    angle, zoom, wider = float(chance.angle[k]), float(chance.zoom[k]), float(chance.stretch[k]) ** 0.5
    middle = ((height - 1) / 2, (width - 1) / 2)
    down, across = np.zeros((2, height, width))
    if pipeline.elastic:
        down, across = bend(int(chance.grain[k]), height) * pipeline.elastic * height
    seen = np.zeros((len(image), height, width))
    for i in range(height):
        for j in range(width):
            y, x = (i - middle[0]) / zoom, (j - middle[1]) / zoom
            row = top + middle[0] + (math.cos(angle) * y + math.sin(angle) * x) * wider + down[i, j]
            column = left + middle[1] + (math.cos(angle) * x - math.sin(angle) * y) / wider + across[i, j]
            seen[:, i, j] = between(values, row, column, padded)
    if chance.mirrored[k]:
        seen = seen[::-1, :, ::-1] if len(seen) == 2 else seen[:, :, ::-1]
    if (pipeline.brightness or pipeline.contrast) and pipeline.lighting == "pixels":
        mean = seen.mean()
        shifted = (seen - mean) * float(chance.contrast[k]) + mean + 255 * float(chance.brightness[k])
        seen = np.clip(shifted, 0, 255)
    whole = image[::-1] if chance.mirrored[k] and len(image) == 2 else image
    seen = standardised(pipeline, seen, whole.astype(np.float64))
    if (pipeline.brightness or pipeline.contrast) and pipeline.lighting == "standardised":
        seen = seen.mean() + float(chance.contrast[k]) * (seen - seen.mean()) + float(chance.brightness[k])
    if pipeline.patch and chance.patched[k]:
        side = round(pipeline.patch * height)
        row, column = (int(share[k] * (height - side + 1)) for share in (chance.patch_top, chance.patch_left))
        assert other is not None
        seen[:, row : row + side, column : column + side] = other[:, row : row + side, column : column + side]
    if pipeline.noise:
        noise = random_numbers(int(chance.grain[k]), seen.size)
        seen = seen + float(chance.noise[k]) * noise.reshape(seen.shape)
    if pipeline.erase:
        side = round(pipeline.erase * height)
        row, column = (int(share[k] * (height - side + 1)) for share in (chance.blot_top, chance.blot_left))
        seen[:, row : row + side, column : column + side] = 0
    return seen


def standardised(pipeline: Pipeline, seen: Array, whole: Array) -> Array:
    of = whole if pipeline.standardise_from == "whole" else seen
    if pipeline.standardise in ("view", "image"):
        axes = (1, 2) if pipeline.standardise == "view" else (0, 1, 2)
        mean, deviation = of.mean(axes, keepdims=True), of.std(axes, keepdims=True)
        return (seen - mean) / np.maximum(deviation, 1e-3)
    if pipeline.standardise == "channel":
        mean, deviation = (np.array(values)[:, None, None] for values in (pipeline.mean, pipeline.deviation))
        return (seen / 255 - mean) / deviation
    return seen / 255


COLOURS = {"standardise": "channel", "mean": (0.4, 0.5, 0.6), "deviation": (0.2, 0.25, 0.3)}
CASES = {
    "crop": (Pipeline(0, 7), (2, 11, 9)),
    "whole": (Pipeline(0, 0, standardise="none"), (1, 6, 8)),
    "pad and crop": (Pipeline(0, 9, pad=2, **COLOURS), (3, 9, 9)),
    "flip": (Pipeline(0, 6, flip=True), (1, 8, 8)),
    "stereo flip": (Pipeline(0, 6, flip=True), (2, 8, 8)),
    "jitter": (Pipeline(0, 6, brightness=0.3, contrast=0.5, standardise="none"), (2, 8, 8)),
    "jitter, standardised": (Pipeline(0, 6, brightness=2.0, contrast=0.5, lighting="standardised"), (2, 8, 8)),
    "jitter, colours": (Pipeline(0, 6, brightness=2.0, contrast=0.5, lighting="standardised", **COLOURS), (3, 8, 8)),
    "jitter, whole": (
        Pipeline(0, 6, brightness=2.0, contrast=0.5, lighting="standardised", standardise_from="whole"),
        (1, 9, 8),
    ),
    "stereo flip, whole": (Pipeline(0, 6, flip=True, standardise_from="whole"), (2, 8, 8)),
    "turn, whole, views together": (
        Pipeline(0, 6, rotation=30.0, standardise="image", standardise_from="whole"),
        (2, 9, 9),
    ),
    "turn": (Pipeline(0, 8, rotation=30.0, standardise="none"), (2, 12, 11)),
    "scale": (Pipeline(0, 8, scale=0.5, standardise="none"), (1, 12, 12)),
    "stretch": (Pipeline(0, 8, stretch=0.5, standardise="none"), (1, 12, 12)),
    "elastic": (Pipeline(0, 9, elastic=0.1, standardise="none"), (2, 12, 11)),
    "erase": (Pipeline(0, 8, erase=0.4), (2, 10, 10)),
    "erase all": (Pipeline(0, 8, erase=1.0), (1, 8, 8)),
    "noise": (Pipeline(0, 8, noise=2.0), (2, 10, 10)),
    "turn whole": (Pipeline(0, 0, rotation=180.0, scale=0.3, standardise="none"), (1, 9, 9)),
    "all of it": (
        Pipeline(
            0,
            8,
            pad=3,
            flip=True,
            rotation=20.0,
            scale=0.2,
            stretch=0.3,
            elastic=0.05,
            erase=0.3,
            noise=0.5,
            brightness=0.1,
            contrast=0.2,
            **COLOURS,
        ),
        (3, 10, 10),
    ),
}


@pytest.mark.parametrize(("pipeline", "shape"), CASES.values(), ids=CASES.keys())
def test_against_the_plain_version(pipeline: Pipeline, shape: tuple[int, int, int]) -> None:
    images = bytes_of(12, *shape)
    chance = draws(pipeline, 12, shape[1:], torch.Generator().manual_seed(2))
    found = for_training(pipeline, images, chance)
    assert found.dtype == torch.float32
    for k, image in enumerate(images.numpy()):
        assert np.allclose(found[k].numpy(), plainly(pipeline, image, chance, k), atol=2e-4, rtol=1e-4), k


def test_patches_against_the_plain_version() -> None:
    pipeline = Pipeline(0, 8, flip=True, patch=0.6, noise=0.3, erase=0.2)
    alone = replace(pipeline, patch=0.0, noise=0.0, erase=0.0)
    images = bytes_of(24, 2, 10, 10)
    chance = draws(pipeline, 24, (10, 10), torch.Generator().manual_seed(2))
    found = for_training(pipeline, images, chance)
    assert len(found) == 12, "the other half is there to be taken from"
    assert set(chance.patched[:12].tolist()) == {False, True}
    for k in range(12):
        other = plainly(alone, images[12 + k].numpy(), chance, 12 + k)
        assert np.allclose(found[k].numpy(), plainly(pipeline, images[k].numpy(), chance, k, other), atol=2e-4), k


@pytest.mark.parametrize("name", PIPELINES)
def test_the_papers_pipelines_against_the_plain_version(name: str) -> None:
    pipeline = PIPELINES[name]
    channels = {"mnist": 1, "fashionmnist": 1, "svhn": 3, "cifar10": 3}.get(name, 2)
    side = pipeline.image_size
    images = bytes_of(2, channels, side, side)
    chance = draws(pipeline, 2, (side, side), torch.Generator().manual_seed(2))
    found = for_training(pipeline, images, chance)
    whole = replace(pipeline, **moments(pipeline, channels))
    for k, image in enumerate(images.numpy()):
        assert np.allclose(found[k].numpy(), plainly(whole, image, chance, k), atol=1e-5)
    start = (side - pipeline.crop) // 2
    middle = images[:, :, start : start + pipeline.crop, start : start + pipeline.crop].numpy()
    for image, expected in zip(for_evaluation(pipeline, images).numpy(), middle.astype(np.float64), strict=True):
        assert np.allclose(image, standardised(whole, expected, expected), atol=1e-5)


def moments(pipeline: Pipeline, channels: int) -> dict[str, tuple[float, ...]]:
    """One mean for all channels, as one for each."""
    each = channels // len(pipeline.mean) if pipeline.mean else 0
    return {"mean": pipeline.mean * each, "deviation": pipeline.deviation * each}


def test_windows_are_alike_in_both_views_and_reach_every_place(pictures: Tensor) -> None:
    chance = draws(Pipeline(0, 6), 40, (11, 9), torch.Generator().manual_seed(0))
    cut = windows(pictures, chance.top, chance.left, 6).numpy()
    for k, image in enumerate(pictures.numpy()):
        top, left = int(chance.top[k]), int(chance.left[k])
        assert np.array_equal(cut[k], image[:, top : top + 6, left : left + 6])
    many = draws(Pipeline(0, 6), 5000, (11, 9), torch.Generator().manual_seed(0))
    assert {(int(a), int(b)) for a, b in zip(many.top, many.left, strict=True)} == {
        (a, b) for a in range(6) for b in range(4)
    }


def test_a_warp_that_does_nothing_is_the_window(pictures: Tensor) -> None:
    chance = draws(Pipeline(0, 6), 40, (11, 9), torch.Generator().manual_seed(0))
    plain = windows(pictures, chance.top, chance.left, 6)
    warped = warped_windows(pictures, chance.top, chance.left, 6, chance.angle, chance.zoom)
    assert torch.equal(warped, plain.float())


@pytest.mark.parametrize("size", [1, 2, 7, 32])
def test_bends_are_smooth_and_move_every_pixel_as_far(size: int) -> None:
    keys = torch.randint(2**62, (4000,), generator=torch.Generator().manual_seed(0))
    found = bends(keys, size)
    assert found.shape == (2, 4000, size, size)
    assert found.mean((1, 2, 3)).abs().max() < 0.065, "four standard errors of 4,000"
    assert (found.std(1) - 1).abs().max() < 0.06, "the same deviation at every place"
    assert torch.equal(bends(keys[7:9], size), found[:, 7:9]), "an image is bent by its key alone"
    if size == 32:
        steps = torch.cat([found.diff(dim=2).flatten(), found.diff(dim=3).flatten()])
        assert 0.1 < steps.std() < 0.2, "neighbours move together"
        assert abs(torch.corrcoef(found[:, :, 5, 9])[0, 1]) < 0.05, "down and across apart"


def test_bends_leave_noise_as_it_was() -> None:
    images = bytes_of(2, 1, 8, 8)
    pipeline = Pipeline(0, 8, noise=0.5)
    chance = draws(pipeline, 2, (8, 8), torch.Generator().manual_seed(2))
    quiet = for_training(replace(pipeline, noise=0.0), images, chance)
    bent = replace(pipeline, elastic=0.1)
    noise = for_training(pipeline, images, chance) - quiet
    again = for_training(bent, images, chance) - for_training(replace(bent, noise=0.0), images, chance)
    assert torch.allclose(noise, again, atol=1e-6)
    assert not torch.allclose(quiet, for_training(replace(bent, noise=0.0), images, chance), atol=0.1)


def test_a_quarter_turn_is_counter_clockwise_as_seen() -> None:
    image = torch.arange(9, dtype=torch.uint8).view(1, 1, 3, 3)
    zero = torch.zeros(1, dtype=torch.int64)
    turned = warped_windows(image, zero, zero, 3, torch.tensor([math.pi / 2]), torch.ones(1))
    assert torch.allclose(turned, torch.rot90(image.float(), 1, (2, 3)), atol=1e-4)


def test_one_more_augmentation_leaves_the_crops_as_they_were() -> None:
    first = draws(Pipeline(0, 1), 50, (9, 9), torch.Generator().manual_seed(3))
    more = Pipeline(0, 1, flip=True, rotation=9.0, scale=0.2, contrast=0.1, noise=0.5)
    second = draws(more, 50, (9, 9), torch.Generator().manual_seed(3))
    assert torch.equal(first.top, second.top)
    assert torch.equal(first.left, second.left)
    assert second.mirrored.any()
    assert not second.mirrored.all()


def test_draws_keep_to_their_limits() -> None:
    pipeline = Pipeline(0, 0, rotation=10.0, scale=0.25, brightness=0.2, contrast=0.4, noise=0.7)
    chance = draws(pipeline, 4000, (1, 1), torch.Generator().manual_seed(0))
    for column, low, high in (
        (chance.angle, -math.radians(10), math.radians(10)),
        (chance.zoom, 0.8, 1.25),
        (chance.brightness, -0.2, 0.2),
        (chance.contrast, 0.6, 1.4),
        (chance.noise, 0.0, 0.7),
    ):
        assert low - 1e-6 <= float(column.min()) < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < float(column.max()) <= high + 1e-6
    assert not chance.top.any()


def test_mirroring_twice_gives_the_image_back(pictures: Tensor) -> None:
    mirrored = torch.arange(40) % 2 == 0
    once = mirror(pictures, mirrored)
    assert torch.equal(once[1], pictures[1])
    assert torch.equal(once[0], pictures[0].flip(0, 2)), "the views of a pair change places"
    assert torch.equal(mirror(once, mirrored), pictures)


def test_jitter_stays_in_the_range(pictures: Tensor) -> None:
    shifted = jitter(pictures.float(), torch.full((40,), 0.9), torch.full((40,), 2.0))
    assert 0 <= float(shifted.min()) <= float(shifted.max()) == 255


def test_centre_crop(pictures: Tensor) -> None:
    assert torch.equal(centre_crop(pictures, 5), pictures[:, :, 3:8, 2:7])
    assert torch.equal(centre_crop(pictures, 4), pictures[:, :, 3:7, 2:6])


@pytest.mark.parametrize("size", [0, 10])
def test_crop_that_does_not_fit(pictures: Tensor, size: int) -> None:
    zero = torch.zeros(40, dtype=torch.int64)
    for crop in (lambda: centre_crop(pictures, size), lambda: windows(pictures, zero, zero, size)):
        with pytest.raises(QuatcapsError, match=f"a crop of {size}×{size} from images of 11×9: .* between 1 and 9"):
            crop()


def test_flat_image_becomes_zero() -> None:
    flat = standardise_views(torch.full((2, 1, 8, 8), 77, dtype=torch.uint8))
    assert torch.equal(flat, torch.zeros_like(flat))


def test_views_may_be_standardised_together(pictures: Tensor) -> None:
    seen = for_evaluation(Pipeline(0, 0, standardise="image"), pictures).double()
    values = pictures.double()
    for number in (0, 7):
        expected = (values[number] - values[number].mean()) / values[number].std(correction=0)
        torch.testing.assert_close(seen[number], expected, rtol=1e-4, atol=1e-5)


def test_channels_are_standardised_by_fixed_numbers() -> None:
    white = torch.full((1, 2, 1, 1), 255, dtype=torch.uint8)
    found = standardise_channels(white, torch.tensor([0.5, 0.25]), torch.tensor([0.5, 0.125]))
    assert torch.allclose(found.flatten(), torch.tensor([1.0, 6.0]))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"crop": 49}, "crop = 49: it must be at most the image size, 48"),
        ({"pad": -1}, "pad = -1: it must be from 0 to 4096"),
        ({"patch": 1.01}, "patch = 1.01: it must be from 0 to 1"),
        ({"patch_from": "toy"}, "patch_from"),
        ({"lighting": "before"}, "unknown lighting 'before'"),
        (
            {"brightness": 2.0},
            "brightness = 2.0: it must be from 0 to 1; --lighting standardised takes deviations, up to 10",
        ),
        ({"brightness": 11.0, "lighting": "standardised"}, "it must be from 0 to 10"),
        ({"elastic": 1.5}, "elastic = 1.5: it must be from 0 to 1"),
        ({"elastic": math.nan}, "elastic = nan: it must be from 0 to 1"),
        ({"noise": -0.1}, "noise = -0.1: it must be from 0 to 10"),
        ({"rotation": 181.0}, "rotation = 181.0: it must be from 0 to 180"),
        ({"brightness": float("nan")}, "brightness = nan"),
        ({"standardise": "views"}, "unknown standardise 'views': did you mean 'view'"),
        ({"standardise": "channel"}, "channel with 0 means and 0 deviations: give as many"),
        ({"standardise": "channel", "mean": (0.5,), "deviation": (0.0,)}, "deviation = 0.0: it must be above 0"),
        ({"pad": 4, "crop": 0}, "pad = 4 without a crop: give --crop"),
    ],
)
def test_pipelines_that_cannot_be(changes: dict[str, object], words: str) -> None:
    with pytest.raises(QuatcapsError, match=words):
        Pipeline(**changes)  # type: ignore[arg-type]


def test_pipelines_that_do_not_fit_the_images() -> None:
    three = Pipeline(standardise="channel", mean=(0.1, 0.2, 0.3), deviation=(1.0, 1.0, 1.0))
    with pytest.raises(QuatcapsError, match="3 means for images of 2 channels: give 1 or 2"):
        three.check(2, (48, 48))
    with pytest.raises(QuatcapsError, match=r"crop = 32: the images are 28×40; it must be at most 28"):
        Pipeline(0, 32).check(1, (28, 40))
    same = Pipeline(28, 28, test_crops=3)
    with pytest.raises(QuatcapsError, match=r"test_crops = 3: windows of 28×28 are all of an image of 28×28; give"):
        same.check(1, (28, 28))
    replace(same, pad=2).check(1, (28, 28))
    pipeline = Pipeline(0, 0, rotation=3.0)
    chance = draws(pipeline, 2, (4, 6), torch.Generator())
    with pytest.raises(QuatcapsError, match="cannot be turned, scaled or bent whole: give a --crop"):
        for_training(pipeline, bytes_of(2, 1, 4, 6), chance)


def test_windows_for_evaluation_are_standardised_by_the_whole_image() -> None:
    images = bytes_of(3, 2, 12, 11)
    values = images.double()
    wanted = (values - values.mean((2, 3), keepdim=True)) / values.std((2, 3), correction=0, keepdim=True)
    pipeline = Pipeline(0, 8, standardise_from="whole", test_crops=2)
    torch.testing.assert_close(for_evaluation(pipeline, images), wanted[:, :, 2:10, 1:9].float(), rtol=1e-5, atol=1e-5)
    seen = views_for_evaluation(pipeline, images)
    assert len(seen) == 4
    torch.testing.assert_close(seen[1], wanted[:, :, :8, 3:].float(), rtol=1e-5, atol=1e-5)
    with pytest.raises(QuatcapsError, match="unknown standardise_from 'hole': did you mean 'whole'"):
        Pipeline(standardise_from="hole")

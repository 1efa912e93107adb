"""Image files as networks take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from quatcaps.errors import QuatcapsError
from quatcaps.training.preprocess import as_pixels


def saved(path: Path, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def noise() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (48, 96, 3), dtype=np.uint8)


def test_stereo_pair_side_by_side(noise: np.ndarray, tmp_path: Path) -> None:
    read = as_pixels(saved(tmp_path / "pair.png", noise[..., 0]), 2, 48)
    assert np.array_equal(read.numpy(), np.stack([noise[:, :48, 0], noise[:, 48:, 0]]))


def test_single_view_serves_as_both(noise: np.ndarray, tmp_path: Path) -> None:
    read = as_pixels(saved(tmp_path / "one.png", noise[:, :48, 0]), 2, 48).numpy()
    assert np.array_equal(read[0], noise[:, :48, 0])
    assert np.array_equal(read[0], read[1])


def test_colour_and_grey(noise: np.ndarray, tmp_path: Path) -> None:
    path = saved(tmp_path / "colour.png", noise[:, :48])
    assert np.array_equal(as_pixels(path, 3, 48).numpy(), noise[:, :48].transpose(2, 0, 1))
    grey = np.asarray(Image.open(path).convert("L"))
    assert np.array_equal(as_pixels(path, 1, 48)[0].numpy(), grey)


def test_large_images_are_averaged_down_and_small_ones_scaled_up(tmp_path: Path) -> None:
    blocks = np.kron(np.arange(16, dtype=np.uint8).reshape(4, 4) * 10, np.ones((8, 8), dtype=np.uint8))
    path = saved(tmp_path / "blocks.png", blocks)
    assert np.array_equal(as_pixels(path, 1, 4)[0].numpy(), np.arange(16).reshape(4, 4) * 10)
    assert as_pixels(path, 1, 96).shape == (1, 96, 96)


def test_middle_square_of_an_oblong_image(noise: np.ndarray, tmp_path: Path) -> None:
    path = saved(tmp_path / "wide.png", noise[:20, :30, 0])
    assert np.array_equal(as_pixels(path, 1, 20)[0].numpy(), noise[:20, 5:25, 0])


def test_channels_that_files_do_not_have(noise: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="this network takes 4 channels"):
        as_pixels(saved(tmp_path / "x.png", noise), 4, 48)


def test_enormous_image_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "x.png", np.zeros((60, 60), dtype=np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)
    with pytest.raises(QuatcapsError, match="is larger than 3,000 pixels"):
        as_pixels(path, 1, 48)

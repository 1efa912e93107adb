"""Digits moved, turned, scaled and sheared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.report.robustness import affine_figure, affine_table
from quatcaps.robustness import AFFNIST, Affine, affine, changed
from quatcaps.robustness.affine_changes import PARTS, STILL, AffineRanges
from quatcaps.training.measure import Rate
from quatcaps.weights.zoo import trained

CPU = torch.device("cpu")


def bar() -> torch.Tensor:
    """An upright bar on black, 20 pixels high and 4 wide, in the middle of 28×28."""
    image = torch.zeros(1, 1, 28, 28)
    image[:, :, 4:24, 12:16] = 1
    return image


def shares(**given: float) -> torch.Tensor:
    """What chance decides: 0.5 is the middle of every range, 0.999 its end."""
    names = ("rotation", "shear", "height", "width", "down", "across")
    return torch.tensor([[given.get(name, 0.5)] for name in names])


def extent(image: torch.Tensor) -> tuple[int, int, int, int]:
    """The first and last row and column with anything in it."""
    rows, columns = (image[0, 0].amax(axis).gt(0.5).nonzero().flatten() for axis in (1, 0))
    return int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])


def test_without_changes_the_image_stays() -> None:
    torch.testing.assert_close(changed(bar(), STILL, 28, shares()), bar())
    framed = changed(bar(), STILL, 40, shares())
    assert framed.shape == (1, 1, 40, 40)
    torch.testing.assert_close(framed[:, :, 6:34, 6:34], bar())
    assert framed.sum() == bar().sum()


@pytest.mark.parametrize(("height", "width"), [(27, 27), (27, 28), (20, 33)])
def test_images_with_a_pixel_in_their_middle_stay_too(height: int, width: int) -> None:
    """Nothing is blurred, whichever sides are odd."""
    image = torch.rand(2, 1, height, width, generator=torch.Generator().manual_seed(0))
    framed = changed(image, STILL, 40, shares().expand(6, 2))
    top, left = (41 - height) // 2, (41 - width) // 2
    torch.testing.assert_close(framed[:, :, top : top + height, left : left + width], image)
    assert framed.sum() == pytest.approx(float(image.sum()), rel=1e-5)


def test_ranges_are_those_of_affnist() -> None:
    assert PARTS["all"] == AffineRanges(rotation=20.0, shear=0.2, smallest=0.8, largest=1.2, moved=True)
    end = 1 - 1e-6
    large = extent(changed(bar(), PARTS["scaled"], 28, shares(height=end, width=end)))
    assert (large[1] - large[0] + 1, large[3] - large[2] + 1) == (24, 4)  # 20 · 1.2, and 4 · 1.2 to whole pixels
    small = extent(changed(bar(), PARTS["scaled"], 28, shares(height=0.0)))
    assert small[1] - small[0] + 1 == 16
    turned = changed(bar(), PARTS["turned"], 28, shares(rotation=end))[0, 0]
    rows, columns = (turned.gt(0.5).nonzero().float() - 13.5).T
    slope = (rows * columns).mean() / (rows**2).mean()
    assert float(slope.abs()) == pytest.approx(torch.tan(torch.deg2rad(torch.tensor(20.0))).item(), abs=0.03)
    sheared = changed(bar(), PARTS["sheared"], 28, shares(shear=end))[0, 0]
    rows, columns = (sheared.gt(0.5).nonzero().float() - 13.5).T
    assert float((rows * columns).mean() / (rows**2).mean()) == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("frame", [28, 40])
def test_all_of_it_stays_in_the_frame(frame: int) -> None:
    top = extent(changed(bar(), PARTS["moved"], frame, shares(down=0.0, across=0.0)))
    end = extent(changed(bar(), PARTS["moved"], frame, shares(down=0.999, across=0.999)))
    assert (end[0], end[2]) == (0, 0)  # the latest window has the digit at its beginning
    assert (top[1], top[3]) == (frame - 1, frame - 1)
    many = bar().expand(200, -1, -1, -1)
    drawn = changed(many, AFFNIST, frame, torch.rand(6, 200, generator=torch.Generator().manual_seed(0)))
    areas = drawn.sum((1, 2, 3)) / bar().sum()
    assert areas.min() > 0.6
    assert areas.max() < 1.5
    assert drawn.amax(0).gt(0.5).float().mean() > 0.8  # everywhere, but for corners
    assert changed(torch.zeros(1, 1, 28, 28), AFFNIST, frame, shares()).eq(0).all()


@pytest.mark.usefixtures("unchecked")
def test_a_network_on_changed_digits() -> None:
    """An upright bar is a one."""
    weights = trained("qcn-mnist")
    stored = (255 * bar().expand(2, -1, -1, -1)).byte()
    images = ImageSet("bars", stored, torch.ones(2, dtype=torch.int64), weights.classes)
    found = affine(weights, images, CPU)
    assert list(found.errors) == list(PARTS)
    assert found.frame == 28
    assert found.errors["as they are"].errors == 0
    assert affine(replace(weights, checkpoint="best"), images, CPU).to_json()["checkpoint"] == "best"
    framed = affine(weights, images, CPU, frame=40)
    assert framed.frame == 40
    assert framed.to_json()["errors"]["all"]["images"] == 2
    assert Affine.from_json(json.loads(json.dumps(framed.to_json()))) == framed


def test_what_cannot_be_changed(noise_images: ImageSet) -> None:
    weights = trained("qcn-mnist")
    noise = replace(
        noise_images, stored=noise_images.stored[:, :1], labels=noise_images.labels, classes=weights.classes
    )
    with pytest.raises(QuatcapsError, match=r"noise: 1% of its border pixels are black; .* such as mnist"):
        affine(weights, noise, CPU)
    black = replace(noise, stored=torch.zeros_like(noise.stored))
    with pytest.raises(QuatcapsError, match="a frame of 20: it must be from 32, the side of the images, to 512"):
        affine(weights, black, CPU, frame=20)


def test_networks_of_different_frames_say_so(tmp_path: Path) -> None:
    errors = {name: Rate(1, 10) for name in PARTS}
    found = [Affine(f"runs/{name}", "cnn", 5, "MNIST test", frame, errors) for name, frame in (("a", 28), ("b", 40))]
    same, differing = affine_table(found[:1]), affine_table(found)
    assert same.title == "MNIST test, affine changes on 28×28 pixels"
    assert [row[0] for row in same.rows] == ["a"]
    assert differing.title == "MNIST test, affine changes"
    assert [row[0] for row in differing.rows] == ["a, 28×28", "b, 40×40"]
    affine_figure(found, tmp_path / "affine.png")
    assert (tmp_path / "affine.png").exists()

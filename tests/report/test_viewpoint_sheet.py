"""One toy from every side."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from pictures import recorded
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.report import canvas, viewpoint_sheet
from quatcaps.report.viewpoint_sheet import GAP, MARKS, choose_toy, tile

AZIMUTHS = [*range(180, 360, 20), *range(0, 180, 20)]
ELEVATIONS = list(range(70, 25, -5))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    return recorded(monkeypatch, viewpoint_sheet)


def mosaic(figure: Figure, path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The part of the picture with the views."""
    picture = np.asarray(Image.open(path).convert("RGB"))
    (axes,) = figure.axes
    box = axes.get_window_extent()
    return picture[round(len(picture) - box.y1) : round(len(picture) - box.y0), round(box.x0) : round(box.x1)]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def check_placed(figure: Figure) -> None:
    """Nothing that is written is cut off or lies on anything else that is written or on the views."""
    boxes = [text.get_window_extent() for text in figure.texts] + [axes.get_window_extent() for axes in figure.axes]
    sheet = figure.bbox
    assert all(sheet.x0 <= box.x0 and box.x1 <= sheet.x1 and sheet.y0 <= box.y0 and box.y1 <= sheet.y1 for box in boxes)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("label", [None, 3])
def test_every_view_stands_in_its_row_and_column(
    label: int | None, toys: ImageSet, tmp_path: Path, drawn: list[Figure]
) -> None:
    path = tmp_path / "toy.png"
    viewpoint_sheet.viewpoint_sheet(toys, path, label)
    (figure,) = drawn
    views = mosaic(figure, path)
    assert views.shape == (9 * 96 + 8 * GAP, 18 * 96 + 17 * GAP, 3)
    of_toy = (toys.labels == (label or 0)) & (toys.info["instance"] == 0)
    for index in of_toy.nonzero()[:, 0].tolist():
        column = AZIMUTHS.index(10 * int(toys.info["azimuth"][index]))
        row = ELEVATIONS.index(30 + 5 * int(toys.info["elevation"][index]))
        top, left = row * (96 + GAP), column * (96 + GAP)
        assert (views[top : top + 96, left : left + 96] == int(toys.images[index, 0, 0, 0])).all()
    written = texts(figure)
    assert written[0] == f"toys test, {toys.classes[label or 0]}, instance 0, left view"
    assert [text for text in written if text.endswith("°")] == [f"{angle}°" for angle in AZIMUTHS + ELEVATIONS]
    check_placed(figure)


def test_familiar_viewpoints_are_marked(toys: ImageSet, tmp_path: Path, drawn: list[Figure]) -> None:
    path = tmp_path / "toy.png"
    viewpoint_sheet.viewpoint_sheet(toys, path)
    (figure,) = drawn
    assert texts(figure)[-2:] == ["familiar in the azimuth experiment", "familiar in the elevation experiment"]
    picture = np.asarray(Image.open(path).convert("RGB")).astype(int)
    (axes,) = figure.axes
    box = axes.get_window_extent()
    left, top, bottom = round(box.x0), round(len(picture) - box.y1), round(len(picture) - box.y0)
    azimuth, elevation = (
        np.abs(picture - np.array([255 * part for part in to_rgb(colour)])).max(2) < 8 for colour in MARKS.values()
    )
    columns = azimuth[:top].any(0).nonzero()[0]
    assert (columns[0], columns[-1]) == (left + 6 * (96 + GAP), left + 11 * (96 + GAP) + 95)
    rows = elevation[:bottom].any(1).nonzero()[0]
    assert (rows[0], rows[-1]) == (top + 6 * (96 + GAP), bottom - 1)
    assert not elevation[:bottom, left:].any()


def test_missing_views_leave_a_pale_field(toys: ImageSet, tmp_path: Path, drawn: list[Figure]) -> None:
    gone = (toys.info["azimuth"] == 18) & (toys.info["elevation"] == 8)
    path = tmp_path / "toy.png"
    viewpoint_sheet.viewpoint_sheet(toys.select(~gone), path)
    views = mosaic(drawn[0], path)
    assert (views[:96, :96] == np.round(255 * np.array(to_rgb(canvas.SHADE)))).all()
    assert (views[:96, 96 + GAP :][:, :96] == int(choose_view(toys, 200, 70))).all()


def choose_view(images: ImageSet, azimuth: int, elevation: int) -> torch.Tensor:
    return images.images[choose_toy(images, None).views[azimuth, elevation], 0, 0, 0]


def test_few_views_and_long_names(toys: ImageSet, tmp_path: Path, drawn: list[Figure]) -> None:
    novel = toys.select((toys.info["azimuth"] == 10) & (toys.info["elevation"] == 7))
    named = replace(novel, name="$a very long name$ " * 12, classes=("Gänseblümchen und anderes",) * 5)
    viewpoint_sheet.viewpoint_sheet(named, tmp_path / "toy.png")
    (figure,) = drawn
    assert not any("familiar" in text for text in texts(figure))
    assert texts(figure)[0].startswith(r"\$a very long name\$")
    check_placed(figure)


def test_the_heading_names_instance_and_lighting(noise_images: ImageSet, tmp_path: Path, drawn: list[Figure]) -> None:
    viewpoint_sheet.viewpoint_sheet(noise_images, tmp_path / "toy.png", 1)
    assert texts(drawn[0])[0] == "noise, two, instance 0, lighting 4, left view"
    check_placed(drawn[0])


def test_one_toy_in_one_light_is_chosen(noise_images: ImageSet) -> None:
    toy = choose_toy(noise_images, 1)
    for (azimuth, elevation), index in toy.views.items():
        info = {field: int(column[index]) for field, column in noise_images.info.items()}
        assert (10 * info["azimuth"], 30 + 5 * info["elevation"]) == (azimuth, elevation)
        assert (info["instance"], info["lighting"], int(noise_images.labels[index])) == (0, 4, 1)


@pytest.mark.parametrize(
    ("side", "expected"), [(1, 96), (32, 96), (48, 96), (64, 128), (96, 96), (191, 191), (400, 100)]
)
def test_tiles_are_whole_multiples_or_parts_of_images(side: int, expected: int) -> None:
    pattern = torch.arange(side).to(torch.uint8).expand(1, 3, side, side).clone()
    images = ImageSet("x", pattern, torch.tensor([0]), ("a",))
    shown = tile(images, 0)
    assert shown.shape == (expected, expected, 3)
    if expected % side == 0:
        assert np.array_equal(shown[0, :: expected // side, 0], pattern[0, 0, 0].numpy())


def test_what_cannot_be_shown(toys: ImageSet, tmp_path: Path) -> None:
    path = tmp_path / "toy.png"
    with pytest.raises(QuatcapsError, match="has no elevation info, so no viewpoints to show"):
        viewpoint_sheet.viewpoint_sheet(replace(toys, info={"azimuth": toys.info["azimuth"]}), path)
    with pytest.raises(QuatcapsError, match="holds no image to show"):
        viewpoint_sheet.viewpoint_sheet(toys.select(toys.labels < 0), path)
    with pytest.raises(QuatcapsError, match="label = 5: toys test has classes 0 … 4"):
        viewpoint_sheet.viewpoint_sheet(toys, path, 5)
    with pytest.raises(QuatcapsError, match="holds no image of class 2, 'airplane': choose another"):
        viewpoint_sheet.viewpoint_sheet(toys.select(toys.labels != 2), path, 2)
    assert not path.exists()

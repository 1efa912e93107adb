from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch.nn.functional import one_hot

from pictures import recorded, smallest_letters
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.report import mistakes
from quatcaps.report.mistakes import Mistake, mistakes_of, mistakes_sheet


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    return recorded(monkeypatch, mistakes)


def test_the_surest_come_first() -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    activations = torch.tensor(
        [[0.9, 0.1, 0.1], [0.5, 0.4, 0.1], [0.1, 0.8, 0.3], [0.2, 0.1, 0.8], [0.8, 0.25, 0.1], [0.8, 0.1, 0.25]]
    )
    found = mistakes_of(labels, activations)
    assert [each.number for each in found] == [3, 4, 5, 2, 1], "equal ones: the less active true class first"
    assert found[-1] == Mistake(1, 1, 0, pytest.approx(0.4), pytest.approx(0.5))


def test_the_gallery_shows_image_classes_and_activations(toys: ImageSet, tmp_path: Path, drawn: list[Figure]) -> None:
    """Stereo pairs by their first view, whose pixels an image of the toys tells by."""
    activations = 0.25 + 0.5 * one_hot(toys.labels, 5).float()
    for place, number in enumerate((7, 400, 1100)):
        activations[number] = activations[number].roll(1)
        activations[number, (toys.labels[number] + 1) % 5] -= 0.01 * place
    path = tmp_path / "mistakes.png"
    gallery = mistakes_sheet(toys, activations, path, most=2)
    assert gallery == (path, "2 of 3 mistakes shown")
    (figure,) = drawn
    texts = [text.get_text() for text in figure.texts]
    assert texts[0] == "toys test: 2 of 3 mistakes shown"
    assert "first view of each pair" in texts[1]
    assert texts[2:] == [
        "given: human figu… 0.75",
        "true: four-legge… 0.25",
        "image 7",
        "given: airplane 0.74",
        "true: human figu… 0.25",
        "image 400",
    ]
    assert smallest_letters(figure) >= 11
    picture = np.asarray(Image.open(path).convert("RGB"))
    for axes, number in zip(figure.axes, (7, 400), strict=True):
        box = axes.get_window_extent()
        tile = picture[round(len(picture) - box.y1) : round(len(picture) - box.y0), round(box.x0) : round(box.x1)]
        assert tile.shape == (240, 240, 3)
        assert (tile == int(toys.images[number, 0, 0, 0])).all()


def test_nothing_is_drawn_without_a_mistake(toys: ImageSet, tmp_path: Path, drawn: list[Figure]) -> None:
    path = tmp_path / "mistakes.png"
    path.write_bytes(b"of an earlier evaluation")
    assert mistakes_sheet(toys, one_hot(toys.labels, 5).float(), path) == (None, "no mistakes among 1,620 images")
    assert not drawn
    assert not path.exists()


def test_images_larger_than_a_tile_and_in_colour(tmp_path: Path, drawn: list[Figure]) -> None:
    colours = torch.randint(256, (30, 3, 300, 500), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = ImageSet("$colours$ " * 30, colours, torch.zeros(30, dtype=torch.int64), ("$a$", "b"))
    gallery = mistakes_sheet(images, torch.tensor([[0.0, 1.0]]).expand(30, 2), tmp_path / "mistakes.png")
    assert gallery.words == "24 of 30 mistakes shown"
    (figure,) = drawn
    assert len(figure.axes) == 24
    assert "first view" not in figure.texts[1].get_text()
    box = figure.axes[0].get_window_extent()
    assert (round(box.width), round(box.height)) == (240, 144)
    assert figure.texts[3].get_text() == r"true: \$a\$ 0.00"
    with pytest.raises(QuatcapsError, match="most = 0"):
        mistakes_sheet(images, torch.zeros(30, 2), tmp_path / "none.png", most=0)

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from pictures import legend_of, smallest_letters
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.report import canvas, contact, curves, figures
from quatcaps.report.canvas import places
from quatcaps.report.intervals import wilson
from quatcaps.report.tables import MANY_CLASSES
from quatcaps.training.config import TrainingConfig
from quatcaps.training.measure import Evaluation, Rate, evaluate

FAMILIAR = (300, 320, 340, 0, 20, 40)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were saved, in order."""
    saved: list[Figure] = []

    def save(figure: Figure, path: Path, **settings: Any) -> None:
        saved.append(figure)
        canvas.save(figure, path, **settings)

    for module in (figures, contact, curves):
        monkeypatch.setattr(module, "save", save)
    return saved


@pytest.fixture
def losses() -> dict[str, str]:
    return dict.fromkeys(("qcn $5", "cnn", "untested", "new", "broken"), "cross-entropy")


def pixels(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.asarray(Image.open(path).convert("RGB"))


def has_ink(axes: Axes, path: Path) -> bool:
    """Whether a panel shows any colour of data: neither grey nor white."""
    image = pixels(path).astype(int)
    box = axes.get_window_extent()
    part = image[len(image) - int(box.y1) : len(image) - int(box.y0), int(box.x0) : int(box.x1)]
    return bool((part.max(2) - part.min(2) > 80).any())


@pytest.mark.parametrize("epochs", [1, 2, 300])
def test_training_curves(
    epochs: int, log: Callable[[int], list[dict[str, Any]]], losses: dict[str, str], tmp_path: Path, drawn: list[Figure]
) -> None:
    path = tmp_path / "training.png"
    figures.training_curves({"qcn $5": log(epochs), "cnn": log(epochs)}, losses, path)
    (figure,) = drawn
    loss, error = figure.axes
    assert all(has_ink(axes, path) for axes in figure.axes)
    assert pixels(path).shape == (640, 1536, 3)
    training, test = error.lines[:2]
    assert list(training.get_xdata()) == list(range(1, epochs + 1))
    assert training.get_ydata() == pytest.approx([80 / (1 + epoch) for epoch in range(epochs)])
    assert list(test.get_xdata()) == list(range(1, epochs + 1, 2))
    assert loss.lines[0].get_ydata()[-1] == pytest.approx(1 / epochs)
    assert error.get_ylim()[0] == 0
    ticks = loss.get_xticks()
    assert ticks[0] == 1
    assert all(tick == int(tick) <= epochs for tick in ticks)
    assert len(ticks) <= 10


def test_curves_without_test_errors_or_without_epochs(
    log: Callable[[int], list[dict[str, Any]]], losses: dict[str, str], tmp_path: Path, drawn: list[Figure]
) -> None:
    untested = [{**record, "test_error": None} for record in log(3)]
    figures.training_curves(
        {"untested": untested, "new": log(0), "broken": [{**untested[1], "loss": float("nan")}]},
        losses,
        tmp_path / "a.png",
    )
    figures.training_curves({"new": []}, losses, tmp_path / "b.png")
    loss, error = drawn[0].axes
    assert [len(line.get_xdata()) for line in loss.lines] == [3, 0, 0]
    assert [len(line.get_xdata()) for line in error.lines] == [3, 0, 0, 0, 1, 0]
    assert [text.get_text() for text in drawn[1].axes[0].texts] == ["no finished epoch"]


def test_losses_of_different_kinds_never_share_an_axis(
    log: Callable[[int], list[dict[str, Any]]], tmp_path: Path, drawn: list[Figure]
) -> None:
    kinds = {"qcn": "spread loss", "cnn": "cross-entropy", "vb": "cross-entropy"}
    figures.training_curves({name: log(3) for name in kinds}, kinds, tmp_path / "training.png")
    spread, entropy, error = drawn[0].axes
    assert (spread.get_ylabel(), entropy.get_ylabel(), error.get_ylabel()) == (
        *dict.fromkeys(kinds.values()),
        "error (%)",
    )
    assert [len(axes.lines) for axes in (spread, entropy, error)] == [1, 2, 6]
    assert spread.lines[0].get_color() == error.lines[0].get_color() != entropy.lines[0].get_color()
    assert legend_of(drawn[0]) == [*kinds, "training", "test"]


def test_losses_in_words() -> None:
    words = [
        curves.loss_words(TrainingConfig(**settings))
        for settings in ({}, {"loss": "cross-entropy"}, {"pose_weight": 0.3}, {"class_weights": "balanced"})
    ]
    assert words == ["spread loss", "cross-entropy", "spread loss + 0.3 × pose loss", "weighted spread loss"]


def test_the_circle_is_cut_so_that_familiar_azimuths_stand_together_in_the_middle() -> None:
    placed = places("azimuth", range(0, 360, 20), FAMILIAR)
    order = list(placed)
    assert order == [*range(180, 360, 20), *range(0, 180, 20)]
    assert order[6:12] == list(FAMILIAR)
    assert {
        after - before for before, after in zip(list(placed.values())[:-1], list(placed.values())[1:], strict=True)
    } == {20}
    assert list(places("azimuth", range(0, 360, 20))) == list(range(0, 360, 20))
    assert list(places("azimuth", FAMILIAR)) == list(FAMILIAR)
    assert list(places("azimuth", range(60, 300, 20), FAMILIAR)) == list(range(60, 300, 20))
    assert list(places("azimuth", [40])) == [40]
    assert list(places("elevation", [40, 30, 35], (30,))) == [30, 35, 40]


def test_error_by_azimuth(evaluation: Evaluation, tmp_path: Path, drawn: list[Figure]) -> None:
    path = tmp_path / "azimuth.png"
    figures.error_by_viewpoint({"qcn": evaluation, "cnn": evaluation}, "azimuth", FAMILIAR, path)
    (figure,) = drawn
    (axes,) = figure.axes
    assert has_ink(axes, path)
    labels = [int(label.get_text()) for label in axes.get_xticklabels()]
    assert labels == [*range(180, 360, 20), *range(0, 180, 20)]
    first, second = axes.lines
    assert list(first.get_ydata()) == [evaluation.by_azimuth[angle].percent for angle in labels]
    assert first.get_marker() != second.get_marker()
    assert first.get_color() != second.get_color()
    (shaded,) = axes.patches
    left, right = shaded.get_x(), shaded.get_x() + shaded.get_width()  # type: ignore[attr-defined]
    assert [label for label, place in zip(labels, axes.get_xticks(), strict=True) if left < place < right] == list(
        FAMILIAR
    )
    assert [text.get_text() for text in axes.texts] == ["novel", "familiar", "novel"]
    assert legend_of(figure) == ["qcn", "cnn", "95% interval (Wilson)", "familiar azimuths"]
    (interval, _) = axes.collections
    assert len(interval.get_segments()) == 18
    assert axes.get_xlabel() == "azimuth (°)"
    assert axes.get_ylabel() == "error (%)"


def test_error_by_elevation_and_the_chance_line(
    toys: ImageSet, evaluated: Callable[[ImageSet, float, int], Evaluation], tmp_path: Path, drawn: list[Figure]
) -> None:
    figures.error_by_viewpoint({"bad": evaluated(toys, 0.7, 1)}, "elevation", (30, 35, 40), tmp_path / "elevation.png")
    (axes,) = drawn[0].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == [str(angle) for angle in range(30, 75, 5)]
    assert [text.get_text() for text in axes.texts] == ["familiar", "novel", "chance\n80%"]
    assert axes.get_ylim()[1] > 80


def test_viewpoints_that_do_not_exist(evaluation: Evaluation, tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="did you mean 'azimuth'"):
        figures.error_by_viewpoint({"qcn": evaluation}, "azimut", (), tmp_path / "a.png")
    with pytest.raises(QuatcapsError, match="no evaluation of qcn knows the azimuth"):
        figures.error_by_viewpoint({"qcn": replace(evaluation, by_azimuth={})}, "azimuth", (), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_evaluation_figure_has_all_panels(evaluation: Evaluation, tmp_path: Path, drawn: list[Figure]) -> None:
    path = tmp_path / "evaluation.png"
    figures.evaluation_figure(evaluation, path, FAMILIAR, "qcn")
    (figure,) = drawn
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Confusion matrix (images)", "Error by class", "Error by azimuth", "Error by elevation"]
    assert all(has_ink(axes, path) for axes in figure.axes)
    counts = [text.get_text() for text in figure.axes[0].texts]
    assert counts == [str(count) for row in evaluation.confusion for count in row]
    bars = [bar.get_width() for bar in figure.axes[1].patches]  # type: ignore[attr-defined]
    assert bars == [rate.percent for rate in evaluation.by_class if rate]
    assert f"{evaluation.total.percent:.2f}%" in figure.get_suptitle()


def test_evaluation_figure_has_intervals_one_scale_and_a_legend(
    evaluation: Evaluation, tmp_path: Path, drawn: list[Figure]
) -> None:
    figures.evaluation_figure(evaluation, tmp_path / "evaluation.png", FAMILIAR, "qcn")
    (figure,) = drawn
    matrix, by_class, azimuth, elevation = figure.axes
    for axes, counted in ((azimuth, evaluation.by_azimuth), (elevation, evaluation.by_elevation)):
        (intervals,) = axes.collections
        ends = sorted(tuple(segment[:, 1]) for segment in intervals.get_segments())
        assert np.allclose(ends, sorted(wilson(rate) for rate in counted.values()))
    spans = [part.get_segments()[0][:, 0] for part in by_class.collections]
    assert np.allclose(spans, [wilson(rate) for rate in evaluation.by_class if rate])
    assert azimuth.get_ylim() == elevation.get_ylim()
    assert azimuth.get_ylim()[1] > max(wilson(rate).high for rate in evaluation.by_elevation.values())
    words = ["error", "95% interval (Wilson)", "darker: more of the class shown", "familiar azimuths"]
    assert legend_of(figure) == words
    assert all(text.get_text().isdecimal() for text in matrix.texts)
    assert smallest_letters(figure) >= 11
    boxes = [label.get_window_extent() for label in matrix.get_xticklabels()]
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))


def test_numbers_of_up_to_twenty_classes_can_be_read(tmp_path: Path, drawn: list[Figure]) -> None:
    labels = torch.arange(2000) % 20
    images = ImageSet(
        "x", torch.zeros(2000, 1, 1, 1, dtype=torch.uint8), labels, tuple(f"class {n}" for n in range(20))
    )
    named = torch.where(torch.arange(2000) < 500, (labels + 1) % 20, labels)
    found = evaluate(images, torch.nn.functional.one_hot(named, 20).float())
    figures.evaluation_figure(found, tmp_path / "twenty.png", network="qcn")
    (figure,) = drawn
    assert smallest_letters(figure) >= 11
    matrix, _ = figure.axes
    assert matrix.get_position().width > 0.7, "a row of its own"
    cell = matrix.get_window_extent().width / 20
    assert all(text.get_window_extent().width < cell for text in matrix.texts)


def test_evaluation_figure_leaves_out_panels_without_data(
    evaluation: Evaluation, tmp_path: Path, drawn: list[Figure]
) -> None:
    perfect = replace(
        evaluation,
        total=Rate(0, 9),
        by_class=(None, Rate(0, 9), None, None, None),
        confusion=((0,) * 5, (0, 9, 0, 0, 0), (0,) * 5, (0,) * 5, (0,) * 5),
        by_azimuth={},
        by_elevation={},
    )
    figures.evaluation_figure(perfect, tmp_path / "perfect.png")
    figures.evaluation_figure(replace(perfect, by_elevation={30: Rate(1, 9)}), tmp_path / "elevation.png")
    assert [len(figure.axes) for figure in drawn] == [2, 3]
    assert drawn[0].axes[1].texts[0].get_text() == "no images"


def test_evaluation_figure_of_many_classes_stays_small(
    of_many_classes: Evaluation, tmp_path: Path, drawn: list[Figure]
) -> None:
    """22,500 texts took half a minute: the matrix is an image, and at most so many classes are named."""
    path = tmp_path / "many.png"
    figures.evaluation_figure(of_many_classes, path, network="qcn")
    (figure,) = drawn
    matrix, scale, by_class = figure.axes
    assert len(figure.findobj()) < 1000
    assert not matrix.texts
    (image,) = matrix.images
    assert np.array_equal(image.get_array(), of_many_classes.confusion)
    assert has_ink(matrix, path)
    assert [label.get_text() for label in matrix.get_yticklabels()[:2]] == ["kind 0 of a thing", "kind 8 of a thing"]
    assert len(matrix.get_xticks()) == len(matrix.get_yticks()) == 19
    bars = [bar.get_width() for bar in by_class.patches]  # type: ignore[attr-defined]
    largest = sorted((rate.percent for rate in of_many_classes.by_class if rate), reverse=True)
    assert bars == largest[:MANY_CLASSES]
    assert by_class.get_yticklabels()[0].get_text() == "kind 3 of a thing"
    boxes = [label.get_window_extent() for label in by_class.get_yticklabels()]
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))
    assert by_class.get_title(loc="left") == "Error by class: the 20 largest of 150"
    assert scale.get_ylim() == (0, 20)
    ticks = [label.get_text() for label in scale.get_yticklabels()]
    assert ticks[:2] == ["0", "1"]
    assert ticks[-1] == "20"
    assert all(tick.isdecimal() for tick in ticks)


def test_contact_sheet_shows_left_views_of_each_class_crisply(
    toys: ImageSet, tmp_path: Path, drawn: list[Figure]
) -> None:
    path = tmp_path / "samples.png"
    figures.contact_sheet(toys, path, per_class=6)
    (figure,) = drawn
    assert len(figure.axes) == 30
    image = pixels(path)
    for number, axes in enumerate(figure.axes):
        label, column = divmod(number, 6)
        box = axes.get_window_extent()
        top, left = round(len(image) - box.y1), round(box.x0)
        tile = image[top : top + 192, left : left + 192]
        index = contact.choose(toys, label, 6)[column]
        assert (tile == int(toys.images[index, 0, 0, 0])).all()
    texts = [text.get_text() for text in figure.texts]
    assert all(name.replace(" ", "\n") in texts or name in texts for name in toys.classes)
    assert "0°, 30°" in texts


def test_chosen_views_differ_in_azimuth_and_repeat_no_image(toys: ImageSet) -> None:
    for label in range(5):
        chosen = contact.choose(toys, label, 8)
        assert (toys.labels[chosen] == label).all()
        assert len(toys.info["azimuth"][chosen].unique()) == 8
        assert len(toys.info["elevation"][chosen].unique()) >= 5
        assert len(set(contact.choose(toys, label, 40))) == 40
    few = toys.select(toys.info["azimuth"] < 4)
    few = few.select(few.info["elevation"] == 0)
    assert sorted(contact.choose(few, 0, 9)) == (few.labels == 0).nonzero()[:, 0].tolist()


def test_contact_sheet_of_colour_images_without_viewpoints(tmp_path: Path, drawn: list[Figure]) -> None:
    colours = torch.randint(256, (3, 3, 8, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = ImageSet("colours", colours, torch.tensor([0, 0, 2]), ("a", "none", "c"))
    figures.contact_sheet(images, tmp_path / "samples.png", per_class=4)
    assert [text.get_text() for text in drawn[0].texts] == ["colours", "a", "none", "c"]
    sheet = pixels(tmp_path / "samples.png")
    assert len(drawn[0].axes) == 3
    for axes, image in zip(drawn[0].axes, colours, strict=True):
        box = axes.get_window_extent()
        tile = sheet[round(len(sheet) - box.y1) :, round(box.x0) :][: 8 * 19, : 10 * 19]
        assert np.array_equal(tile, image.permute(1, 2, 0).numpy().repeat(19, 0).repeat(19, 1))


def test_contact_sheet_of_many_classes_shows_some_of_them(tmp_path: Path, drawn: list[Figure]) -> None:
    labels = torch.arange(150).repeat(2)
    images = ImageSet("many", torch.zeros(300, 1, 2, 2, dtype=torch.uint8), labels, tuple(map(str, range(150))))
    figures.contact_sheet(images, tmp_path / "samples.png", per_class=1)
    assert len(drawn[0].axes) == 19
    assert [text.get_text() for text in drawn[0].texts] == ["many (19 of 150 classes)", *map(str, range(0, 150, 8))]


def test_contact_sheet_of_nothing_is_refused(toys: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="per_class = 0"):
        figures.contact_sheet(toys, tmp_path / "a.png", per_class=0)
    with pytest.raises(QuatcapsError, match="no image"):
        figures.contact_sheet(toys.select(toys.labels < 0), tmp_path / "a.png")


def test_a_failed_write_leaves_the_old_picture(
    evaluation: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "azimuth.png"
    path.write_bytes(b"old")

    def half_write(self: Image.Image, target: Path, **settings: Any) -> None:
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", half_write)
    with pytest.raises(QuatcapsError, match="the disk is full"):
        figures.error_by_viewpoint({"qcn": evaluation}, "azimuth", FAMILIAR, path)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["azimuth.png"]

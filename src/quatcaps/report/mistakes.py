"""The gallery of mistakes: the images that a network misclassified, those first of which it was surest."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained
from quatcaps.report.canvas import GREY, INK, SMALL, TEXT, literal, save
from quatcaps.report.contact import pixels

# Everything is placed by the dot, so that each pixel of an image becomes a square of whole dots.
DOTS_PER_INCH = 160
COLUMNS, TILE, GAP, MARGIN, HEADING, LINE = 6, 240, 14, 16, 96, 30
LONGEST_NAME, LONGEST_TITLE = 11, 80
"""Letters of a class's name that a tile has room for, and of the dataset's that the sheet has."""
MOST = 24
"""The most mistakes that are shown."""


class Mistake(NamedTuple):
    """An image, its class and the one that the network gave it, with the activation of both."""

    number: int  # of the image, from 0
    true: int
    given: int
    true_activation: float
    given_activation: float


class Gallery(NamedTuple):
    """What was drawn: the file, if there was a mistake to show, and how many were."""

    path: Path | None
    words: str


def mistakes_of(labels: Tensor, activations: Tensor) -> list[Mistake]:
    """The mistakes among (N,) labels and (N, classes) activations, the largest activation of the given class first;
    equal ones by that of the true class, the smallest first, then in the order of the images."""
    sure, given = activations.max(1)
    wrong = (given != labels).nonzero()[:, 0].tolist()
    found = [
        Mistake(
            index, int(labels[index]), int(given[index]), float(activations[index, labels[index]]), float(sure[index])
        )
        for index in wrong
    ]
    return sorted(found, key=lambda each: (-each.given_activation, each.true_activation, each.number))


def mistakes_sheet(images: ImageSet, activations: Tensor, path: Path, most: int = MOST) -> Gallery:
    """Draws the surest `most` mistakes. Without a mistake there is no picture: one of an earlier evaluation is removed.

    Each image has below it the class given and the true class, each with its activation, and its number in the set.
    Stereo pairs show their first view.
    """
    if most < 1:
        raise QuatcapsError(f"most = {most}: it must be 1 or more")
    found = mistakes_of(images.labels, activations)
    if not found:
        with explained(f"remove {path}"):
            path.unlink(missing_ok=True)
        return Gallery(None, f"no mistakes among {len(images):,} images")
    shown = found[:most]
    counted = f"{len(shown):,} of {len(found):,} mistakes shown"
    height, width = images.size
    scale = TILE / max(height, width)
    scale = max(1, math.floor(scale)) if scale >= 1 else scale
    across, down = round(scale * width), round(scale * height)
    columns, rows = COLUMNS, math.ceil(len(shown) / COLUMNS)
    row_height = down + 3 * LINE + GAP
    sheet_width, sheet_height = 2 * MARGIN + columns * (TILE + GAP) - GAP, HEADING + rows * row_height + MARGIN
    figure = Figure((sheet_width / DOTS_PER_INCH, sheet_height / DOTS_PER_INCH), DOTS_PER_INCH, facecolor="white")

    def at(left: int | float, top: int | float) -> tuple[float, float]:
        return left / sheet_width, 1 - top / sheet_height

    notes = "first the surest; below each image: class given and true class with their activations, its number from 0"
    notes += "; first view of each pair" * (images.channels == 2)
    title = literal(f"{textwrap.shorten(images.name, LONGEST_TITLE, placeholder='…')}: {counted}")
    figure.text(*at(MARGIN, 0.3 * HEADING), title, va="center", fontsize=TEXT, fontweight="bold", color=INK)
    figure.text(*at(MARGIN, 0.68 * HEADING), notes, va="center", fontsize=SMALL, color=GREY)
    for place, mistake in enumerate(shown):
        row, column = divmod(place, columns)
        left, top = MARGIN + column * (TILE + GAP), HEADING + row * row_height
        axes = figure.add_axes((*at(left, top + down), across / sheet_width, down / sheet_height))
        one = images.at(torch.tensor([mistake.number]))[0]
        axes.imshow(pixels(one), interpolation="nearest" if scale >= 1 else "antialiased", aspect="auto")
        axes.set_axis_off()
        captions = (
            (f"given: {named(images, mistake.given)} {mistake.given_activation:.2f}", INK),
            (f"true: {named(images, mistake.true)} {mistake.true_activation:.2f}", INK),
            (f"image {mistake.number:,}", GREY),
        )
        for line, (words, colour) in enumerate(captions):
            below = at(left, top + down + (line + 0.55) * LINE)
            figure.text(*below, literal(words), va="center", fontsize=SMALL, color=colour)
    save(figure, path, exact=True)
    return Gallery(path, counted)


def named(images: ImageSet, label: int) -> str:
    """The name of a class, shortened to what a tile has room for."""
    name = images.classes[label]
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"

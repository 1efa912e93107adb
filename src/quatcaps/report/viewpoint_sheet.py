"""The viewpoint sheet: one toy from every side, with the viewpoints marked that a network is trained on."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import FAMILIAR, degrees
from quatcaps.errors import QuatcapsError
from quatcaps.report.canvas import GREY, INK, SHADE, literal, places, save
from quatcaps.report.contact import pixels
from quatcaps.report.styles import PALETTE

Picture = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]

# Everything is placed by the dot, so that each pixel of an image becomes a square of whole dots.
DOTS_PER_INCH = 160
TILE, GAP, MARGIN, LINE, STROKE = 96, 4, 20, 36, 6
ANGLES, MARK = 128, 16
"""Room for the degrees at the left, and for the lines that mark what is familiar."""
NARROWEST, LETTER = 800, 16
TEXT, SMALL = 12.5, 11.5
"""Sizes of letters in points: 18 azimuths make the sheet wider than other pictures, and it is shrunk more."""
MARKS = {"azimuth": PALETTE[0], "elevation": PALETTE[1]}


class Toy(NamedTuple):
    """The views of one toy under one light: which image shows it from which azimuth and elevation, in degrees."""

    title: str
    views: dict[tuple[int, int], int]
    azimuths: list[int]  # from left to right
    elevations: list[int]  # from top to bottom


def viewpoint_sheet(images: ImageSet, path: Path, label: int | None = None) -> None:
    """One toy in one light: rows are elevations, the highest on top, and columns azimuths, the familiar in the middle.

    It is the toy with the smallest number in class `label`, by default in the first class, under the first lighting.
    Stereo pairs show their left view. Viewpoints without an image stay empty.
    """
    toy = choose_toy(images, label)
    across, down = tile(images, 0).shape[1::-1]
    left = MARGIN + ANGLES + MARK
    sheet_width = max(NARROWEST, left + len(toy.azimuths) * (across + GAP) - GAP + MARGIN)
    heading = textwrap.wrap(toy.title, (sheet_width - 2 * MARGIN) // LETTER)
    shown = [field for field in MARKS if familiar_runs(field, toy.azimuths if field == "azimuth" else toy.elevations)]
    top = MARGIN + len(heading) * LINE + MARGIN // 2 + 2 * LINE + MARK
    bottom = top + len(toy.elevations) * (down + GAP) - GAP
    sheet_height = bottom + MARGIN + len(shown) * LINE + (MARGIN if shown else 0)
    figure = Figure((sheet_width / DOTS_PER_INCH, sheet_height / DOTS_PER_INCH), DOTS_PER_INCH, facecolor="white")

    def at(x: int | float, y: int | float) -> tuple[float, float]:
        return x / sheet_width, 1 - y / sheet_height

    def mark(field: str, x: int | float, y: int | float, across: int = 0, down: int = 0) -> None:
        start, end = at(x, y), at(x + across, y + down)
        line = Line2D([start[0], end[0]], [start[1], end[1]], color=MARKS[field], solid_capstyle="butt")
        line.set_linewidth(STROKE * 72 / DOTS_PER_INCH)
        figure.add_artist(line)

    for row, line in enumerate(heading):
        figure.text(*at(MARGIN, MARGIN + (row + 0.5) * LINE), literal(line), va="center", fontsize=TEXT, color=INK)
    above, beside = top - MARK, left - MARK
    figure.text(*at(left, above - 1.5 * LINE), "azimuth", va="center", fontsize=SMALL, color=GREY)
    figure.text(*at(beside - 4, above - 0.5 * LINE), "elevation", ha="right", va="center", fontsize=SMALL, color=GREY)
    for column, angle in enumerate(toy.azimuths):
        middle = left + column * (across + GAP) + across / 2
        figure.text(*at(middle, above - 0.5 * LINE), f"{angle}°", ha="center", va="center", fontsize=SMALL, color=INK)
    for row, angle in enumerate(toy.elevations):
        middle = top + row * (down + GAP) + down / 2
        figure.text(*at(beside - 4, middle), f"{angle}°", ha="right", va="center", fontsize=SMALL, color=INK)
    for first, last in familiar_runs("azimuth", toy.azimuths):
        length = (last - first) * (across + GAP) + across
        mark("azimuth", left + first * (across + GAP), top - MARK / 2, across=length)
    for first, last in familiar_runs("elevation", toy.elevations):
        length = (last - first) * (down + GAP) + down
        mark("elevation", left - MARK / 2, top + first * (down + GAP), down=length)

    sheet = mosaic(images, toy)
    axes = figure.add_axes((*at(left, bottom), sheet.shape[1] / sheet_width, sheet.shape[0] / sheet_height))
    axes.imshow(sheet, interpolation="nearest", aspect="auto")
    axes.set_axis_off()
    for row, field in enumerate(shown):
        y = bottom + MARGIN + (row + 0.5) * LINE
        mark(field, left, y, across=40)
        words = f"familiar in the {field} experiment"
        figure.text(*at(left + 52, y), words, va="center", fontsize=SMALL, color=INK)
    save(figure, path, exact=True)


def choose_toy(images: ImageSet, label: int | None) -> Toy:
    """The toy that the sheet shows."""
    for field in ("azimuth", "elevation"):
        if field not in images.info:
            raise QuatcapsError(
                f"{images.name} has no {field} info, so no viewpoints to show: use a dataset of viewpoints such as toys"
            )
    if not len(images):
        raise QuatcapsError(f"{images.name} holds no image to show")
    chosen = int(images.labels.min()) if label is None else label
    if not 0 <= chosen < len(images.classes):
        raise QuatcapsError(f"label = {chosen}: {images.name} has classes 0 … {len(images.classes) - 1}")
    here = images.labels == chosen
    if not here.any():
        raise QuatcapsError(
            f"{images.name} holds no image of class {chosen}, {images.classes[chosen]!r}: choose another"
        )
    titles = [images.name, images.classes[chosen]]
    for field in ("instance", "lighting"):
        if field in images.info:
            smallest = int(images.info[field][here].min())
            here = here & (images.info[field] == smallest)
            titles.append(f"{field} {smallest}")
    if images.channels == 2:
        titles.append("left view")
    views: dict[tuple[int, int], int] = {}
    for index in here.nonzero()[:, 0].tolist():
        azimuth, elevation = (degrees(field, int(images.info[field][index])) for field in ("azimuth", "elevation"))
        views.setdefault((azimuth, elevation), index)
    familiar = [degrees("azimuth", code) for code in FAMILIAR["azimuth"]]
    azimuths = list(places("azimuth", {azimuth for azimuth, _ in views}, familiar))
    return Toy(", ".join(titles), views, azimuths, sorted({elevation for _, elevation in views}, reverse=True))


def familiar_runs(field: str, angles: Sequence[int]) -> list[tuple[int, int]]:
    """The first and last place of each run of familiar viewpoints along an edge, whose angles are in degrees.

    >>> familiar_runs("elevation", [70, 45, 40, 35, 30])
    [(2, 4)]
    """
    familiar = {degrees(field, code) for code in FAMILIAR[field]}
    runs = []
    for known, run in groupby(range(len(angles)), key=lambda place: angles[place] in familiar):
        members = list(run)
        if known:
            runs.append((members[0], members[-1]))
    return runs


def tile(images: ImageSet, index: int) -> Picture:
    """(height, width, 3): an image at a whole multiple or a whole part of its size, about `TILE` dots across."""
    picture = pixels(images.at(torch.tensor([index]))[0])
    longer = max(picture.shape[:2])
    if longer >= 2 * TILE:
        return np.asarray(Image.fromarray(picture).reduce(longer // TILE))
    scale = max(1, round(TILE / longer))
    return picture.repeat(scale, 0).repeat(scale, 1)


def mosaic(images: ImageSet, toy: Toy) -> Picture:
    """(height, width, 3): the views in their rows and columns, on white; a missing one is a pale field."""
    down, across = tile(images, 0).shape[:2]
    pale = np.array([round(255 * part) for part in to_rgb(SHADE)], dtype=np.uint8)
    rows, columns = len(toy.elevations), len(toy.azimuths)
    sheet: Picture = np.full((rows * (down + GAP) - GAP, columns * (across + GAP) - GAP, 3), 255, dtype=np.uint8)
    for row, elevation in enumerate(toy.elevations):
        for column, azimuth in enumerate(toy.azimuths):
            index = toy.views.get((azimuth, elevation))
            top, left = row * (down + GAP), column * (across + GAP)
            shown = pale if index is None else tile(images, index)
            sheet[top : top + down, left : left + across] = shown
    return sheet

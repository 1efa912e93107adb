"""The contact sheet: a few images of every class, at a whole multiple of their size."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import degrees
from quatcaps.errors import QuatcapsError
from quatcaps.report.canvas import GREY, INK, SMALL, TEXT, literal, save
from quatcaps.report.tables import MANY_CLASSES

# Everything is placed by the dot, so that each pixel of an image becomes a square of whole dots.
DOTS_PER_INCH = 200
TILE, GAP, CAPTION, NAMES, HEADING = 192, 12, 34, 236, 56
STRIDES = {"instance": 0.618, "elevation": 0.414, "lighting": 0.732}
"""How far each field moves on from one column to the next, as a part of its range; they never fall into step."""


def contact_sheet(images: ImageSet, path: Path, per_class: int = 8) -> None:
    """Rows are classes; columns go around the azimuths, with instances, elevations and lightings mixed.

    Stereo pairs show their left view. Of more than `MANY_CLASSES`, some are shown, evenly chosen. The choice depends
    on nothing but the images.
    """
    if per_class < 1:
        raise QuatcapsError(f"per_class = {per_class}: it must be 1 or more")
    if not len(images):
        raise QuatcapsError(f"{images.name} holds no image to show")
    labels = range(0, len(images.classes), -(-len(images.classes) // MANY_CLASSES))
    height, width = images.size
    scale = max(1, round(TILE / max(height, width)))
    across, down = scale * width, scale * height
    captioned = "azimuth" in images.info and "elevation" in images.info
    row_height = down + GAP + (CAPTION if captioned else 0)
    sheet_width = NAMES + per_class * (across + GAP) + GAP
    sheet_height = HEADING + len(labels) * row_height
    figure = Figure((sheet_width / DOTS_PER_INCH, sheet_height / DOTS_PER_INCH), DOTS_PER_INCH, facecolor="white")

    def at(left: int | float, top: int | float) -> tuple[float, float]:
        return left / sheet_width, 1 - top / sheet_height

    notes = [f"{len(labels)} of {len(images.classes)} classes"] * (len(labels) < len(images.classes))
    notes += ["left view of each pair"] * (images.channels == 2) + ["azimuth, elevation below each view"] * captioned
    heading = f"{images.name} ({'; '.join(notes)})" if notes else images.name
    figure.text(*at(NAMES, HEADING / 2), literal(heading), va="center", fontsize=SMALL, color=GREY)
    for row, label in enumerate(labels):
        top = HEADING + row * row_height
        named = literal(textwrap.fill(images.classes[label], 12))
        figure.text(*at(NAMES - 2 * GAP, top + down / 2), named, ha="right", va="center", fontsize=TEXT, color=INK)
        for column, index in enumerate(choose(images, label, per_class)):
            left = NAMES + column * (across + GAP)
            axes = figure.add_axes((*at(left, top + down), across / sheet_width, down / sheet_height))
            axes.imshow(pixels(images.at(slice(index, index + 1))[0]), interpolation="nearest", aspect="auto")
            axes.set_axis_off()
            if captioned:
                below = at(left + across / 2, top + down + 4)
                figure.text(*below, viewpoint(images, index), ha="center", va="top", fontsize=SMALL, color=GREY)
    save(figure, path, exact=True)


def choose(images: ImageSet, label: int, count: int) -> list[int]:
    """Indices of at most `count` images of a class: azimuths evenly around the circle, all else spread widely."""
    left = images.labels == label
    count = min(count, int(left.sum()))
    if "azimuth" not in images.info:
        of_class = left.nonzero()[:, 0]
        return [int(of_class[place * len(of_class) // count]) for place in range(count)]
    known = images.info["azimuth"][left].unique()
    chosen: list[int] = []
    for place in range(count):
        here = left & (images.info["azimuth"] == known[place * len(known) // count])
        # A rare azimuth can run out; any other image of the class will do.
        here = here if here.any() else left
        for field, stride in STRIDES.items():
            if field in images.info:
                values = images.info[field][here].unique()
                here = here & (images.info[field] == values[int(len(values) * (place * stride % 1))])
        chosen.append(int(here.nonzero()[0, 0]))
        left[chosen[-1]] = False
    return chosen


def viewpoint(images: ImageSet, index: int) -> str:
    """An image's azimuth and elevation in degrees."""
    return ", ".join(f"{degrees(field, int(images.info[field][index]))}°" for field in ("azimuth", "elevation"))


def pixels(image: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """(channels, height, width) to (height, width, 3); grey and stereo images show their first channel."""
    return (image if len(image) == 3 else image[:1].expand(3, -1, -1)).permute(1, 2, 0).cpu().numpy()

"""What the figures share: sizes, axes, viewpoints along an axis, files. The colours of networks are in `styles`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image

from quatcaps.data.viewpoints import FAMILIAR
from quatcaps.errors import unknown_name
from quatcaps.files import new_file
from quatcaps.report.palettes import indexed, lessened
from quatcaps.training.measure import Evaluation, Rate

INK, MUTED, RULE, SHADE = "#1a1a1a", "#5f6368", "#d9dce0", "#e9eef3"
GREY = "#5f5f5f"
"""MUTED beside grey images: a sheet without another hue has few colours."""
TEXT, SMALL = 10.0, 9.0
"""Sizes of letters in points."""
WIDTH = 9.6
"""Inches: where a page shows a picture of this width on 860 pixels, the smallest letters have 11."""
DOTS_PER_INCH = 160
CHANCE_SHOWN_FROM = 0.6
"""The share of the chance error that the largest error must reach before the chance line is drawn."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that size in inches, which arranges its own axes."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, hspace=0.03, wspace=0.03)
    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white", layout=layout)


def save(figure: Figure, path: Path, *, exact: bool = False) -> None:
    """Writes a PNG whole or not at all; `exact` where it shows images, whose pixels must not change."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    whole = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    picture = indexed(whole) if exact else lessened(whole)
    with new_file(path) as temporary:
        picture.save(temporary, format="png", optimize=True)


def tint(colour: str, share: float = 0.5) -> str:
    """A colour mixed with white, for areas that lines are drawn on."""
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def readable_on(colour: str | tuple[float, float, float, float]) -> str:
    """Black or white, whichever is easier to read on a colour: the contrast is 4.58 or more."""
    light = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), light, strict=True))
    return "black" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "white"


def literal(text: str) -> str:
    """Text as it is: matplotlib would set what stands between two dollar signs as mathematics."""
    return text.replace("$", r"\$")


def dress(axes: Axes, title: str, across: str, up: str) -> None:
    """Titles and labels, a light grid behind the data and no frame."""
    axes.set_title(title, loc="left", fontsize=TEXT, fontweight="bold", color=INK)
    axes.set_xlabel(across, fontsize=TEXT, color=INK)
    axes.set_ylabel(up, fontsize=TEXT, color=INK)
    axes.tick_params(labelsize=SMALL, colors=INK, length=3, color=MUTED)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MUTED)


def error_axis(axes: Axes, percents: Iterable[float], classes: int = 0) -> None:
    """An axis of errors from 0 with room above the largest; with `classes` the chance line, unless far above it."""
    largest = max(percents, default=0.0)
    chance = 100 * (1 - 1 / classes) if classes > 1 else 0.0
    if chance and largest >= CHANCE_SHOWN_FROM * chance:
        axes.axhline(chance, color=MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=1)
        axes.text(
            1.01,
            chance,
            f"chance\n{chance:.3g}%",
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=SMALL,
            color=MUTED,
        )
        largest = max(largest, chance)
    axes.set_ylim(0, min(max(1.2 * largest, 1.0), 115))


def rates_by(evaluation: Evaluation, field: str) -> Mapping[int, Rate]:
    """An evaluation's errors by `azimuth` or `elevation`, in degrees."""
    if field not in FAMILIAR:
        raise unknown_name("viewpoint", field, FAMILIAR)
    return evaluation.by_azimuth if field == "azimuth" else evaluation.by_elevation


def places(field: str, angles: Iterable[int], familiar: Sequence[int] = ()) -> dict[int, float]:
    """Where each angle stands on a straight axis, in order; both in degrees.

    Elevations stand where they are. The circle of azimuths is cut opposite the familiar ones, so that these stand
    together in the middle; without any, it is cut in its widest gap.

    >>> list(places("azimuth", range(0, 360, 60), (300, 0, 60)))
    [180, 240, 300, 0, 60, 120]
    """
    known = set(angles)
    if field != "azimuth" or not known:
        return {angle: float(angle) for angle in sorted(known)}
    block = sorted({angle % 360 for angle in (known.intersection(familiar) or known)})
    gaps = [(following - angle) % 360 or 360 for angle, following in pairwise([*block, block[0]])]
    last = max(range(len(block)), key=lambda index: (gaps[index], index))
    first, width = block[(last + 1) % len(block)], 360 - gaps[last]
    cut = first + width / 2 - 180
    placed = {angle: cut + (angle - cut) % 360 for angle in known}
    return dict(sorted(placed.items(), key=lambda item: item[1]))


def spacing(placed: Mapping[int, float]) -> float:
    """The smallest distance between neighbours."""
    return min((after - before for before, after in pairwise(placed.values())), default=10.0)


def viewpoint_axis(axes: Axes, placed: Mapping[int, float]) -> None:
    """Ticks with each angle as the dataset numbers it, as many as are legible."""
    every = -(-len(placed) // 18)
    angles = list(placed)[::every]
    axes.set_xticks([placed[angle] for angle in angles], [str(angle) for angle in angles])
    half = spacing(placed) / 2
    axes.set_xlim(min(placed.values()) - half, max(placed.values()) + half)


def shade_familiar(axes: Axes, placed: Mapping[int, float], familiar: Sequence[int]) -> None:
    """Shades the familiar viewpoints and says at the top which blocks are familiar and which novel."""
    if not set(familiar).intersection(placed):
        return
    half = spacing(placed) / 2
    for known, block in groupby(placed, key=set(familiar).__contains__):
        angles = list(block)
        left, right = placed[angles[0]] - half, placed[angles[-1]] + half
        if known:
            axes.axvspan(left, right, color=SHADE, linewidth=0, zorder=0)
        axes.text(
            (left + right) / 2,
            0.985,
            "familiar" if known else "novel",
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=SMALL,
            color=MUTED,
        )

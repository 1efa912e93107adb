"""A step's timeline as a picture: what ran when, coloured by what it is for, and how long each group took in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from quatcaps.bench.kernels import (
    BACKWARD,
    CONVOLUTION,
    FORWARD,
    GRADIENT,
    LAYOUT,
    NORMALISATION,
    OPTIMISER,
    OTHER,
)
from quatcaps.bench.timeline import Timeline, timeline_title, timeline_words
from quatcaps.bench.trace import Span
from quatcaps.report.canvas import INK, MUTED, RULE, SHADE, SMALL, TEXT, WIDTH, dress, literal, new_figure, save
from quatcaps.report.styles import BLUE, GREEN, NEUTRAL, ORANGE, PINK, SKY, VERMILLION, WINE

COLOURS: Mapping[str, str] = {
    CONVOLUTION: BLUE,
    GRADIENT: SKY,
    NORMALISATION: GREEN,
    LAYOUT: VERMILLION,
    FORWARD: PINK,
    BACKWARD: WINE,
    OPTIMISER: ORANGE,
    OTHER: NEUTRAL,
}
PER_LINE = 80
"""Kernels of a line of the timeline, on average: more of them could not be told from each other."""
MOST_LINES = 6
APART = 0.003
"""The part of a line from which a span is told from its neighbour by a white edge."""
LONG = 20_000.0
"""Microseconds from which a step is told in milliseconds."""
TRACK, GAP = 0.8, 0.45
"""Heights of what runs at the same time, and between lines, in units of the axis."""


def timeline_figure(timeline: Timeline, path: Path) -> None:
    """The step cut into lines of the same length, one below the other; what runs at once stands in tracks. Below it,
    bars of the sums, which explain the colours."""
    sums = timeline.sums()
    lines = max(1, min(MOST_LINES, -(-len(timeline.spans) // PER_LINE)))
    tracks = tracks_of(timeline.spans)
    depth = 1 + max((track for track in tracks), default=0)
    heights = (0.5 + lines * (0.3 * depth + 0.12), 0.7 + 0.32 * len(sums))
    figure = new_figure(WIDTH, 1.0 + sum(heights))
    title = f"{timeline.machine['machine']}, torch {timeline.machine['versions']['torch']}\n{timeline_words(timeline)}"
    figure.suptitle(literal(title), x=0.02, ha="left", fontsize=TEXT, color=INK)
    above, below = figure.subplots(2, 1, height_ratios=heights)
    _lines(above, timeline, tracks, lines, depth)
    _bars(below, timeline, sums)
    save(figure, path)


class Unit(NamedTuple):
    """Of times, and its microseconds."""

    name: str
    microseconds: float

    def written(self, microseconds: float) -> str:
        value = microseconds / self.microseconds
        return f"{value:,.0f} {self.name}" if value >= 20 or value == 0 else f"{value:.2g} {self.name}"


def unit_of(timeline: Timeline) -> Unit:
    return Unit("ms", 1000.0) if timeline.wall > LONG else Unit("µs", 1.0)


def _in_units(axes: Axes, unit: Unit) -> None:
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value / unit.microseconds:,g}"))


def tracks_of(spans: Sequence[Span]) -> list[int]:
    """For each span, by their starts, the first track that is free."""
    free: list[float] = []
    found = []
    for span in spans:
        track = next((number for number, until in enumerate(free) if until <= span.start + 1e-6), len(free))
        if track == len(free):
            free.append(0.0)
        free[track] = span.start + span.duration
        found.append(track)
    return found


def _lines(axes: Axes, timeline: Timeline, tracks: Sequence[int], lines: int, depth: int) -> None:
    dress(axes, literal(timeline_title(timeline)), f"{unit_of(timeline).name} from the beginning of a line", "")
    axes.grid(False)
    length, step = timeline.wall / lines or 1.0, depth + GAP
    for line in range(lines):
        rest = min(length, timeline.wall - line * length)
        axes.barh(line * step + (depth - 1) / 2, rest, height=depth, color=SHADE, linewidth=0, zorder=0)
    drawn: dict[tuple[float, str, bool], list[tuple[float, float]]] = {}
    for span, track in zip(timeline.spans, tracks, strict=True):
        for line, start, duration in pieces(span, length, lines):
            wide = duration > APART * length
            drawn.setdefault((line * step + track, span.group, wide), []).append((start, duration))
    for (middle, group, wide), parts in drawn.items():
        axes.broken_barh(
            parts,
            (middle - TRACK / 2, TRACK),
            facecolor=COLOURS[group],
            edgecolor="white" if wide else "none",
            linewidth=0.5 if wide else 0.0,
        )
    axes.set_yticks(
        [line * step + (depth - 1) / 2 for line in range(lines)],
        [f"from {unit_of(timeline).written(line * length)}" for line in range(lines)],
    )
    axes.set_ylim(lines * step - GAP / 2 - 0.5, -0.75)
    axes.set_xlim(0, length)
    axes.tick_params(axis="y", length=0, labelsize=SMALL)
    _in_units(axes, unit_of(timeline))
    axes.spines["left"].set_visible(False)


def pieces(span: Span, length: float, lines: int) -> list[tuple[int, float, float]]:
    """A span as (line, start in it, duration): several where it goes on in the next line."""
    end, last = span.start + span.duration, lines - 1
    first = min(last, int(span.start // length))
    parts = []
    for line in range(first, lines):
        start = max(span.start, line * length)
        until = end if line == last else min(end, (line + 1) * length)
        if until > start:
            parts.append((line, start - line * length, until - start))
    return parts


def _bars(axes: Axes, timeline: Timeline, sums: Mapping[str, tuple[int, float]]) -> None:
    dress(axes, f"In all, by what they are for; grey above: no {timeline.what[:-1]} runs", unit_of(timeline).name, "")
    axes.grid(False)
    longest = max((total for _, total in sums.values()), default=1.0)
    for place, (group, (count, total)) in enumerate(sums.items()):
        axes.barh(place, total, height=0.7, color=COLOURS[group])
        axes.annotate(
            f"{unit_of(timeline).written(total)} in {count}",
            (total, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            color=INK,
        )
    axes.axvline(0, color=RULE, linewidth=0.8)
    axes.set_yticks(range(len(sums)), [literal(group) for group in sums])
    axes.set_ylim(len(sums) - 0.4, -0.6)
    axes.set_xlim(0, 1.25 * longest)
    axes.tick_params(axis="y", length=0, labelsize=TEXT)
    _in_units(axes, unit_of(timeline))
    axes.spines["left"].set_color(MUTED)

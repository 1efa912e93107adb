"""The forest plot of pairs of systems, azimuths and elevations together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from quatcaps.paper.evidence_figures import Lines, difference_handles, draw_estimate
from quatcaps.paper.evidence_lines import Pair, label, together
from quatcaps.paper.evidence_rows import TOGETHER
from quatcaps.paper.marks import Look, style
from quatcaps.report.canvas import MUTED, RULE, TEXT, WIDTH, dress, literal, new_figure, save

ZERO: Look = {"color": MUTED, "linewidth": 1.0, "zorder": 1}


def draw_together(lines: Lines, path: Path) -> None:
    """A panel for each group of experiments, pairs down; nothing where no pair has runs in both."""
    found = {title: together(lines, names) for title, names in TOGETHER.items()}
    found = {title: pairs for title, pairs in found.items() if pairs}
    if not found:
        return
    counts = [len(pairs) for pairs in found.values()]
    figure = new_figure(WIDTH, 0.9 + 0.75 * len(counts) + 0.28 * sum(counts))
    panels = figure.subplots(len(counts), 1, squeeze=False, sharex=True, height_ratios=[1 + each for each in counts])
    for axes, (title, pairs) in zip(panels[:, 0], found.items(), strict=True):
        dress(axes, f"{title}: novel azimuths and elevations together", "", "")
        _panel(axes, pairs)
    panels[-1, 0].set_xlabel("points; left of 0 the first has fewer errors", fontsize=TEXT)
    handles = difference_handles()[1:]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=TEXT)
    save(figure, path)


def _panel(axes: Axes, pairs: Sequence[Pair]) -> None:
    axes.axvline(0, **ZERO)
    for level, pair in enumerate(pairs):
        found = pair.differences["novel"]
        draw_estimate(axes, found, float(level), style(pair.first.entry), hollow=not found.sign)
    names = [f"{label(pair.first.entry.row)} less {label(pair.second.entry.row)}" for pair in pairs]
    axes.set_yticks(range(len(pairs)), [literal(name) for name in names])
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.tick_params(axis="y", labelsize=TEXT, length=0)
    axes.tick_params(axis="x", labelbottom=True)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=RULE, linewidth=0.8)

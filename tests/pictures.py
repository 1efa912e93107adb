"""What tests ask of figures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from quatcaps.report import canvas

PAGE = 860
"""Pixels of a page's width."""


def recorded(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[Figure]:
    """The figures that a module will have saved, in order."""
    saved: list[Figure] = []

    def save(figure: Figure, path: Path, *, exact: bool = False) -> None:
        saved.append(figure)
        canvas.save(figure, path, exact=exact)

    monkeypatch.setattr(module, "save", save)
    return saved


def legend_of(figure: Figure) -> list[str]:
    """The words of the figure's legend."""
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def smallest_letters(figure: Figure) -> float:
    """Pixels of the smallest letters where a page shows the figure's whole width."""
    shown = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()]
    return min(text.get_fontsize() for text in shown) / 72 * PAGE / figure.get_figwidth()


def touching(figure: Figure) -> list[tuple[str, str]]:
    """Neighbours along an x axis that touch or lie on each other; words of several lines are left out."""
    figure.draw_without_rendering()
    found = []
    for axes in figure.axes:
        low, high = sorted(axes.get_xlim())
        ticks = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        words = [tick.label1 for tick in ticks if tick.label1.get_visible() and tick.label1.get_text()]
        words = [word for word in words if word.get_rotation() == 0 and "\n" not in word.get_text()]
        for left, right in pairwise(words):
            if left.get_window_extent().x1 >= right.get_window_extent().x0:
                found.append((left.get_text(), right.get_text()))
    return found

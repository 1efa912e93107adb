"""What tests ask of figures."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.text import Text

PAGE = 860
"""Pixels of a page's width."""


def legend_of(figure: Figure) -> list[str]:
    """The words of the figure's legend."""
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def smallest_letters(figure: Figure) -> float:
    """Pixels of the smallest letters where a page shows the figure's whole width."""
    shown = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()]
    return min(text.get_fontsize() for text in shown) / 72 * PAGE / figure.get_figwidth()

"""The pictures of the ablation: the steps from `paper` to `best`, and what was tried beside them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from quatcaps.paper.ablation import STEPS
from quatcaps.paper.collection import Entry
from quatcaps.paper.marks import Look
from quatcaps.paper.toy_errors import HARDEST, REFERENCE, against_best, complete, fold_errors, hardest, mean_error
from quatcaps.report.canvas import INK, RULE, SMALL, WIDTH, dress, literal, new_figure, save, tint
from quatcaps.report.styles import BEST, NEUTRAL, QCN

LETTERS = 32
"""Of a setting's words on one line."""
STEP_KEYS = tuple(f"ablation/{key}" for key, _, _ in STEPS)
COLOURS = {"ablation/paper": QCN.colour, REFERENCE: BEST.colour}
"""Settings that other pictures show too; the rest is neither."""


def draw_ablation(entries: Sequence[Entry], path: Path) -> None:
    """Two pictures on the same scales: the steps, and beside it `…-tried.png`, what they might have been."""
    trained = [entry for entry in entries if entry.records]
    steps = [entry for entry in trained if entry.row.key in STEP_KEYS]
    tried = [entry for entry in trained if entry.row.key not in STEP_KEYS]
    _draw(steps, entries, path)
    _draw(tried, entries, path.with_name(f"{path.stem}-tried{path.suffix}"))


def _draw(shown: Sequence[Entry], entries: Sequence[Entry], path: Path) -> None:
    """The mean error over held-out toys as a bar, each run as a dot, and what it is against `best`; settings down. Bars
    are of those alone that have seen all toys."""
    whole, aside = complete(entries), hardest(entries)
    names = [literal(textwrap.fill(entry.row.system, LETTERS)) for entry in shown]
    lines = [1 + 0.35 * name.count("\n") for name in names]
    figure = new_figure(WIDTH, 2.2 + 0.36 * max(sum(lines), 1.0))
    *errors, against = figure.subplots(1, 3, sharey=True)
    largest = max((error for entry in entries for error in fold_errors(entry)), default=20.0)
    titles = ("all toys", f"without the {HARDEST} hardest")
    for axes, without, title in zip(errors, ([], aside), titles, strict=True):
        dress(axes, title, "error (%)", "")
        for level, entry in enumerate(shown):
            colour = colour_of(entry)
            mean, found = mean_error(entry, without), fold_errors(entry, without)
            if mean is not None and entry in whole:
                axes.barh(level, mean, height=0.62, color=tint(colour, 0.4), zorder=2)
                _value(axes, level, f"{mean:.1f}")
            dots: Look = {"linestyle": "none", "marker": "o", "markersize": 5, "markeredgecolor": "white", "zorder": 3}
            axes.plot(found, [level] * len(found), color=colour, **dots)
        axes.set_xlim(0, 1.04 * largest)
    _against(against, shown, entries)
    for axes in (*errors, against):
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        axes.set_ylim(max(len(shown), 1) - 0.5, -0.5)
        axes.set_yticks(range(len(shown)), names)
        axes.tick_params(axis="y", labelsize=SMALL, length=0)
    figure.legend(handles=_handles(shown, whole), loc="outside upper left", ncols=2, frameon=False, fontsize=SMALL)
    save(figure, path)


def colour_of(entry: Entry) -> str:
    return COLOURS.get(entry.row.key, NEUTRAL)


def _against(axes: Axes, shown: Sequence[Entry], entries: Sequence[Entry]) -> None:
    """Differences from `best` with their standard error, on a scale that has room for those of all entries."""
    dress(axes, "against best, same toys", "percentage points more", "")
    axes.axvline(0, color=BEST.colour, linewidth=1.4, zorder=2)
    found = {entry.row.key: against_best(entry, entries) for entry in entries if entry.records}
    reach = [abs(each.mean) + (each.uncertainty or 0.0) for each in found.values() if each]
    furthest = 1.1 * max([1.0, *reach])
    for level, entry in enumerate(shown):
        if difference := found[entry.row.key]:
            mark: Look = {"marker": "D", "markersize": 5.5, "markeredgecolor": "white", "elinewidth": 1.6}
            spread = difference.uncertainty or 0.0
            axes.errorbar(difference.mean, level, xerr=spread, color=colour_of(entry), zorder=3, **mark)
            _value(axes, level, f"{difference.mean:+.1f}".replace("-", "−"))
    axes.set_xlim(-furthest, furthest)


def _handles(shown: Sequence[Entry], whole: Sequence[Entry]) -> list[Line2D | Patch]:
    """What the marks mean."""
    dots: Look = {"linestyle": "none", "marker": "o", "markersize": 5.5}
    every = all(entry in whole for entry in shown)
    bar = "mean over all held-out toys, also as a number" + (
        "" if every else "; none where some toys were not measured"
    )
    handles: list[Line2D | Patch] = [
        Patch(color=tint(NEUTRAL, 0.4), label=textwrap.fill(bar, 52)),
        Line2D([], [], color=NEUTRAL, label="one run, which holds out a toy of each class", **dots),
        Line2D([], [], color=NEUTRAL, marker="D", markersize=5.5, label="mean difference ± standard error over folds"),
        Line2D([], [], color=BEST.colour, linewidth=1.4, label="best itself"),
    ]
    keys = {entry.row.key for entry in shown}
    words = {"ablation/paper": "the settings of paper", REFERENCE: "the settings of best"}
    return handles + [Patch(color=COLOURS[key], label=told) for key, told in words.items() if key in keys]


def _value(axes: Axes, level: int, text: str) -> None:
    """A number beside the right border."""
    border = axes.get_yaxis_transform()
    axes.text(1.02, level, text, transform=border, ha="left", va="center", fontsize=SMALL, color=INK, zorder=4)

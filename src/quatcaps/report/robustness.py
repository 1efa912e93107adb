"""What attacks and affine changes made of networks, as tables and as pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from quatcaps.report.canvas import MUTED, SMALL, TEXT, WIDTH, dress, error_axis, literal, new_figure, save
from quatcaps.report.intervals import mcnemar, wilson
from quatcaps.report.styles import Style, styles_for, tails
from quatcaps.report.tables import NOTHING, Table
from quatcaps.robustness.affine_changes import Affine
from quatcaps.robustness.measure import Attacked
from quatcaps.training.measure import Rate

Line = Any
"""How matplotlib draws a line: a name, or lengths of strokes and gaps."""
ATTACKS: Mapping[str, tuple[str, Line]] = {
    "fgsm": ("#999933", "--"),
    "bim": ("#117733", "-."),
    "pgd": ("#332288", "-"),
    "vote": ("#aa4499", (0, (1, 1))),
    "apgd-ce": ("#88ccee", "-"),
    "apgd-dlr": ("#44aa99", "--"),
    "apgd-t": ("#44aa99", "-."),
    "fab-t": ("#cc6677", "--"),
    "square": ("#ddaa33", "-."),
    "ensemble": ("#661100", "-"),
    "autoattack": ("#aa0000", "-"),
}
"""Colours and lines of attacks; no network has these colours."""
TRANSFER = ("#777777", (0, (4, 1, 1, 1)))
UNITS = {False: "ε (pixels in [0, 1])", True: "ε (units of the network's input)"}


PAIRS = (
    "Images that an attack breaks in the first network alone : in the second alone (how likely chance splits them so "
    "unevenly, by McNemar's exact test)"
)


def attack_tables(found: Sequence[Attacked]) -> list[Table]:
    """For each network the error by attack and ε; then each pair of networks, and the nearest adversarial images of all
    networks."""
    found = told_apart(found)
    tables = [error_table(each) for each in found]
    if pairs := [pair_row(one, other) for one, other in combinations(found, 2) if comparable(one, other)]:
        columns = ("first · second", *(f"{epsilon:g}" for epsilon in found[0].epsilons))
        tables.append(Table(PAIRS, columns, tuple(pairs)))
    rows = [
        (each.name, attack, f"{held.found} of {held.images}", length(held.mean), length(held.median))
        for each in found
        for attack, held in each.nearest.items()
    ]
    columns = ("network", "attack", "found", "mean L2", "median L2")
    return [*tables, *([Table("The nearest adversarial images", columns, tuple(rows))] if rows else [])]


def comparable(one: Attacked, other: Attacked) -> bool:
    """Whether it is known which images each ε broke in both, and these are the same images."""
    return bool(one.broken and other.broken) and (one.images, one.epsilons) == (other.images, other.epsilons)


def pair_row(one: Attacked, other: Attacked) -> tuple[str, ...]:
    """By ε, how many images any attack broke in one of two networks alone."""
    cells = []
    for first, second in zip(map(set, one.broken), map(set, other.broken), strict=True):
        alone = (len(first - second), len(second - first))
        cells.append(f"{alone[0]} : {alone[1]} ({mcnemar(*alone):.3f})")
    return (f"{one.name} · {other.name}", *cells)


def told_apart(found: Sequence[Attacked]) -> list[Attacked]:
    """The same networks by the shortest names that tell them and their sources apart."""
    names = tails([name for each in found for name in (each.name, *each.transfer)])
    return [
        replace(each, name=names[each.name], transfer={names[name]: rates for name, rates in each.transfer.items()})
        for each in found
    ]


def error_table(found: Attacked) -> Table:
    """Errors in % of one network."""
    columns = ("error (%)", "ε = 0", *(f"{epsilon:g}" for epsilon in found.epsilons))
    clean = f"{found.clean.percent:.1f}"
    rows = [(attack, clean, *map(cell, rates)) for attack, rates in found.within.items()]
    if len(found.within) > 1:
        rows.append(("any of them", clean, *map(cell, found.strongest)))
    rows += [(f"from {name}", clean, *map(cell, rates)) for name, rates in found.transfer.items()]
    if not rows:
        rows = [("no attack", clean, *(NOTHING for _ in found.epsilons))]
    return Table(f"{found.name} ({found.parameters:,} parameters), {found.images}", columns, tuple(rows))


def cell(rate: Rate) -> str:
    return f"{rate.percent:.1f}"


def length(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


def affine_table(found: Sequence[Affine]) -> Table:
    """Errors in %, a row for each network."""
    names, first = framed_names(found), found[0]
    columns = ("error (%)", "parameters", *first.errors)
    rows = tuple(
        (names[each.name], f"{each.parameters:,}", *(f"{rate.percent:.2f}" for rate in each.errors.values()))
        for each in found
    )
    return Table(f"{first.images}, affine changes{framed(found)}", columns, rows)


def framed(found: Sequence[Affine]) -> str:
    """The frame of all networks, where it is one."""
    frame = found[0].frame
    return f" on {frame}×{frame} pixels" if all(each.frame == frame for each in found) else ""


def framed_names(found: Sequence[Affine]) -> dict[str, str]:
    """What networks are called beside each other, with their frames where these differ."""
    names = tails(each.name for each in found)
    return names if framed(found) else {each.name: f"{names[each.name]}, {each.frame}×{each.frame}" for each in found}


def attack_figure(found: Sequence[Attacked], path: Path, *, normalised: bool = False) -> None:
    """The error over ε: a panel for each network with a curve for each attack, and, of several networks, a panel with
    the error under any of the attacks."""
    found = told_apart(found)
    panels = len(found) + (len(found) > 1)
    columns = min(2, panels)
    rows = math.ceil(panels / columns)
    figure = new_figure(WIDTH, 0.7 + 3.8 * rows)
    places = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    for axes, each in zip(places, found, strict=False):
        draw_attacks(axes, each, UNITS[normalised])
    handles = [Line2D([], [], color=c, linestyle=s, linewidth=1.6, label=n) for n, (c, s) in styles_of(found).items()]
    if len(found) > 1:
        styles = styles_for(each.name for each in found)
        draw_networks(places[panels - 1], found, styles, UNITS[normalised])
        handles += [
            Line2D([], [], color=style.colour, marker=style.marker, linewidth=1.6, label=literal(name))
            for name, style in styles.items()
        ]
    handles.append(Line2D([], [], color=MUTED, linestyle=(0, (2, 2)), linewidth=1.2, label="without attack"))
    handles.append(Line2D([], [], color=MUTED, marker="|", linestyle="", markersize=9, label="95% interval (Wilson)"))
    for axes in places[panels:]:
        axes.set_axis_off()
    figure.legend(handles=handles, loc="outside upper left", ncols=5, frameon=False, fontsize=TEXT)
    save(figure, path)


def styles_of(found: Sequence[Attacked]) -> dict[str, tuple[str, Line]]:
    """The attacks that there are, in order, and examples of other networks."""
    names = [name for name in ATTACKS if any(name in each.within for each in found)]
    others = dict.fromkeys(f"from {name}" for each in found for name in each.transfer)
    return {**{name: ATTACKS[name] for name in names}, **{literal(name): TRANSFER for name in others}}


def draw_attacks(axes: Axes, found: Attacked, unit: str) -> None:
    dress(axes, literal(found.name), unit, "error (%)")
    curves = [(rates, *ATTACKS[name]) for name, rates in found.within.items()]
    curves += [(rates, *TRANSFER) for rates in found.transfer.values()]
    for number, (rates, colour, line) in enumerate(curves):
        draw_curve(axes, found, rates, Style(colour, "."), line, apart(number, len(curves)))
    axes.axhline(found.clean.percent, color=MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=1)
    epsilon_axis(axes, found.epsilons)


def draw_networks(axes: Axes, found: Sequence[Attacked], styles: Mapping[str, Style], unit: str) -> None:
    dress(axes, "Any of the attacks", unit, "error (%)")
    for number, each in enumerate(found):
        if each.strongest:
            draw_curve(axes, each, each.strongest, styles[each.name], "-", apart(number, len(found)))
    epsilon_axis(axes, sorted({epsilon for each in found for epsilon in each.epsilons}))


def apart(number: int, count: int) -> float:
    """A factor on ε by which curves stand beside each other, so that their intervals can be told apart."""
    return 1.025 ** (number - (count - 1) / 2)


def draw_curve(
    axes: Axes, found: Attacked, rates: Sequence[Rate], style: Style, line: Line, factor: float = 1.0
) -> None:
    percents, bounds = [rate.percent for rate in rates], [wilson(rate) for rate in rates]
    below = [percent - bound.low for percent, bound in zip(percents, bounds, strict=True)]
    above = [bound.high - percent for percent, bound in zip(percents, bounds, strict=True)]
    axes.errorbar(
        [factor * epsilon for epsilon in found.epsilons],
        percents,
        (below, above),
        color=style.colour,
        linestyle=line,
        marker=style.marker,
        linewidth=1.4,
        elinewidth=0.8,
        capsize=1.5,
    )


def epsilon_axis(axes: Axes, epsilons: Sequence[float]) -> None:
    """A logarithmic axis with each ε, or as many as are legible."""
    axes.set_xscale("log")
    if not epsilons:
        return
    axes.set_xlim(0.8 * epsilons[0], 1.25 * epsilons[-1])
    shown = epsilons[:: -(-len(epsilons) // 8)]
    axes.xaxis.set_major_locator(FixedLocator(list(shown)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{epsilon:g}" for epsilon in shown])
    axes.tick_params(labelleft=True, labelsize=SMALL)
    axes.set_ylim(0, 104)


def affine_figure(found: Sequence[Affine], path: Path) -> None:
    """The error by change, side by side."""
    figure = new_figure(WIDTH, 4.4)
    axes = figure.subplots()
    dress(axes, f"Affine changes in affNIST's ranges{framed(found)}", "", "error (%)")
    names, called = list(found[0].errors), framed_names(found)
    styles = styles_for(called.values())
    percents = [0.0]
    for number, each in enumerate(found):
        style = styles[called[each.name]]
        shift = 0.5 * ((number + 0.5) / len(found) - 0.5)
        values = [rate.percent for rate in each.errors.values()]
        bounds = [wilson(rate) for rate in each.errors.values()]
        reach = ([v - b.low for v, b in zip(values, bounds, strict=True)],
                 [b.high - v for v, b in zip(values, bounds, strict=True)])  # fmt: skip
        at = [place + shift for place in range(len(names))]
        axes.errorbar(at, values, reach, color=style.colour, marker=style.marker, linestyle="", capsize=2)
        percents += [bound.high for bound in bounds]
    axes.set_xticks(range(len(names)), names, fontsize=TEXT)
    error_axis(axes, percents)
    handles = [
        Line2D([], [], color=style.colour, marker=style.marker, linestyle="", label=literal(name))
        for name, style in styles.items()
    ]
    handles.append(Line2D([], [], color=MUTED, marker="|", linestyle="", markersize=9, label="95% interval (Wilson)"))
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=TEXT)
    save(figure, path)

"""What the poses of networks know, as tables and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from quatcaps.inspection.inspection import CLASSES, Inspection
from quatcaps.report.canvas import INK, MUTED, SMALL, TEXT, WIDTH, dress, literal, new_figure, save
from quatcaps.report.styles import Style, styles_for, tails
from quatcaps.report.tables import NOTHING, Table
from quatcaps.training.poses import NEAR

TOYS = (("#332288", "-"), ("#117733", "--"), ("#aa4499", ":"))
"""Colours and lines of the toys that turn; no network has these colours."""
ORIENTATION = "orientation"
TURN = 40
"""Degrees: the turn that the table tells of, where images are so far apart."""


def pose_tables(inspections: Sequence[Inspection]) -> list[Table]:
    """One column for each network; then the probes, layer by layer."""
    inspections = told_apart(inspections)
    names = [each.name for each in inspections]
    return [
        Table("Poses", ("", *names), tuple(lines(inspections))),
        *(probe_table(each) for each in inspections),
    ]


def lines(inspections: Sequence[Inspection]) -> list[tuple[str, ...]]:
    """What was measured, and a cell for each network: its number, the chance level in brackets. Lines that no network
    has are left out."""
    turn = shown_turn(inspections)
    columns = [cells(found, turn) for found in inspections]
    names = list(dict.fromkeys(name for column in columns for name in column))
    return [(name, *(column.get(name, NOTHING) for column in columns)) for name in names]


def shown_turn(inspections: Sequence[Inspection]) -> int:
    """TURN, or the smallest turn that images are apart."""
    turns = sorted({each.turn for found in inspections for each in found.transfer})
    return TURN if TURN in turns or not turns else turns[0]


def cells(found: Inspection, turn: int) -> dict[str, str]:
    """One network's column, in the order of the lines."""
    column = {"class error (%)": f"{found.error_percent:.2f}", "class pose": found.pose}
    if (residual := found.residual) is not None:
        column["residual of class poses (chance)"] = f"{residual.poses:.2g} ({residual.chance:.2g})"
        column["… activations change by"] = f"{residual.activations:.1e}"
    for each in found.transfer:
        if each.turn == turn:
            column[f"{turn}° turn, other toys (shuffled)"] = f"{each.error:.1f}° ({each.shuffled:.1f}°)"
            column["… error over shuffled"] = f"{each.ratio:.2f}"
            column["… pose moves by"] = f"{each.moved:.1f}°"
    if (composed := found.composition) is not None:
        column["9 × 20° from 180° (shuffled)"] = f"{composed.nine_steps:.1f}° ({composed.shuffled:.1f}°)"
        column["18 × 20° from the start"] = f"{composed.circle:.1f}°"
        column["… pose moves by, each"] = f"{composed.step:.1f}°"
    for how, probes in (("within a toy", found.within), ("across toys", found.across)):
        if (probe := probes.get(CLASSES)) is not None:
            read = f"R² {probe.azimuth_r2:.2f}, {probe.azimuth_degrees:.1f}° ({probe.chance_degrees:.0f}°)"
            column[f"azimuth {how} (chance)"] = read
    if (errors := found.orientation) is not None:
        column["orientation error (chance)"] = f"{errors.median:.1f}° ({found.chance_degrees:.0f}°)"
        for near, share in zip(NEAR, errors.within, strict=True):
            column[f"… within {near}° (%)"] = f"{100 * share:.1f}"
    return column


def probe_table(found: Inspection) -> Table:
    """What is read of azimuth and elevation, by layer."""
    columns = ("layer", "azimuth R²", "azimuth (°)", "elevation R²", "elevation (°)", "chance R²", "chance (°)")
    rows = []
    for how, probes in (("within a toy", found.within), ("across toys", found.across)):
        for layer, probe in probes.items():
            values = (probe.azimuth_r2, probe.azimuth_degrees, probe.elevation_r2, probe.elevation_degrees)
            chance = (probe.chance_r2, probe.chance_degrees)
            rows.append((f"{layer}, {how}", *(f"{value:.2f}" for value in (*values, *chance))))
    return Table(f"What a ridge regression reads from {found.name}", columns, tuple(rows))


def told_apart(inspections: Sequence[Inspection]) -> list[Inspection]:
    """The same networks by the shortest names that tell them apart."""
    names = tails(each.name for each in inspections)
    return [replace(each, name=names[each.name]) for each in inspections]


def pose_figure(inspections: Sequence[Inspection], path: Path) -> None:
    """For each network the turns of some toys; R² by layer; the error of a turn carried over to other toys."""
    inspections = told_apart(inspections)
    panels = len(inspections) + 2
    columns = 3 if panels == 3 else 2
    rows = math.ceil(panels / columns)
    figure = new_figure(WIDTH, 0.6 + (4.0 if columns == 3 else 3.8) * rows)
    places = figure.subplots(rows, columns, squeeze=False).flatten()
    styles = styles_for(found.name for found in inspections)
    for axes, found in zip(places, inspections, strict=False):
        draw_turns(axes, found)
    draw_layers(places[panels - 2], inspections, styles)
    draw_transfer(places[panels - 1], inspections, styles)
    for axes in places[panels:]:
        axes.set_axis_off()
    handles = [
        Line2D([], [], color=style.colour, marker=style.marker, linewidth=1.4, label=literal(name))
        for name, style in styles.items()
    ]
    handles.append(Line2D([], [], color=MUTED, linestyle=(0, (2, 2)), linewidth=1.2, label="shuffled pairs"))
    if any(found.pose == ORIENTATION for found in inspections):
        handles.append(Line2D([], [], color=MUTED, linewidth=0.8, label="unit circle: the toy's forward axis is level"))
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=TEXT)
    save(figure, path)


def draw_turns(axes: Axes, found: Inspection) -> None:
    """The path of each toy's pose over a turn: a dot for every view, and where it begins."""
    above = found.pose == ORIENTATION
    names = ("to the camera", "to the right") if above else ("first component", "second component")
    dress(axes, literal(found.name), f"{found.pose}: {names[0]}", names[1])
    for index, turn in enumerate(found.turns):
        points = [*turn.path, turn.path[0]] if turn.closed else list(turn.path)
        colour, line = TOYS[index % len(TOYS)]
        across, up = zip(*points, strict=True)
        axes.plot(across, up, color=colour, linestyle=line, linewidth=1.2, marker=".", label=literal(turn.toy))
        axes.annotate(f"{turn.azimuths[0]}°", turn.path[0], fontsize=SMALL, color=INK)
    if above:
        circle = [2 * math.pi * k / 90 for k in range(91)]
        axes.plot([math.cos(a) for a in circle], [math.sin(a) for a in circle], color=MUTED, linewidth=0.8, zorder=1)
        axes.set_xlim(-1.15, 1.15)
        axes.set_ylim(-1.15, 1.15)
    axes.set_aspect("equal", adjustable="box" if above else "datalim")
    if found.turns:
        look: dict[str, Any] = {"fontsize": SMALL, "title_fontsize": SMALL, "edgecolor": "none", "framealpha": 0.85}
        axes.legend(loc="upper right", title="toy, view by view;\nin °: where it begins", **look)


def draw_layers(axes: Axes, inspections: Sequence[Inspection], styles: Mapping[str, Style]) -> None:
    dress(axes, "Azimuth within a toy", "layer", "R²")
    for found in inspections:
        names = list(found.within)
        at = [k / max(1, len(names) - 1) for k in range(len(names))]
        values = [max(0.0, probe.azimuth_r2) for probe in found.within.values()]
        colour, marker = styles[found.name]
        axes.plot(at, values, color=colour, marker=marker, linewidth=1.4)
    axes.set_xticks([0, 1], ["first", "classes"])
    axes.set_ylim(0, 1.05)


def draw_transfer(axes: Axes, inspections: Sequence[Inspection], styles: Mapping[str, Style]) -> None:
    dress(axes, "Turns carried to other toys", "turn (°)", "error, in parts of shuffled pairs")
    axes.axhline(1, color=MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=1)
    highest = 1.0
    for found in inspections:
        turns, ratios = [each.turn for each in found.transfer], [each.ratio for each in found.transfer]
        colour, marker = styles[found.name]
        axes.plot(turns, ratios, color=colour, marker=marker, linewidth=1.4)
        highest = max([highest, *ratios])
    axes.set_xticks(range(20, 181, 40))
    axes.set_ylim(0, max(1.25, 1.05 * highest))

"""What the poses of networks know, as tables and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from quatcaps.inspection.inspection import CLASSES, Inspection
from quatcaps.report.canvas import INK, MARKERS, MUTED, PALETTE, SMALL, dress, literal, new_figure, save
from quatcaps.report.tables import NOTHING, Table
from quatcaps.training.poses import NEAR

TURN = 40
"""Degrees: the turn of the table's line."""


def pose_tables(inspections: Sequence[Inspection]) -> list[Table]:
    """One column for each network; then the probes, layer by layer."""
    names = [short(each.name) for each in inspections]
    return [
        Table("Poses", ("", *names), tuple(lines(inspections))),
        *(probe_table(each) for each in inspections),
    ]


def lines(inspections: Sequence[Inspection]) -> list[tuple[str, ...]]:
    """The table's lines: what was measured, and for each network its number with the chance level in brackets."""

    def line(name: str, of: object) -> tuple[str, ...]:
        return (name, *(of(each) for each in inspections))  # type: ignore[operator]

    found = [
        line("error of the classes (%)", lambda i: f"{i.error_percent:.2f}"),
        line("the pose of a class is", lambda i: i.pose),
        line("residual of class poses (chance)", residual),
        line("… largest change of an activation", lambda i: number(i.residual and i.residual.activations, "{:.1e}")),
        line(f"transfer of a turn of {TURN}°: error (shuffled)", transferred),
        line("… of it, in parts of shuffled", ratio),
        line(f"… how far {TURN}° move a pose", moved),
        line("nine turns of 20° and one of 180°: apart (shuffled)", composed),
        line("eighteen turns of 20°: from the start", lambda i: degrees(i.composition and i.composition.circle)),
        line("… how far 20° move a pose", lambda i: degrees(i.composition and i.composition.step)),
        line("azimuth read within a toy: R², median error (chance)", lambda i: read(i, "within")),
        line("azimuth read across toys: R², median error (chance)", lambda i: read(i, "across")),
        line("orientation: median error (chance)", orientation),
    ]
    found += [
        line(f"… within {near}° (%)", lambda i, k=k: number(i.orientation and 100 * i.orientation.within[k], "{:.1f}"))
        for k, near in enumerate(NEAR)
    ]
    return [each for each in found if any(cell != NOTHING for cell in each[1:])]


def residual(found: Inspection) -> str:
    return NOTHING if found.residual is None else f"{found.residual.poses:.2g} ({found.residual.chance:.2g})"


def transferred(found: Inspection) -> str:
    here = [each for each in found.transfer if each.turn == TURN]
    return f"{here[0].error:.1f}° ({here[0].shuffled:.1f}°)" if here else NOTHING


def ratio(found: Inspection) -> str:
    here = [each for each in found.transfer if each.turn == TURN]
    return f"{here[0].ratio:.2f}" if here else NOTHING


def moved(found: Inspection) -> str:
    here = [each for each in found.transfer if each.turn == TURN]
    return f"{here[0].moved:.1f}°" if here else NOTHING


def composed(found: Inspection) -> str:
    if found.composition is None:
        return NOTHING
    return f"{found.composition.nine_steps:.1f}° ({found.composition.shuffled:.1f}°)"


def read(found: Inspection, how: str) -> str:
    probes = found.within if how == "within" else found.across
    if CLASSES not in probes:
        return NOTHING
    probe = probes[CLASSES]
    return f"{probe.azimuth_r2:.2f}, {probe.azimuth_degrees:.1f}° ({probe.chance_degrees:.0f}°)"


def orientation(found: Inspection) -> str:
    if found.orientation is None:
        return NOTHING
    return f"{found.orientation.median:.1f}° ({found.chance_degrees:.0f}°)"


def degrees(value: float | None) -> str:
    return number(value, "{:.1f}°")


def number(value: float | None, form: str) -> str:
    return NOTHING if value is None else form.format(value)


def probe_table(found: Inspection) -> Table:
    """What is read of azimuth and elevation, by layer."""
    columns = ("layer", "azimuth R²", "azimuth (°)", "elevation R²", "elevation (°)", "chance R²", "chance (°)")
    rows = []
    for how, probes in (("within a toy", found.within), ("across toys", found.across)):
        for layer, probe in probes.items():
            values = (probe.azimuth_r2, probe.azimuth_degrees, probe.elevation_r2, probe.elevation_degrees)
            chance = (probe.chance_r2, probe.chance_degrees)
            rows.append((f"{layer}, {how}", *(f"{value:.2f}" for value in (*values, *chance))))
    return Table(f"What a ridge regression reads from {short(found.name)}", columns, tuple(rows))


def short(name: str) -> str:
    """A run by the name of its folder."""
    return Path(name).name or name


def pose_figure(inspections: Sequence[Inspection], path: Path) -> None:
    """For each network the turns of some toys; R² by layer; the error of a turn carried over to other toys."""
    figure = new_figure(max(9.6, 3.2 * (len(inspections) + 2)), 4.2)
    axes = figure.subplots(1, len(inspections) + 2)
    for index, found in enumerate(inspections):
        draw_turns(axes[index], found)
    draw_layers(axes[-2], inspections)
    draw_transfer(axes[-1], inspections)
    save(figure, path)


def draw_turns(axes: Axes, found: Inspection) -> None:
    above = found.pose == "orientation"
    across, up = ("to the camera", "to the right") if above else ("first component", "second component")
    dress(axes, literal(short(found.name)), f"{found.pose}: {across}", up)
    for index, turn in enumerate(found.turns):
        points = [*turn.path, turn.path[0]] if turn.closed else list(turn.path)
        colour = PALETTE[index % len(PALETTE)]
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.2, label=literal(turn.toy))
        axes.scatter(*zip(*turn.path, strict=True), s=14, color=colour, zorder=3)
        axes.annotate(f"{turn.azimuths[0]}°", turn.path[0], fontsize=SMALL, color=INK)
    if above:
        circle = [2 * math.pi * k / 90 for k in range(91)]
        axes.plot([math.cos(a) for a in circle], [math.sin(a) for a in circle], color=MUTED, linewidth=0.6, zorder=1)
        axes.set_xlim(-1.15, 1.15)
        axes.set_ylim(-1.15, 1.15)
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(loc="upper right", fontsize=SMALL, frameon=False)


def draw_layers(axes: Axes, inspections: Sequence[Inspection]) -> None:
    dress(axes, "Azimuth within a toy", "layer", "R²")
    for index, found in enumerate(inspections):
        names = list(found.within)
        at = [k / max(1, len(names) - 1) for k in range(len(names))]
        values = [max(0.0, probe.azimuth_r2) for probe in found.within.values()]
        colour, marker = PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]
        axes.plot(at, values, color=colour, marker=marker, linewidth=1.4, label=literal(short(found.name)))
    axes.set_xticks([0, 1], ["first", "classes"])
    axes.set_ylim(0, 1.05)
    axes.legend(loc="lower left", fontsize=SMALL, frameon=False)


def draw_transfer(axes: Axes, inspections: Sequence[Inspection]) -> None:
    dress(axes, "Turns carried to other toys", "turn (°)", "error, in parts of shuffled pairs")
    axes.axhline(1, color=MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=1)
    for index, found in enumerate(inspections):
        turns, ratios = [each.turn for each in found.transfer], [each.ratio for each in found.transfer]
        colour, marker = PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]
        axes.plot(turns, ratios, color=colour, marker=marker, linewidth=1.4)
    axes.set_xticks(range(20, 181, 40))
    axes.set_ylim(0, 1.25)

"""A picture for each table: what was measured here beside what was published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from quatcaps.paper.collection import Entry
from quatcaps.paper.matching import curve, trend
from quatcaps.paper.pose_figures import draw_poses
from quatcaps.paper.rows import DATASETS, QUOTED, REFERENCES
from quatcaps.paper.tables import NAMES
from quatcaps.paper.toy_errors import HARDEST, against_best, complete, fold_errors, hardest, mean_error
from quatcaps.report.canvas import INK, MARKERS, MUTED, PALETTE, RULE, SMALL, TEXT, dress, new_figure, save

STYLES = {
    ("QCN", "paper"): (PALETTE[0], MARKERS[0]),
    ("QCN", "best"): (PALETTE[1], MARKERS[1]),
    ("EM*", "paper"): (PALETTE[2], MARKERS[2]),
    ("EM‡", "paper"): (PALETTE[2], MARKERS[2]),
    ("VB", "paper"): (PALETTE[3], MARKERS[3]),
    ("EM-IBM", "paper"): (PALETTE[5], MARKERS[5]),
    ("CNN", "control"): (PALETTE[4], MARKERS[4]),
    ("ResNet-20", "control"): (PALETTE[6], MARKERS[6]),
}
"""The colour and marker of each system."""
WINDOW = 3.0
"""Table I's picture shows familiar errors up to so many times the reference, or what there is."""


def draw(name: str, entries: Sequence[Entry], path: Path, *, quoted: bool = True) -> None:
    """The picture of table `name`."""
    shown = [entry for entry in entries if name in entry.row.tables and entry.shown]
    if name == "table1":
        _draw_viewpoints(shown, path)
    elif name == "ablation":
        _draw_ablation(shown, path)
    elif name == "poses":
        draw_poses(shown, path)
    else:
        groups = DATASETS if name == "table2" else ("branched", "not branched")
        _draw_errors(with_marks(shown) or shown, path, groups, quoted=quoted and name == "table2")


def with_marks(entries: Sequence[Entry]) -> list[Entry]:
    """Those of systems that have an error to show in some entry, measured here or published."""
    systems = {label(entry) for entry in entries if entry.errors("test") or entry.row.published is not None}
    return [entry for entry in entries if label(entry) in systems]


def label(entry: Entry) -> str:
    """A system with its recipe, where it has two."""
    return f"{entry.row.system}, {entry.row.recipe}" if entry.row.system == "QCN" else entry.row.system


def _draw_viewpoints(entries: Sequence[Entry], path: Path) -> None:
    """Novel against familiar error, a dot for every epoch of every run and a line through their medians; one panel for
    each experiment and protocol."""
    figure = new_figure(9.6, 7.4)
    panels = figure.subplots(2, 2)
    for axes, experiment in zip(panels.flat, REFERENCES, strict=True):
        _viewpoint_panel(axes, [e for e in entries if (e.row.viewpoints, e.row.protocol) == experiment], *experiment)
    present = {label(entry): STYLES[entry.row.system, entry.row.recipe] for entry in entries if entry.records}
    handles = [
        Line2D([], [], color=colour, marker=marker, linewidth=1.2, markersize=7, markeredgecolor="white", label=system)
        for system, (colour, marker) in present.items()
    ]
    if any(entry.row.published for entry in entries):
        bar = Line2D([], [], color=MUTED, linestyle="none", marker="_", markersize=14, markeredgewidth=2)
        bar.set_label("published")
        handles.append(bar)
    handles.append(Line2D([], [], color=MUTED, linestyle=(0, (4, 3)), linewidth=1.2, label="compared at"))
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=TEXT)
    save(figure, path)


def _viewpoint_panel(axes: Axes, entries: Sequence[Entry], viewpoints: str, protocol: str) -> None:
    reference = REFERENCES[viewpoints, protocol]
    strict = protocol == "strict"
    dress(
        axes,
        f"{viewpoints.capitalize()}, {protocol}",
        "familiar test error (%)" if strict else "training error (%)",
        "novel error (%)",
    )
    curves = [
        (entry, curve(record.epochs, "test_error" if strict else "error"))
        for entry in entries
        for record in entry.records
    ]
    lowest = max((min(point.familiar for point in points) for _, points in curves if points), default=0.0)
    right = max(WINDOW * reference, 1.25 * lowest)
    novel = [point.novel for _, points in curves for point in points if point.familiar <= right]
    published = [entry.row.published for entry in entries if entry.row.published is not None]
    novel += [each.error for each in published]
    top = 1.15 * max(novel, default=30.0)
    for entry, points in curves:
        colour, _ = STYLES[entry.row.system, entry.row.recipe]
        at = [(point.familiar, point.novel) for point in points]
        axes.plot(
            *zip(*at, strict=True),
            color=colour,
            linestyle="none",
            marker=".",
            markersize=4,
            markeredgewidth=0,
            alpha=0.4,
            zorder=2,
        )
    for entry in entries:
        colour, marker = STYLES[entry.row.system, entry.row.recipe]
        seen = [point for one, points in curves if one is entry for point in points if point.familiar <= right]
        if line := trend(seen):
            axes.plot(*zip(*line, strict=True), color=colour, linewidth=1.6, zorder=3)
        for match in entry.matches():
            axes.plot(
                match.familiar,
                match.novel,
                color=colour,
                marker=marker,
                markersize=8,
                markeredgecolor="white",
                zorder=4,
                clip_on=False,
            )
        published_once = entry.row.published if entry.row.recipe != "best" else None
        if published_once is not None and published_once.familiar is not None:
            at_match = [match for other in entries for match in other.matches()]
            nearby = [*(point for _, points in curves for point in points), *at_match]
            where = (published_once.familiar, published_once.error)
            side = emptier_side([(each.familiar, each.novel) for each in nearby], where, right, top)
            _published_bar(axes, where, entry.row.system, colour, side)
    axes.axvline(reference, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.2, zorder=1)
    axes.text(
        reference,
        1.0,
        f" {reference}%",
        transform=axes.get_xaxis_transform(),
        va="top",
        fontsize=SMALL,
        color=MUTED,
    )
    axes.set_xlim(0, right)
    axes.set_ylim(0, top)
    if not curves:
        axes.text(0.5, 0.5, "no run yet", transform=axes.transAxes, ha="center", fontsize=TEXT, color=MUTED)


def emptier_side(points: Sequence[tuple[float, float]], at: tuple[float, float], right: float, top: float) -> str:
    """Where fewer points of a panel that ends at `right` and `top` lie under a label beside `at`: `left` or `right`."""
    x, y = at
    level = [other for other, height in points if abs(height - y) < 0.035 * top and abs(other - x) < 0.14 * right]
    return "left" if sum(other < x for other in level) < sum(other >= x for other in level) else "right"


def _published_bar(axes: Axes, at: tuple[float, float], system: str, colour: str, side: str) -> None:
    axes.plot(*at, color=colour, marker="_", markersize=16, markeredgewidth=2.2, zorder=5)
    axes.annotate(
        system,
        at,
        xytext=(11 if side == "right" else -11, 0),
        textcoords="offset points",
        ha="left" if side == "right" else "right",
        va="center",
        fontsize=SMALL,
        color=colour,
        zorder=3.5,
        path_effects=[withStroke(linewidth=3, foreground="white")],
    )


def _draw_errors(entries: Sequence[Entry], path: Path, groups: Sequence[str], *, quoted: bool) -> None:
    """Each seed's error as a dot beside the published one, systems down, one panel for each group."""
    others = [each for each in QUOTED if each.table == "table2"] if quoted else []
    systems = list(dict.fromkeys([*map(label, entries), *(f"{each.system}, quoted" for each in others)]))
    figure = new_figure(9.6, 1.3 + 0.36 * len(systems))
    one_scale = "branched" in groups
    panels = figure.subplots(1, len(groups), sharex=one_scale, sharey=True, squeeze=False)[0]
    for axes, group in zip(panels, groups, strict=True):
        dress(axes, NAMES.get(group, group), "error (%)", "")
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        largest = 0.0
        for entry in entries:
            if group not in (entry.row.dataset, "branched" if entry.row.branched else "not branched"):
                continue
            level = systems.index(label(entry))
            errors = entry.errors("test")
            colour, marker = STYLES[entry.row.system, entry.row.recipe]
            axes.plot(
                errors,
                [level] * len(errors),
                color=colour,
                linestyle="none",
                marker=marker,
                markersize=7,
                alpha=0.75,
                markeredgecolor="white",
                zorder=3,
            )
            if entry.row.published is not None:
                _published(axes, entry.row.published.error, level)
                errors.append(entry.row.published.error)
            largest = max([largest, *errors])
        for each in others:
            if each.dataset == group:
                _published(axes, each.published.error, systems.index(f"{each.system}, quoted"))
                largest = max(largest, each.published.error)
        axes.set_xlim(0, max(1.12 * largest or 1.0, axes.get_xlim()[1] if one_scale else 0.0))
        axes.set_ylim(len(systems) - 0.5, -0.5)
        axes.set_yticks(range(len(systems)), systems)
        axes.tick_params(axis="y", labelsize=TEXT, length=0)
    handles = [
        Line2D([], [], color=INK, linestyle="none", marker="o", markersize=7, alpha=0.75, label="here, each seed"),
        Line2D([], [], color=MUTED, linestyle="none", marker="|", markersize=13, markeredgewidth=2, label="published"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=TEXT)
    save(figure, path)


def _draw_ablation(entries: Sequence[Entry], path: Path) -> None:
    """The mean error over held-out toys as a bar, each run as a dot, and what it is against `best`; settings down. Bars
    are of those alone that have seen all toys."""
    trained, whole = [entry for entry in entries if entry.records], complete(entries)
    figure = new_figure(12.4, 1.4 + 0.36 * max(len(trained), 1))
    panels = figure.subplots(1, 3, sharey=True)
    aside = hardest(entries)
    colours = [PALETTE[0] if entry.row.system.startswith(("+", "the ")) else PALETTE[2] for entry in trained]
    titles = ("all toys", f"without the {HARDEST} hardest")
    for axes, without, title in zip(panels[:2], ([], aside), titles, strict=True):
        dress(axes, title, "error on held-out toys (%)", "")
        for level, (entry, colour) in enumerate(zip(trained, colours, strict=True)):
            mean, errors = mean_error(entry, without), fold_errors(entry, without)
            if mean is not None and entry in whole:
                axes.barh(level, mean, height=0.62, color=colour, alpha=0.35, zorder=2)
                _value(axes, level, f"{mean:.1f}")
            dots = {"linestyle": "none", "marker": "o", "markersize": 4.5, "markeredgecolor": "white"}
            axes.plot(errors, [level] * len(errors), color=colour, zorder=3, **dots)
        largest = max((error for entry in trained for error in fold_errors(entry, without)), default=20.0)
        axes.set_xlim(0, 1.04 * largest)
    dress(panels[-1], "against best, same toys", "percentage points more", "")
    panels[-1].axvline(0, color=MUTED, linewidth=1.2, zorder=2)
    furthest = 1.0
    for level, (entry, colour) in enumerate(zip(trained, colours, strict=True)):
        if difference := against_best(entry, entries):
            either_way = difference.uncertainty or 0.0
            mark = {"marker": "o", "markersize": 6.5, "markeredgecolor": "white", "elinewidth": 1.6}
            panels[-1].errorbar(difference.mean, level, xerr=either_way, color=colour, zorder=3, **mark)
            _value(panels[-1], level, f"{difference.mean:+.1f}")
            furthest = max(furthest, abs(difference.mean) + either_way)
    panels[-1].set_xlim(-1.1 * furthest, 1.1 * furthest)
    for axes in panels:
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        axes.set_ylim(max(len(trained), 1) - 0.5, -0.5)
        axes.set_yticks(range(len(trained)), [entry.row.system for entry in trained])
        axes.tick_params(axis="y", labelsize=TEXT, length=0)
    save(figure, path)


def _value(axes: Axes, level: int, text: str) -> None:
    """A number beside the right border."""
    border = axes.get_yaxis_transform()
    axes.text(1.02, level, text, transform=border, ha="left", va="center", fontsize=SMALL, color=INK, zorder=4)


def _published(axes: Axes, error: float, level: int) -> None:
    axes.plot(error, level, color=MUTED, linestyle="none", marker="|", markersize=15, markeredgewidth=2, zorder=2)

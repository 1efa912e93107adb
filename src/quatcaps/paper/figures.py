"""A picture for each table, or two: what was measured here beside what was published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quatcaps.paper.ablation_figures import draw_ablation
from quatcaps.paper.collection import Entry
from quatcaps.paper.evidence_figures import draw_evidence
from quatcaps.paper.evidence_lines import compared
from quatcaps.paper.evidence_together_figures import draw_together
from quatcaps.paper.evidence_toy_figures import draw_toys
from quatcaps.paper.marks import draw_published, draw_seeds, explain_signs, label, seed_handles, style
from quatcaps.paper.pose_figures import draw_poses
from quatcaps.paper.rows import DATASETS, QUOTED
from quatcaps.paper.setting_figures import draw_settings
from quatcaps.paper.system_figures import draw_epochs
from quatcaps.paper.tables import NAMES
from quatcaps.paper.viewpoint_figures import draw_compared, draw_viewpoints, quoted_label
from quatcaps.report.canvas import RULE, TEXT, WIDTH, dress, literal, new_figure, save


def draw(name: str, entries: Sequence[Entry], path: Path, *, quoted: bool = True) -> None:
    """The picture of table `name`; Table I has also `…-compared.png`, the ablation `…-tried.png`, evidence
    `…-differences.png`, `…-together.png`, `…-datasets.png` and `…-toys.png`, and systems `…-epochs.png`."""
    shown = [entry for entry in entries if name in entry.row.tables and entry.shown]
    if name == "table1":
        draw_viewpoints(shown, path)
        draw_compared(shown, path.with_name(f"{path.stem}-compared{path.suffix}"), quoted=quoted)
    elif name == "ablation":
        draw_ablation(shown, path)
    elif name == "poses":
        draw_poses(shown, path)
    elif name == "evidence":
        lines = compared(shown)
        draw_evidence(lines, path)
        draw_together(lines, path.with_name(f"{path.stem}-together{path.suffix}"))
        draw_toys(lines, path.with_name(f"{path.stem}-toys{path.suffix}"))
    elif name == "settings":
        draw_settings(shown, path)
    else:
        groups = {"table2": DATASETS, "systems": ("smallnorb",)}.get(name, ("branched", "not branched"))
        _draw_errors(with_marks(shown) or shown, path, groups, quoted=quoted and name == "table2")
    if name == "systems":
        draw_epochs(shown, path.with_name(f"{path.stem}-epochs{path.suffix}"))


def with_marks(entries: Sequence[Entry]) -> list[Entry]:
    """Those of systems that have an error to show in some entry, measured here or published."""
    systems = {label(entry) for entry in entries if entry.errors("test") or entry.row.published is not None}
    return [entry for entry in entries if label(entry) in systems]


def _draw_errors(entries: Sequence[Entry], path: Path, groups: Sequence[str], *, quoted: bool) -> None:
    """Each seed's error, their mean and its interval beside the published one, systems down, one panel for each group.
    The groups of Table III share a scale; errors of the datasets of Table II are far apart."""
    others = [each for each in QUOTED if each.table == "table2"] if quoted else []
    systems = list(dict.fromkeys([*map(label, entries), *map(quoted_label, others)]))
    figure = new_figure(WIDTH, 2.1 + 0.42 * len(systems))
    one_scale = "branched" in groups
    panels = figure.subplots(1, len(groups), sharex=one_scale, sharey=True, squeeze=False)[0]
    furthest = 0.0
    for axes, group in zip(panels, groups, strict=True):
        dress(axes, NAMES.get(group, group), "error (%)", "")
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        ends = [0.0]
        for entry in entries:
            if group not in (entry.row.dataset, "branched" if entry.row.branched else "not branched"):
                continue
            level = systems.index(label(entry))
            ends += draw_seeds(axes, entry.errors("test"), level, style(entry))
            if entry.row.published is not None:
                draw_published(axes, entry.row.published.error, level)
                ends.append(entry.row.published.error)
        for each in others:
            if each.dataset == group:
                draw_published(axes, each.published.error, systems.index(quoted_label(each)))
                ends.append(each.published.error)
        furthest = max(furthest, *ends) if one_scale else max(ends)
        axes.set_xlim(0, 1.12 * furthest or 1.0)
        axes.set_ylim(len(systems) - 0.5, -0.5)
        axes.set_yticks(range(len(systems)), [literal(system) for system in systems])
        axes.tick_params(axis="y", labelsize=TEXT, length=0)
    published = bool(others) or any(entry.row.published for entry in entries)
    handles = seed_handles(published=published)
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=TEXT)
    explain_signs(figure, systems)
    save(figure, path)

"""A training step against what an H200 can do: work and bounds by group of kernels, beside what was measured.

    python benchmarks/roofline.py [--model qcn-deep] [--batch 64] [--picture docs/images/roofline-h200.png]

Needs no GPU: work is counted from the arguments of the step's launches (kernel_work.py), times are read from
files that `quatcaps bench` wrote, where they are of the same step.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from kernel_work import Work, step_work
from quatcaps.bench.cases import CLASSES, SIDE, TRAIN, Case
from quatcaps.bench.kernels import BACKWARD, CONVOLUTION, FORWARD, GRADIENT, GROUPS, NORMALISATION
from quatcaps.bench.tables import figures
from quatcaps.bench.timeline_figure import COLOURS
from quatcaps.errors import QuatcapsError, at_least_one
from quatcaps.report.canvas import INK, MUTED, RULE, SMALL, TEXT, WIDTH, dress, literal, new_figure, save
from quatcaps.report.tables import NOTHING, Table

RESULTS = Path(__file__).parent / "results"
MEMORY = 4.8e12
"""Bytes a second of HBM3e: NVIDIA's H200 data sheet, SXM. What a kernel finds in the L2 cache of 50 MB (Hopper's
architecture paper), where the kernel before left it, comes faster: such a kernel may exceed this roof."""
FP32 = 67e12
"""Flops a second, a multiply-add being two: the data sheet. 132 processors × 128 lanes × 2 × 1.98 GHz."""
TF32 = 494e12
"""On tensor cores: half of the data sheet's 989, which are for weights of which half are 0."""
DRAWN = (CONVOLUTION, GRADIENT, NORMALISATION, FORWARD, BACKWARD)
"""Groups with arithmetic to speak of."""
BESIDE: Mapping[str, tuple[float, float, str]] = {
    CONVOLUTION: (9, 0, "left"),
    GRADIENT: (9, -17, "left"),
    NORMALISATION: (10, 0, "left"),
    FORWARD: (-9, 0, "right"),
    BACKWARD: (9, 0, "left"),
}
"""Where a group's name stands from its mark, in points."""


def microseconds(work: Sequence[Work], floor: float = 0.0) -> tuple[float, float, float]:
    """By arithmetic alone, by memory alone, and if each kernel takes the longer of its two, but `floor` at least."""
    arithmetic = [1e6 * each.flops / (TF32 if each.tensor_cores else FP32) for each in work]
    memory = [1e6 * each.bytes / MEMORY for each in work]
    both = sum((max(*pair, floor) for pair in zip(arithmetic, memory, strict=True)), 0.0)
    return sum(arithmetic, 0.0), sum(memory, 0.0), both


@dataclass(frozen=True)
class Measured:
    """A timeline: kernels and microseconds by group, microseconds by name, of the shortest kernel, and of the step
    unwatched."""

    groups: Mapping[str, tuple[int, float]]
    names: Mapping[str, float]
    machine: str
    shortest: float
    step: float

    @property
    def kernels(self) -> int:
        return sum(count for count, _ in self.groups.values())

    @property
    def total(self) -> float:
        return sum(time for _, time in self.groups.values())


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def is_of(case: Case, found: Mapping[str, Any]) -> bool:
    """Whether something was measured of that step."""
    same = ("model", "pass", "batch", "side", "classes", "precision")
    return all(found[name] == case.to_json()[name] for name in same) and found["tf32_convolutions"]


def measured(case: Case, path: Path) -> Measured | None:
    found = read(path)
    if not is_of(case, found):
        return None
    groups = {group: (part["count"], part["microseconds"]) for group, part in found["groups"].items()}
    names = Counter[str]()
    for line in found["kernels"]:
        names[line["name"]] += line["microseconds"]
    shortest = min(duration for _, duration, _ in found["spans"])
    return Measured(groups, names, found["machine"], shortest, 1e6 * found["seconds_unwatched"])


@cache
def counted(case: Case) -> tuple[Work, ...]:
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        os.environ["TRITON_INTERPRET"] = "1"  # so that kernels may be given tensors of a CPU, which they never read
    return tuple(step_work(case, torch.device("cuda" if on_gpu else "cpu")))


def by_group(case: Case) -> dict[str, list[Work]]:
    return {group: part for group in GROUPS if (part := [each for each in counted(case) if each.group == group])}


def group_table(case: Case, before: Measured | None, now: Measured | None) -> Table:
    """A row for each group and one for all."""
    parts = by_group(case)
    shown = [group for group in GROUPS if group in parts or (now and group in now.groups)]
    rows = [group_row(group, parts.get(group, ()), [group], before, now) for group in shown]
    rows.append(group_row("all", counted(case), GROUPS, before, now))
    columns = ("group", "kernels", "GFLOP", "MB", "arithmetic", "memory", "launches", "together", "before", "now")
    return Table(f"{case.model}, batch {case.batch}: µs of a training step", (*columns, "reached (%)"), tuple(rows))


def group_row(
    name: str, work: Sequence[Work], groups: Sequence[str], before: Measured | None, now: Measured | None
) -> tuple[str, ...]:
    arithmetic, memory, _ = microseconds(work)
    flops, moved = sum(each.flops for each in work), sum(each.bytes for each in work)
    cells = [figures(flops / 1e9), figures(moved / 1e6), figures(arithmetic), figures(memory)]
    cells = [NOTHING if float(cell.replace(",", "")) == 0 else cell for cell in cells]
    past = figures(sum_of(before, groups)[1]) if before else NOTHING
    if now is None:
        return name, str(len(work)), *cells, NOTHING, NOTHING, past, NOTHING, NOTHING
    kernels, time = sum_of(now, groups)
    together = microseconds(work, now.shortest)[2] + max(0, kernels - len(work)) * now.shortest
    launches = figures(kernels * now.shortest)
    return name, str(kernels), *cells, launches, figures(together), past, figures(time), f"{100 * together / time:.0f}"


def sum_of(timeline: Measured, groups: Sequence[str]) -> tuple[int, float]:
    parts = [timeline.groups.get(group, (0, 0.0)) for group in groups]
    return sum(count for count, _ in parts), sum((time for _, time in parts), 0.0)


def batch_table(steps: Path) -> Table:
    """Every captured training step of a file of results, against its roofs alone."""
    rows = [batch_row(row) for row in read(steps)["rows"] if row["pass"] == TRAIN and row["graph"]]
    columns = ("network", "batch", "arithmetic", "memory", "roofs", "step", "reached (%)")
    return Table("By batch: µs of a training step", columns, tuple(rows))


def batch_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    case = Case(row["model"], TRAIN, row["variant"], row["batch"], side=row["side"], classes=row["classes"])
    cells = *microseconds(counted(case)), 1e6 * row["seconds"]
    return case.model, f"{case.batch:,}", *map(figures, cells), f"{100 * cells[2] / cells[3]:.0f}"


def launch_words(case: Case, now: Measured) -> str:
    """What launches cost, and which kernels have less to do than the shortest of all takes."""
    launches, work = now.kernels * now.shortest, counted(case)
    of_name = {name: [each for each in work if each.kernel == name] for name in now.names}
    idle = {name: part for name, part in of_name.items() if 0 < microseconds(part)[2] < len(part) * now.shortest}
    longest = sorted(idle, key=lambda name: -now.names[name])[:4]
    return (
        f"{now.kernels} kernels, the shortest of {now.shortest:.2f} µs: {launches:.0f} µs, "
        f"{100 * launches / now.step:.0f}% of a step of {now.step:.0f} µs. {sum(map(len, idle.values()))} kernels of "
        f"ours have less work than that, and take {sum(now.names[name] for name in idle):.0f} of {now.total:.0f} µs: "
        f"{', '.join(f'{name} {now.names[name]:.0f}' for name in longest)}."
    )


def roofline(case: Case, before: Measured | None, now: Measured, path: Path) -> None:
    """Flops a second against flops for each byte; hollow marks are of the same work before."""
    figure = new_figure(WIDTH, 5.4)
    axes = figure.subplots()
    title = f"{case.model}: training step, batch {case.batch}, {now.machine}"
    dress(axes, literal(title), "flop for each byte that a kernel reads or writes", "TFLOP/s")
    axes.grid(which="major", axis="both", color=RULE, linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlim=(0.1, 1000), ylim=(0.05, 1500))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, position: f"{value:,g}")
    roofs(axes)
    parts = by_group(case)
    for group in DRAWN:
        if group in parts and group in now.groups:
            mark(axes, group, parts[group], before, now)
    grey: dict[str, Any] = {"color": MUTED, "linestyle": "", "markersize": 8}
    handles = [
        Line2D([], [], marker="o", label="now", **grey),
        *([Line2D([], [], marker="o", markerfacecolor="white", label="before", **grey)] if before else []),
        Line2D([], [], marker="_", markeredgewidth=2, label="if all its kernels were as short as the shortest", **grey),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False, fontsize=TEXT)
    save(figure, path)


def roofs(axes: Axes) -> None:
    left, right = axes.get_xlim()
    line: dict[str, Any] = {"color": INK, "linewidth": 1.6, "zorder": 1}
    corner = TF32 / MEMORY
    axes.plot([left, corner, right], [left * MEMORY / 1e12, TF32 / 1e12, TF32 / 1e12], **line)
    axes.plot([FP32 / MEMORY, right], [FP32 / 1e12] * 2, **line | {"linestyle": (0, (5, 2))})
    words: dict[str, Any] = {"fontsize": SMALL, "color": INK, "va": "bottom"}
    axes.text(0.95 * right, 1.08 * TF32 / 1e12, "tensor cores, TF32: 494 TFLOP/s", ha="right", **words)
    axes.text(0.95 * right, 1.08 * FP32 / 1e12, "FP32: 67 TFLOP/s", ha="right", **words)
    across, up = 0.7, 1.1 * 0.7 * MEMORY / 1e12
    axes.text(
        across,
        up,
        "memory: 4.8 TB/s",
        rotation=math.degrees(math.atan2(up, across)),
        rotation_mode="anchor",
        transform_rotates_text=True,
        **words,
    )


def mark(axes: Axes, group: str, work: Sequence[Work], before: Measured | None, now: Measured) -> None:
    flops = sum(each.flops for each in work)
    intensity = flops / sum(each.bytes for each in work)
    kernels, time = now.groups[group]
    past = before.groups[group][1] if before else time
    rate, rate_before, launched = (flops / each / 1e6 for each in (time, past, kernels * now.shortest))
    colour = COLOURS[group]
    axes.plot([intensity] * 2, [rate_before, rate], color=colour, linewidth=1.4, zorder=2)
    axes.plot([intensity], [rate_before], "o", color=colour, markerfacecolor="white", markersize=9, zorder=3)
    axes.plot([intensity], [rate], "o", color=colour, markersize=9, zorder=4)
    axes.plot([intensity], [launched], "_", color=colour, markersize=13, markeredgewidth=2, zorder=2)
    across, up, side = BESIDE[group]
    axes.annotate(
        f"{group}\n{figures(rate)} TFLOP/s" if before is None else f"{group}\n{figures(rate_before)} → {figures(rate)}",
        (intensity, rate),
        xytext=(across, up),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=SMALL,
        color=INK,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qcn-deep")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--now", type=Path, default=RESULTS / "h200-timeline.json")
    parser.add_argument("--before", type=Path, default=RESULTS / "h200-timeline-cudnn.json")
    parser.add_argument("--steps", type=Path, default=RESULTS / "h200-qcn.json")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    try:
        report(options)
    except QuatcapsError as error:
        parser.error(str(error))


def report(options: argparse.Namespace) -> None:
    at_least_one("images of a batch", options.batch)
    case = Case(options.model, TRAIN, "triton", options.batch, side=options.side, classes=options.classes)
    before, now = (measured(case, path) for path in (options.before, options.now))
    print(group_table(case, before, now).markdown())
    if now is not None:
        print(launch_words(case, now), end="\n\n")
    print(batch_table(options.steps).markdown(), end="")
    if options.picture is not None:
        if now is None:
            raise QuatcapsError(f"{options.now} is not of {case.words}: to draw it, give its timeline with --now")
        roofline(case, before, now, options.picture)


if __name__ == "__main__":
    main()

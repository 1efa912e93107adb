"""One step as a timeline: every kernel (on a CPU, every operator) with what it is for; sums by group and by name."""

from __future__ import annotations

import statistics
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from quatcaps.bench.cases import FULL, Case
from quatcaps.bench.gpu import CudaClock
from quatcaps.bench.kernels import GROUPS, group_of, short
from quatcaps.bench.machine import describe
from quatcaps.bench.precision import as_training
from quatcaps.bench.steps import network_step
from quatcaps.bench.tables import figures
from quatcaps.bench.trace import Span, record, watch
from quatcaps.files import write_json
from quatcaps.report.tables import Table

WARM_UP = 2
SHOWN = 12
"""Names in the table of kernels; the file has all."""


@dataclass(frozen=True)
class Timeline:
    """The spans of one step, in microseconds. seconds: of a step that nobody watched, where it was timed: the profiler
    makes kernels no slower, but spaces them out where they are launched one by one."""

    case: Case
    machine: dict[str, Any]
    spans: tuple[Span, ...]
    seconds: float | None = None

    @property
    def wall(self) -> float:
        """From the start of the first to the end of the last."""
        return max((span.start + span.duration for span in self.spans), default=0.0)

    @property
    def busy(self) -> float:
        """While at least one ran; two at once count once."""
        total = reached = 0.0
        for span in self.spans:
            total += max(0.0, span.start + span.duration - max(reached, span.start))
            reached = max(reached, span.start + span.duration)
        return total

    @property
    def count(self) -> int:
        return sum(span.counted for span in self.spans)

    @property
    def what(self) -> str:
        """What the spans are."""
        return "kernels" if self.machine["device"] == "cuda" else "operators"

    def sums(self) -> dict[str, tuple[int, float]]:
        """By group: how many, and their microseconds in all."""
        return {
            group: (sum(span.counted for span in part), sum(span.duration for span in part))
            for group, part in _by(self.spans, "group", GROUPS).items()
        }

    def by_name(self) -> list[dict[str, Any]]:
        """By name and group, the longest in all first."""
        found: dict[tuple[str, str], list[Span]] = defaultdict(list)
        for span in self.spans:
            found[span.name, span.group].append(span)
        lines = [
            {
                "name": name,
                "group": group,
                "count": sum(span.counted for span in part),
                "microseconds": round(sum(span.duration for span in part), 3),
            }
            for (name, group), part in found.items()
        ]
        return sorted(lines, key=lambda line: -line["microseconds"])

    def to_json(self) -> dict[str, Any]:
        """Everything; `spans` are [start, duration, number of its name in `kernels`]."""
        lines = self.by_name()
        numbers = {(line["name"], line["group"]): number for number, line in enumerate(lines)}
        return {
            **self.machine,
            **self.case.to_json(),
            "what": self.what,
            "count": self.count,
            "wall_microseconds": round(self.wall, 3),
            "busy_microseconds": round(self.busy, 3),
            "seconds_unwatched": self.seconds,
            "groups": {
                group: {"count": count, "microseconds": round(total, 3)}
                for group, (count, total) in self.sums().items()
            },
            "kernels": lines,
            "spans": [
                [round(span.start, 3), round(span.duration, 3), numbers[span.name, span.group]] for span in self.spans
            ],
        }


def measure_timeline(case: Case, device: torch.device, machine: str) -> Timeline:
    """One step of `case`, after some that are not looked at. A captured step is looked at twice: launched one by one,
    for what each kernel is for, then as the graph."""
    description = describe(machine, device)
    if device.type != "cuda":
        step = network_step(case, device, watch)
        for _ in range(WARM_UP):
            step()
        return Timeline(case, description, tuple(record(step, device)))
    clock = CudaClock(device)
    with torch.cuda.device(clock.device), as_training(case.tf32), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an optimiser which will be captured takes steps before
        step = network_step(case, device, watch)
        clock.warm_up(step)
        spans = record(step, device)
        if case.graph:
            step = clock.captured(step)
            spans = told_apart(record(step, device), spans)
        return Timeline(case, description, tuple(spans), statistics.median(clock.time(step, 30)))


def told_apart(captured: Sequence[Span], launched: Sequence[Span]) -> list[Span]:
    """The spans of a captured step with the groups of those that were launched one by one: of each name the first is
    the first, and so on. Where their number differs, all have the group that most had."""
    known: dict[str, list[str]] = defaultdict(list)
    for span in launched:
        known[span.name].append(span.group)
    counts, seen = Counter(span.name for span in captured), Counter[str]()
    found = []
    for span in captured:
        groups = known.get(span.name)
        if groups is None:
            group = group_of(span.name)
        elif len(groups) == counts[span.name]:
            group = groups[seen[span.name]]
        else:
            group = Counter(groups).most_common(1)[0][0]
        seen[span.name] += 1
        found.append(replace(span, group=group))
    return found


def timeline_tables(timeline: Timeline) -> list[Table]:
    """Sums by group, and the names that take longest."""
    total = sum(span.duration for span in timeline.spans) or 1.0
    groups = [
        (group, str(count), figures(microseconds), f"{100 * microseconds / total:.1f}")
        for group, (count, microseconds) in timeline.sums().items()
    ]
    names = [
        (short(line["name"])[:40], line["group"], str(line["count"]), figures(line["microseconds"]))
        for line in timeline.by_name()[:SHOWN]
    ]
    return [
        Table(timeline_title(timeline), ("group", timeline.what, "µs", "share (%)"), tuple(groups)),
        Table("What takes longest", ("name", "group", timeline.what, "µs"), tuple(names)),
    ]


def timeline_title(timeline: Timeline) -> str:
    case = timeline.case
    step = "training step" if case.passing == "train" else "forward pass"
    more = (case.precision if case.precision != FULL else "", "captured" if case.graph else "")
    return ", ".join([f"{case.model}: {step}", f"batch {case.batch}", case.label, *filter(None, more)])


def timeline_words(timeline: Timeline) -> str:
    """What the sums do not say."""
    wall, busy = timeline.wall / 1000, timeline.busy / 1000
    unwatched = f"; {1000 * timeline.seconds:.3f} ms unwatched" if timeline.seconds is not None else ""
    return (
        f"{timeline.count} {timeline.what} in {wall:.3f} ms from the first to the last, none running for "
        f"{wall - busy:.3f} ms of it{unwatched}"
    )


def write_timeline(timeline: Timeline, path: Path) -> list[Path]:
    """The numbers as JSON in `path`, and the picture beside it."""
    from quatcaps.bench.timeline_figure import timeline_figure  # matplotlib is slow to import

    picture = path.with_suffix(".png")
    write_json(path, timeline.to_json())
    timeline_figure(timeline, picture)
    return [path, picture]


def _by(spans: Sequence[Span], field: str, keys: Sequence[str]) -> dict[str, list[Span]]:
    """The spans of each key that has any."""
    parts: dict[str, list[Span]] = {key: [] for key in keys}
    for span in spans:
        parts[getattr(span, field)].append(span)
    return {key: part for key, part in parts.items() if part}

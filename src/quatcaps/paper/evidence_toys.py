"""Where the errors of `evidence` are: toy by toy, the mean over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quatcaps.paper.evidence_lines import Line, label
from quatcaps.paper.evidence_rows import EXPERIMENTS, REFERENCE, SYSTEMS, TAUGHT, system_of
from quatcaps.paper.evidence_statistics import Numbers, Sample
from quatcaps.report.tables import NOTHING, Table

HARDEST = 3


@dataclass(frozen=True)
class ToyErrors:
    """The errors of a system on novel images, or on test images where there are none, as a mean over its seeds."""

    line: Line
    sample: Sample

    @property
    def percents(self) -> Numbers:
        """(toys,)"""
        percents: Numbers = 100 * self.sample.errors.mean(0) / self.sample.images
        return percents

    @property
    def hardest(self) -> list[int]:
        """Places of the toys with the highest errors, the highest first."""
        return [int(place) for place in np.argsort(-self.percents, kind="stable")[:HARDEST]]

    @property
    def share(self) -> float | None:
        """How much of all errors the hardest toys make, in %."""
        total = self.sample.errors.sum()
        return float(100 * self.sample.errors[:, self.hardest].sum() / total) if total else None


def errors_by_toy(lines: Mapping[str, Sequence[Line]]) -> dict[str, list[ToyErrors]]:
    """Of the experiments in which two systems or more have errors by toy; QCN with a part changed is left out."""
    found = {}
    for name, members in lines.items():
        shown = [line for line in members if system_of(line.entry.row) in (*SYSTEMS, *TAUGHT) and line.samples]
        each = [ToyErrors(line, line.samples["novel" if "novel" in line.samples else "test"]) for line in shown]
        each = [errors for errors in each if errors.sample.has_toys]
        if len(each) > 1:
            found[name] = each
    return found


def likeness(first: ToyErrors, second: ToyErrors) -> float | None:
    """The correlation of their errors over toys; None where one has the same on all, or others' toys."""
    if first.sample.toys != second.sample.toys or not (np.ptp(first.percents) and np.ptp(second.percents)):
        return None
    return float(np.corrcoef(first.percents, second.percents)[0, 1])


def toy_table(lines: Mapping[str, Sequence[Line]]) -> Table:
    """The hardest toys of every system, how much of its errors they make, and whether QCN finds the same toys hard."""
    rows = []
    for name, members in errors_by_toy(lines).items():
        qcn = next((each for each in members if system_of(each.line.entry.row) == REFERENCE), None)
        for each in members:
            toys = ", ".join(f"{each.sample.toys[place]} ({each.percents[place]:.1f})" for place in each.hardest)
            alike = None if qcn is None or each is qcn else likeness(each, qcn)
            rows.append(
                (
                    EXPERIMENTS[name].title,
                    label(each.line.entry.row),
                    toys,
                    NOTHING if each.share is None else f"{each.share:.0f}",
                    NOTHING if alike is None else f"{alike:.2f}",
                )
            )
    columns = ("experiment", "system", "hardest toys (%)", "of all errors (%)", "correlation with QCN")
    return Table(f"Errors by toy: the {HARDEST} hardest", columns, tuple(rows))

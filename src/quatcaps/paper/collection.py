"""The records that there are, by row; means and deviations over seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quatcaps.errors import QuatcapsError
from quatcaps.paper.matching import REFERENCES, Match, match
from quatcaps.paper.record import RunRecord, differences, read_record, told, twin_record
from quatcaps.paper.row import Row
from quatcaps.report.tables import NOTHING

NAME = re.compile(r"seed-(\d+)\.json")
LATE = 20
"""Where the rate hardly falls, the error swings from epoch to epoch: the median of so many measurements says more than
the last."""


@dataclass(frozen=True)
class Entry:
    """A row and the records of its seeds, in order."""

    row: Row
    records: tuple[RunRecord, ...] = ()

    @property
    def shown(self) -> bool:
        """Whether a table has a line for it."""
        return bool(self.records) or (not self.row.quiet and (self.row.default or self.row.published is not None))

    @property
    def parameters(self) -> str:
        """As counted in the runs."""
        return f"{self.records[0].parameters:,}" if self.records else NOTHING

    @property
    def minutes(self) -> str:
        """Of training, the mean over seeds."""
        return f"{statistics.mean(record.seconds for record in self.records) / 60:.1f}" if self.records else NOTHING

    def errors(self, name: str) -> list[float]:
        """At the end, in %, of each seed; none where that was not measured."""
        return [record.final[name].percent for record in self.records if name in record.final]

    def lowest(self) -> list[float]:
        """The lowest test error of any epoch, in %, of each seed; none where all images were measured only once."""
        return [min(errors) for errors in self.followed()]

    def chosen(self) -> list[float]:
        """The test error of the epoch that the validation images chose, in %, of each seed that had some."""
        return [record.chosen["test"].percent for record in self.records if "test" in record.chosen]

    def renormalised(self) -> list[float]:
        """The test error at the end with new statistics of batch normalisation, in %, of each seed that has them."""
        return [record.renormalised["test"].percent for record in self.records if "test" in record.renormalised]

    def averaged(self) -> list[float]:
        """The test error at the end of the average of the weights, in %, of each seed that has one beside them."""
        return [record.averaged["test"].percent for record in self.records if "test" in record.averaged]

    def late(self, name: str = "test") -> list[float]:
        """The median of the last `LATE` errors, in %, of each seed that has as many."""
        return [statistics.median(errors[-LATE:]) for errors in self.followed(name) if len(errors) >= LATE]

    def followed(self, name: str = "test") -> list[list[float]]:
        """The errors along training, in %, of each seed for which all images were measured on the way."""
        errors = [[epoch.get(f"{name}_error") for epoch in record.epochs] for record in self.followed_records()]
        measured = [[100 * error for error in each if error is not None] for each in errors]
        return [each for each in measured if each]

    def followed_records(self) -> list[RunRecord]:
        """Those of runs in which all test images were measured on the way."""
        whole = [each for each in self.records if each.config.evaluate_every and not each.config.evaluate_images]
        return [each for each in whole if not each.config.validation]  # else tests are measured at the end alone

    def matches(self) -> list[Match]:
        """Of Table I: each seed where it is compared; where some came to the reference and some did not, those that
        did."""
        reference = REFERENCES[self.row.viewpoints, self.row.protocol]
        found = [match(record.epochs, self.row.protocol, reference) for record in self.records]
        return [each for each in found if each.reached] or found


def collect(rows: Iterable[Row], output: Path) -> tuple[list[Entry], list[str]]:
    """The records under `output` by row, and what is wrong with those that cannot be read."""
    entries, problems = [], []
    for row in rows:
        folder, records = output / "runs" / row.key, []
        paths = folder.iterdir() if folder.is_dir() else ()
        for path in sorted(paths, key=_seed):
            if NAME.fullmatch(path.name):
                try:
                    records.append(_comparable(read_record(path), row))
                except QuatcapsError as error:
                    problems.append(str(error) if str(path) in str(error) else f"{path}: {error}")
        seeds = {record.seed for record in records}
        others = [twin_record(output, row, seed) for seed in range(row.wanted) if seed not in seeds]
        records += [record for record in others if record is not None]
        entries.append(Entry(row, tuple(sorted(records, key=lambda record: record.seed))))
    return entries, problems


def _comparable(record: RunRecord, row: Row) -> RunRecord:
    """The record; an error where systems are compared at a match and it has no errors to find that in."""
    if row.matched:
        match(record.epochs, row.protocol, REFERENCES[row.viewpoints, row.protocol])
    return record


def outdated(entries: Iterable[Entry]) -> list[str]:
    """The records that were made with other settings than their rows have now, and with which."""
    found = []
    for entry in entries:
        for record in entry.records:
            if differing := differences(record.config, entry.row.config(record.seed)):
                found.append(f"{entry.row.key}, seed {record.seed}: {told(differing)}")
    return found


def spread(values: Sequence[float]) -> str:
    """Mean, deviation and count.

    >>> spread([2.0, 2.2, 2.4]), spread([2.2]), spread([])
    ('2.20 ± 0.20 (3)', '2.20 (1)', '–')
    """
    if not values:
        return NOTHING
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation} ({len(values)})"


def columns(values: Sequence[float]) -> tuple[str, str, str]:
    """The same as three numbers, for programs: mean, deviation, count."""
    if not values:
        return NOTHING, NOTHING, "0"
    deviation = f"{statistics.stdev(values):.4f}" if len(values) > 1 else NOTHING
    return f"{statistics.mean(values):.4f}", deviation, str(len(values))


def _seed(path: Path) -> int:
    found = NAME.fullmatch(path.name)
    return int(found[1]) if found else -1

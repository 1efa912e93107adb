"""What `evidence` compares, system by system: samples of errors, means, differences from QCN, matches, searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quatcaps.paper.collection import Entry
from quatcaps.paper.evidence_rows import (
    EXPERIMENTS,
    PAIRS,
    PART,
    REFERENCE,
    SEARCH,
    Experiment,
    experiment_of,
    system_of,
)
from quatcaps.paper.evidence_statistics import (
    Estimate,
    Sample,
    difference_of,
    difference_of_means,
    mean_of,
    sample_of,
)
from quatcaps.paper.matching import REFERENCES, match
from quatcaps.paper.row import Row


@dataclass(frozen=True)
class Line:
    """A system in an experiment: by `test` and `novel` its errors, their mean, and what they are less QCN's."""

    entry: Entry
    samples: Mapping[str, Sample]
    means: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]

    @property
    def seeds(self) -> int:
        """How many are compared."""
        return max((len(sample.errors) for sample in self.samples.values()), default=0)


def compared(entries: Sequence[Entry]) -> dict[str, list[Line]]:
    """The lines of each experiment; differences are from its QCN."""
    found: dict[str, list[Line]] = {}
    for name in EXPERIMENTS:
        members = [each for each in entries if each.row.recipe != SEARCH and experiment_of(each.row) == name]
        samples = {system_of(each.row): samples_of(each) for each in members}
        reference = samples.get(REFERENCE, {})
        found[name] = [_line(each, samples[system_of(each.row)], reference) for each in members]
    return found


@dataclass(frozen=True)
class Pair:
    """Two systems of an experiment other than QCN: what the errors of the first are less those of the second."""

    first: Line
    second: Line
    differences: Mapping[str, Estimate]


def paired(lines: Sequence[Line]) -> list[Pair]:
    """Of an experiment, the `PAIRS` of which both have runs."""
    found = {system_of(line.entry.row): line for line in lines if line.samples}
    pairs = []
    for first, second in ((found[one], found[other]) for one, other in PAIRS if one in found and other in found):
        shared = [name for name in first.samples if name in second.samples]
        between = {name: difference_of(first.samples[name], second.samples[name]) for name in shared}
        pairs.append(Pair(first, second, between))
    return pairs


def together(lines: Mapping[str, Sequence[Line]], names: Sequence[str]) -> list[Pair]:
    """Over some experiments, each system and QCN, and the other `PAIRS`, of which both have runs in all: the mean
    difference on novel images. The lines are those of the first experiment."""
    found = over(lines, names)
    pairs = (*((system, REFERENCE) for system in found if system != REFERENCE), *PAIRS)
    return [_between(found[one], found[other]) for one, other in pairs if one in found and other in found]


def longer(lines: Mapping[str, Sequence[Line]], names: Sequence[str], shorter: Sequence[str]) -> list[Pair]:
    """Each system that has runs in all of some experiments and of as many others: the mean difference on novel images
    between the two."""
    ones, others = over(lines, names), over(lines, shorter)
    return [_between(ones[system], others[system]) for system in ones if system in others]


def over(lines: Mapping[str, Sequence[Line]], names: Sequence[str]) -> dict[str, list[Line]]:
    """The systems whose runs were measured on novel images in all of some experiments, with their lines there."""
    found = [{system_of(line.entry.row): line for line in lines[name] if "novel" in line.samples} for name in names]
    first, *rest = found
    return {system: [each[system] for each in found] for system in first if all(system in each for each in rest)}


def _between(ones: Sequence[Line], others: Sequence[Line]) -> Pair:
    novel = ([line.samples["novel"] for line in each] for each in (ones, others))
    return Pair(ones[0], others[0], {"novel": difference_of_means(*novel)})


def samples_of(entry: Entry) -> dict[str, Sample]:
    """By `test` and `novel`, as far as measured."""
    found = {name: sample_of(entry.records, name) for name in ("test", "novel")}
    return {name: sample for name, sample in found.items() if sample is not None}


def _line(entry: Entry, samples: Mapping[str, Sample], reference: Mapping[str, Sample]) -> Line:
    means = {name: mean_of(sample) for name, sample in samples.items()}
    differing: dict[str, Estimate] = {}
    if system_of(entry.row) != REFERENCE:
        differing = {name: difference_of(each, reference[name]) for name, each in samples.items() if name in reference}
    return Line(entry, samples, means, differing)


def measured_in(experiment: Experiment) -> dict[str, str]:
    """What is measured in an experiment, and its words in the columns' names."""
    if experiment.viewpoints == "all":
        return {"test": "test"}
    return {"novel": "novel"} if experiment.protocol == "pooled" else {"test": "familiar", "novel": "novel"}


def label(row: Row) -> str:
    """A system; QCN with a part changed as such."""
    return f"QCN, {row.system}" if row.recipe == PART else row.system


@dataclass(frozen=True)
class Matched:
    """Where the runs of a system come to the reference: the errors there, and the epoch of each seed; None for a seed
    that never comes so low."""

    familiar: tuple[float, ...]
    novel: tuple[float, ...]
    epochs: tuple[int | None, ...]

    @property
    def reached(self) -> int:
        return sum(epoch is not None for epoch in self.epochs)


def matched(entry: Entry) -> Matched:
    """Of the seeds that come to the reference."""
    row = entry.row
    reference = REFERENCES[row.viewpoints, row.protocol]
    found = [match(record.epochs, row.protocol, reference) for record in entry.records]
    there = [each for each in found if each.reached]
    return Matched(
        tuple(each.familiar for each in there),
        tuple(each.novel for each in there),
        tuple(each.epoch if each.reached else None for each in found),
    )


def searches(entries: Sequence[Entry]) -> dict[tuple[str, str], list[Entry]]:
    """The rows of each search, by experiment and system."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.row.recipe == SEARCH:
            found.setdefault((experiment_of(entry.row), system_of(entry.row)), []).append(entry)
    return found

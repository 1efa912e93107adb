"""`evidence`, from entries to cells: errors at the end of training with their intervals, differences from QCN and
errors by toy, the match, and the search of learning rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from quatcaps.paper.collection import Entry
from quatcaps.paper.evidence_lines import Line, Pair, label, longer, matched, measured_in, paired, searches, together
from quatcaps.paper.evidence_rates import CHOSEN, FACTORS, choice, held_out_errors, standard_error
from quatcaps.paper.evidence_rows import (
    AFTER_MORE,
    CONTENDERS,
    EXPERIMENTS,
    REFERENCE,
    TOGETHER,
    Experiment,
    default_rate,
    experiment_of,
    given,
    system_of,
)
from quatcaps.paper.evidence_statistics import RESAMPLES, Estimate, mean_of, of_percents
from quatcaps.paper.evidence_toys import toy_table
from quatcaps.paper.matching import REFERENCES
from quatcaps.report.intervals import by_holm
from quatcaps.report.tables import NOTHING, Table

FEW = 5
"""Fewer seeds than these are marked."""
MARK = " °"
NOTES = (
    "Every system has the images of QCN `best`: augmentation, size, epochs, batches, weight decay, label smoothing "
    "and averaged weights. All of these were chosen for QCN, on smallNORB with some test errors known; no other "
    "system had such a search. Its network and loss are its own; so is its learning rate, where held-out images have "
    "chosen one (last table; else its default). At the default rate, QCN and its parts are compared once more; so are "
    "some systems after 180 epochs, with the rates of 60. Parts of QCN are changed one at a time. No routing: one "
    "iteration, under uniform assignments. One trunk has as many parameters as the two branches. QCN has one shape in "
    "all experiments; for pooled azimuths `best` has a coarse one of 66K parameters, which stands beside it.",
    "At the end of training: error in %, the mean over seeds with its 95% interval; no epoch is chosen. Intervals: "
    f"Student's t times the deviation of {RESAMPLES:,} resamples of seeds and, within each class, of toys, in which "
    "what changes with both at once counts once; where images show no toys, times that over seeds and images, by a "
    "formula. Differences are paired by toy, or by image: both systems are measured on the same ones, each with seeds "
    "of its own. Verdict: of novel (else test) images, whether that interval excludes 0; with many comparisons some "
    "will by chance. Pooled toys were trained on, from other viewpoints. docs/evidence.md has the method.",
    f"Marked{MARK}: fewer than {FEW} seeds, too few to settle anything; of fewer than three there is no interval.",
    "Azimuths and elevations together: the mean of both differences. The toys are the same in both and drawn once, the "
    "networks are others. By this mean `reproduce settings` chooses. By chance: how likely a difference so large is if "
    "there is none, by Student's t. Among all: the same by Holm's correction, as so many pairs of these experiments "
    "are looked at; believing those below 0.05, one verdict or more is false in at most 5% of such tables.",
    "Errors by toy: of novel (else test) images, means over seeds; how much of all errors of a system the hardest toys "
    "make, and the correlation of its errors with QCN's over all toys.",
    "At the match, as the paper compares: the first epoch at which the familiar test error (strict) or the training "
    "error (pooled) is at or below the reference; its novel error, the mean over the seeds that come so low, with an "
    "interval over these seeds alone. Seeds that never do are left out, which favours systems of which few do. Epochs "
    "count from 1, in the order of the seeds; –: never.",
    "Learning rates: the standard error is that of one mean, in points, from what folds and rates, added up, leave "
    "unexplained of a system's held-out errors.",
)
NOT_TOLD = "not told apart"
VERDICTS = {1: "QCN is better", -1: "QCN is worse", 0: NOT_TOLD}


def evidence_tables(lines: Mapping[str, Sequence[Line]], entries: Sequence[Entry]) -> tuple[Table, ...]:
    """One for each experiment that has a run, at the end of training; other pairs; azimuths and elevations
    together; errors by toy; the match; the rates. None is empty."""
    ends = (end_table(EXPERIMENTS[name], found) for name, found in lines.items() if is_begun(found))
    tables = (
        *ends,
        pair_table(lines),
        together_table(lines),
        toy_table(lines),
        match_table(entries),
        rate_table(entries),
    )
    return tuple(table for table in tables if table.rows)


def is_begun(lines: Sequence[Line]) -> bool:
    return any(line.seeds for line in lines)


def evidence_notes(lines: Mapping[str, Sequence[Line]]) -> tuple[str, ...]:
    """What there is to say of the tables, which systems are compared by seeds alone or with fewer seeds, and which
    experiments have no run."""
    notes = list(NOTES)
    if whole := told_systems(lines, by_seeds_alone):
        notes.append(
            "Of these systems records do not say which images or toys they misclassify, or they are of others than "
            "QCN's: intervals of theirs, or of differences from them, are over seeds alone, and say nothing of other "
            f"images: {whole}."
        )
    if fewer := told_systems(lines, fewer_seeds):
        notes.append(f"Some seeds of these are left out, as their records do not say it and others do: {fewer}.")
    if whole or fewer:
        notes.append("`--again` measures such runs again, or trains them where `--work` does not have them.")
    if titles := [EXPERIMENTS[name].title for name, found in lines.items() if not is_begun(found)]:
        notes.append(f"Without a run yet: {'; '.join(titles)}.")
    return tuple(notes)


def told_systems(lines: Mapping[str, Sequence[Line]], chosen: Callable[[Sequence[Line]], list[Line]]) -> str:
    """The systems of which something is so, by experiment."""
    found = {name: " · ".join(label(line.entry.row) for line in chosen(members)) for name, members in lines.items()}
    return "; ".join(f"{EXPERIMENTS[name].title} ({systems})" for name, systems in found.items() if systems)


def by_seeds_alone(lines: Sequence[Line]) -> list[Line]:
    """The systems that have such intervals: of their own, or of their difference from a QCN that has not."""
    own = {system_of(line.entry.row): has_seeds_alone(line.means) for line in lines}
    told_of_qcn = own.get(REFERENCE, False)
    return [
        line
        for line in lines
        if own[system_of(line.entry.row)] or (has_seeds_alone(line.differences) and not told_of_qcn)
    ]


def has_seeds_alone(found: Mapping[str, Estimate]) -> bool:
    return any(each.seeds_alone and each.low is not None for each in found.values())


def fewer_seeds(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if len(line.entry.records) > line.seeds]


def end_table(experiment: Experiment, lines: Sequence[Line]) -> Table:
    """Errors at the end of training, and what they are less QCN's."""
    names = measured_in(experiment)
    rows = [
        (
            label(line.entry.row),
            line.entry.parameters,
            f"{line.seeds}{few(line.seeds)}" if line.seeds else NOTHING,
            *(told(line.means.get(name)) for name in names),
            *(told(line.differences.get(name), signed=True) for name in names),
            verdict(line, "novel" if "novel" in names else "test"),
        )
        for line in lines
    ]
    errors = tuple(f"{words} (%)" for words in names.values())
    differences = tuple(f"{words}, less QCN (points)" for words in names.values())
    columns = ("system", "parameters", "seeds", *errors, *differences, "verdict")
    return Table(f"{experiment.title}: error at the end of training", columns, tuple(rows))


def verdict(line: Line, name: str) -> str:
    """What the interval of the difference says, in words."""
    found = line.differences.get(name)
    return NOTHING if found is None or found.low is None else VERDICTS[found.sign]


def pair_table(lines: Mapping[str, Sequence[Line]]) -> Table:
    """Systems other than QCN compared with each other, where both have runs."""
    rows = []
    for name, found in lines.items():
        for pair in paired(found):
            who = label(pair.first.entry.row), label(pair.second.entry.row)
            differences = [pair.differences.get(images) for images in ("test", "novel")]
            shown = [told(each, signed=True) for each in differences]
            verdict = pair_verdict(pair.differences.get("novel", pair.differences.get("test")), *who)
            rows.append((EXPERIMENTS[name].title, *who, *shown, verdict))
    columns = ("experiment", "system", "less", "familiar, or test (points)", "novel (points)", "verdict")
    return Table("Other pairs: error at the end of training", columns, tuple(rows))


def together_table(lines: Mapping[str, Sequence[Line]]) -> Table:
    """Azimuths and elevations together: one difference for each pair of systems, and how likely chance alone is, for
    the pair by itself and among all of its experiments."""
    rows: list[tuple[str, ...]] = []
    for title, names in TOGETHER.items():
        pairs = together(lines, names)
        others = [label(pair.second.entry.row) for pair in pairs]
        if title == AFTER_MORE:
            with_itself = longer(lines, names, TOGETHER["Strict"])
            pairs += with_itself
            others += [f"the same after {given(EXPERIMENTS['azimuth-strict']).epochs}"] * len(with_itself)
        rows += rows_of_pairs(title, pairs, others)
    columns = ("experiments", "system", "less", "novel (points)", "verdict", "by chance", "among all")
    return Table("Azimuths and elevations together: mean of both, at the end of training", columns, tuple(rows))


def rows_of_pairs(title: str, pairs: Sequence[Pair], others: Sequence[str]) -> list[tuple[str, ...]]:
    """The comparisons of some experiments, corrected for how many they are."""
    found = [pair.differences["novel"] for pair in pairs]
    corrected = iter(by_holm([each.chance for each in found if each.low is not None]))
    rows: list[tuple[str, ...]] = []
    for pair, other, difference in zip(pairs, others, found, strict=True):
        sure = difference.low is not None
        chances = (probable(difference.chance), probable(next(corrected))) if sure else (NOTHING, NOTHING)
        first = label(pair.first.entry.row)
        rows.append(
            (title, first, other, told(difference, signed=True), pair_verdict(difference, first, other), *chances)
        )
    return rows


def probable(chance: float) -> str:
    """
    >>> probable(0.03125), probable(0.00002)
    ('0.031', 'below 0.001')
    """
    return "below 0.001" if chance < 0.001 else f"{chance:.3f}"


def pair_verdict(found: Estimate | None, first: str, second: str) -> str:
    """What the interval of the first's error less the second's says."""
    if found is None or found.low is None:
        return NOTHING
    return f"{second if found.sign > 0 else first}: better" if found.sign else NOT_TOLD


def few(seeds: int) -> str:
    return MARK if 0 < seeds < FEW else ""


def told(found: Estimate | None, *, signed: bool = False) -> str:
    """A mean with its interval.

    >>> told(Estimate(10.314, 8.52, 12.1)), told(Estimate(-0.5, None, None), signed=True), told(None)
    ('10.31 [8.52, 12.10]', '−0.50', '–')
    """
    if found is None:
        return NOTHING
    form = "+.2f" if signed else ".2f"
    text = f"{found.mean:{form}}"
    if found.low is not None:
        text += f" [{found.low:{form}}, {found.high:{form}}]"
    return text.replace("-", "−")


def match_table(entries: Sequence[Entry]) -> Table:
    """Novel errors where familiar ones match, as the paper compares, with the epoch of each match; of systems that have
    a run."""
    rows = []
    for entry in entries:
        if not entry.row.matched or not entry.records:
            continue
        experiment, found = EXPERIMENTS[experiment_of(entry.row)], matched(entry)
        reference = REFERENCES[entry.row.viewpoints, entry.row.protocol]
        epochs = ", ".join(NOTHING if epoch is None else str(epoch) for epoch in found.epochs)
        mean = told(mean_of(of_percents(found.novel))) if found.novel else NOTHING
        count = f"{found.reached} of {len(found.epochs)}"
        rows.append((experiment.title, label(entry.row), f"{reference:g}", mean, count, epochs))
    columns = ("experiment", "system", "matched at (%)", "novel (%)", "seeds that came to it", "epoch of each seed")
    return Table("At the match", columns, tuple(rows))


def rate_table(entries: Sequence[Entry]) -> Table:
    """Held-out errors by rate, and what they choose; searches without a run are left out."""
    rows = []
    for (experiment, system), members in searches(entries).items():
        if not any(entry.records for entry in members):
            continue
        held, chosen, used = EXPERIMENTS[experiment], choice(members), CHOSEN.get(f"{experiment}/{system}")
        errors, apart = held_out_errors(members), standard_error(members)
        rows.append(
            (
                held.title,
                CONTENDERS[system].name,
                f"{default_rate(held, system):.2g}",
                *(NOTHING if error is None else f"{error:.2f}" for error in (*errors, apart)),
                NOTHING if chosen is None else f"× {chosen:g}",
                "default" if used is None else f"× {used:g}",
            )
        )
    factors = tuple(f"× {factor:g} (%)" for factor in FACTORS)
    columns = ("experiment", "system", "default rate", *factors, "standard error", "lowest", "used")
    return Table("Learning rates: error on held-out images", columns, tuple(rows))


def evidence_numbers(compared: Mapping[str, Sequence[Line]]) -> Table:
    """For programs: a line for each system and set of images."""
    rows = []
    for name, lines in compared.items():
        for line in lines:
            for measured in measured_in(EXPERIMENTS[name]):
                rows.append((name, line.entry.row.key, measured, *_numbers(line, measured)))
    errors = ("error", "error_low", "error_high", "less_qcn", "less_qcn_low", "less_qcn_high")
    of_match = ("matched_seeds", "matched_error", "matched_error_low", "matched_error_high", "matched_epoch")
    columns = ("experiment", "key", "images", "parameters", "seeds", "toys", *errors, *of_match)
    return Table("", columns, tuple(rows))


def _numbers(line: Line, measured: str) -> tuple[str, ...]:
    mean, difference = line.means.get(measured), line.differences.get(measured)
    start = (line.entry.parameters, str(line.seeds), str(mean.toys) if mean else "0")
    at_match = (NOTHING,) * 5
    if measured == "novel" and line.entry.row.matched and line.entry.records:
        found = matched(line.entry)
        error = mean_of(of_percents(found.novel)) if found.novel else None
        epochs = [epoch for epoch in found.epochs if epoch is not None]
        mean_epoch = f"{sum(epochs) / len(epochs):.1f}" if epochs else NOTHING
        at_match = (str(found.reached), *_cells(error), mean_epoch)
    return (*start, *_cells(mean), *_cells(difference), *at_match)


def _cells(found: Estimate | None) -> tuple[str, str, str]:
    numbers = (None, None, None) if found is None else (found.mean, found.low, found.high)
    first, second, third = (NOTHING if number is None else f"{number:.4f}" for number in numbers)
    return first, second, third

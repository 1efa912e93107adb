"""`evidence`: systems are given the same, rates are chosen unseen, tables say what the records do."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up import leave, made_up
from rich.console import Console

from quatcaps.models import build, parameter_count
from quatcaps.paper import evidence_rates, work
from quatcaps.paper.collection import Entry, collect
from quatcaps.paper.cost import Cost, Times, cost_of
from quatcaps.paper.evidence_lines import compared, matched, searches
from quatcaps.paper.evidence_rates import FACTORS, choice, factor, standard_error
from quatcaps.paper.evidence_rows import (
    EXPERIMENTS,
    ONE_TRUNK,
    PARTS,
    REFERENCE,
    SEARCH,
    SYSTEMS,
    TAUGHT,
    experiment_of,
    system_of,
)
from quatcaps.paper.evidence_statistics import Estimate
from quatcaps.paper.evidence_tables import evidence_notes, match_table, pair_verdict, rate_table, together_table
from quatcaps.paper.evidence_toys import toy_table
from quatcaps.paper.miniature import quick
from quatcaps.paper.record import RunRecord
from quatcaps.paper.reproduce import Request, select
from quatcaps.paper.rows import ROWS
from quatcaps.paper.stopping import NEVER
from quatcaps.paper.tables import page
from quatcaps.paper.work import DONE, NONE, Job, Place, in_order, perform, state
from quatcaps.paper.workers import is_done
from quatcaps.training.measure import Rate
from quatcaps.training.start import checked

EVIDENCE = [row for row in ROWS.values() if "evidence" in row.tables]
COMPARED = [row for row in EVIDENCE if row.recipe != SEARCH]
OWN = ("model", "model_settings", "loss", "margin_scale", "score_scale", "learning_rate")
STRICT = "evidence-azimuth-strict"
STRICTLY = ("azimuth-strict", "elevation-strict")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_system_is_given_what_best_gives_qcn(name: str) -> None:
    given = ROWS[f"evidence-{name}/qcn/best"].config(3)
    held = EXPERIMENTS[name]
    same = ROWS[f"{name.replace('default', 'strict').replace('long', 'strict')}/qcn/best"].config(3)
    same = same.changed({"epochs": held.epochs, "evaluate_every": 0}) if held.epochs else same
    if held.protocol == "pooled":
        same = same.changed({"evaluate_every": 0, "evaluate_at": 3.7 if held.viewpoints == "azimuth" else 4.4})
    assert given.learning_rate == pytest.approx(factor(name, "qcn/best") * same.learning_rate)
    own = {each: getattr(same, each) for each in ("model_settings", "learning_rate")}
    assert given.changed(own) == same, "the row of Tables I and II"
    for row in COMPARED:
        if experiment_of(row) == name:
            config = row.config(3)
            smoothing = {} if config.loss == "cross-entropy" else {"label_smoothing": given.label_smoothing}
            assert config.changed({each: getattr(given, each) for each in OWN} | smoothing) == given, row.key
            assert row.wanted == (10 if row.dataset == "smallnorb" else 5)
            follows = row.viewpoints != "all" and not held.epochs
            assert (bool(config.evaluate_every or config.evaluate_at), row.matched) == (follows, follows)


@pytest.mark.parametrize("system", [*SYSTEMS, *PARTS])
def test_every_system_has_a_miniature_that_runs(system: str) -> None:
    config = quick(ROWS[f"{STRICT}/{system}"]).config(1)
    assert (config.dataset, config.epochs, config.viewpoints) == ("toys-mini", 2, "azimuth")
    assert checked(config) == config
    network = build(config.model, channels=2, classes=5, **config.model_settings)
    assert parameter_count(network) < 30_000


def test_one_trunk_has_as_many_parameters_as_two_branches() -> None:
    trunk = parameter_count(build("qcn-joint", channels=2, classes=5, **ONE_TRUNK))
    config = ROWS["evidence-smallnorb/qcn/best"].config(0)
    branches = parameter_count(build(config.model, channels=2, classes=5, **config.model_settings))
    assert trunk == 160_534
    assert abs(trunk - branches) < 1000


def test_no_routing_is_one_iteration() -> None:
    """So that "one iteration in place of two" is no other row."""
    settings = build("qcn-no-routing", channels=2, classes=5).settings
    assert (settings.routing.iterations, build("qcn", channels=2, classes=5).settings.routing.iterations) == (1, 2)
    assert "qcn/no-routing" in PARTS


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_rates_are_searched_without_test_images(experiment: str) -> None:
    rows = [row for row in EVIDENCE if row.recipe == SEARCH and experiment_of(row) == experiment]
    assert bool(rows) == (experiment not in evidence_rates.SHARED)
    for row in rows:
        assert not row.default
        assert not row.matched
        config, itself = row.config(2), ROWS[f"evidence-{experiment}/{system_of(row)}"].config(2)
        searched = ("validation", "test", "evaluate_every", "data_seed", "learning_rate", "epochs")
        assert itself.changed({name: getattr(config, name) for name in searched}) == config
        assert not config.test
        times = config.learning_rate / itself.learning_rate * factor(experiment, system_of(row))
        assert times == pytest.approx(float(row.key.rsplit("x", 1)[1]))
        assert config.epochs == itself.epochs // (1 if row.dataset == "smallnorb" else 4)


def search_of(errors: dict[float, float], seeds: int = 10) -> list[Entry]:
    rows = [ROWS[f"rates-azimuth-strict/vb/x{scale:g}"] for scale in FACTORS]
    return [
        Entry(row, tuple(made_up(row, seed, errors[scale]) for seed in range(seeds)) if scale in errors else ())
        for row, scale in zip(rows, FACTORS, strict=True)
    ]


def test_a_search_chooses_when_it_is_complete() -> None:
    errors = {0.5: 0.2, 1.0: 0.1, 2.0: 0.05, 4.0: 0.3}
    assert choice(search_of(errors)) == 2.0
    assert choice(search_of(dict.fromkeys(FACTORS, 0.1))) == 0.25, "the smaller of two"
    assert choice(search_of(errors, seeds=9)) is None, "a fold is missing"
    assert choice(search_of({scale: error for scale, error in errors.items() if scale != 4.0})) is None, "not bracketed"
    assert choice(search_of({0.5: 0.3, 1.0: 0.2, 2.0: 0.3})) == 1.0, "the rest need not be tried"
    assert choice(search_of({8.0: 0.3, 16.0: 0.2})) == 16.0, "nothing larger is in question"
    (line,) = rate_table(search_of(errors)).rows
    assert line[:3] == ("Azimuth, strict", "VB", "0.00071")
    assert line[-2:] == ("× 2", "default")
    assert rate_table([Entry(ROWS["rates-cifar10/cnn/x1"])]).rows == ()


def test_what_was_chosen_is_the_rate_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_rates, "CHOSEN", {"azimuth-strict/cnn": 4.0, "azimuth-strict/qcn/best": 2.0})
    assert factor("azimuth-strict", "cnn") == factor("elevation-pooled", "cnn") == factor("smallnorb", "cnn") == 4.0
    assert factor("azimuth-pooled", "cnn") == factor("svhn", "cnn") == 1.0
    assert factor("elevation-strict", "qcn/free") == 2.0, "a part has the rate of the whole"


def test_no_more_seeds_are_trained_than_rows_want() -> None:
    rows = [ROWS["evidence-mnist/cnn"], ROWS[f"{STRICT}/cnn"], ROWS["rates-cifar10/cnn/x2"], ROWS["mnist/cnn"]]
    counted = [sum(job.row is row for job in in_order(rows, range(12))) for row in rows]
    assert counted == [5, 10, 1, 12]


def test_runs_of_table_2_with_the_same_settings_are_not_trained_again(tmp_path: Path) -> None:
    row, other = ROWS["evidence-mnist/qcn/best"], ROWS["mnist/qcn/best"]
    assert all(each.twin in ROWS for each in EVIDENCE if each.twin)
    leave(tmp_path, made_up(other, 0, epochs=160))
    leave(tmp_path, made_up(other, 1, epochs=160, learning_rate=0.5))
    leave(tmp_path, made_up(other, 2, epochs=160)).write_text("{")
    leave(tmp_path, made_up(other, 7, epochs=160))
    leave(tmp_path, made_up(row, 3, epochs=160))
    place = Place(tmp_path, tmp_path)
    assert [state(Job(row, seed), place) for seed in range(5)] == [DONE, NONE, NONE, DONE, NONE]
    (entry,), problems = collect([row], tmp_path)
    assert [(record.key, record.seed) for record in entry.records] == [(other.key, 0), (row.key, 3)]
    assert problems == []
    summary = perform([Job(row, 0)], place, Console(quiet=True), NEVER)
    assert summary.before == [Job(row, 0)]
    assert ROWS[f"{STRICT}/qcn/best"].twin == "", "no errors by toy there"


def telling(record: RunRecord) -> RunRecord:
    """The same record, which says which images are misclassified."""
    missed = {"test": tuple(range(record.final["test"].errors))}
    return replace(record, by_toy={}, digests={"test": "of all"}, missed=missed)


def test_runs_that_cannot_be_paired_stand_in_tables_and_are_trained_again_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of its own and of Table II alike; what was trained since is left alone, whatever it says."""
    row, other = ROWS["evidence-mnist/qcn/best"], ROWS["mnist/qcn/best"]
    mute = [replace(made_up(other, seed, epochs=160), by_toy={}) for seed in range(4)]
    leave(tmp_path, mute[0])
    leave(tmp_path, telling(mute[1]))
    leave(tmp_path, replace(mute[2], key=row.key))
    leave(tmp_path, replace(telling(replace(mute[3], key=row.key)), digests={}))
    nothing = replace(made_up(other, 4, epochs=160), by_toy={}, final={"test": Rate(0, 10_000)}, digests={"test": "x"})
    leave(tmp_path, nothing)
    place, jobs = Place(tmp_path, tmp_path), [Job(row, seed) for seed in range(5)]
    assert [state(job, place) for job in jobs] == [DONE] * 5
    (entry,), _ = collect([row], tmp_path)
    assert [record.seed for record in entry.records] == [*range(5)]
    assert perform(jobs, place, Console(quiet=True), NEVER).before == jobs
    monkeypatch.setattr(
        work,
        "train",
        lambda job, place, *_, **__: leave(
            place.output, replace(mute[job.seed % 4], key=row.key, seed=job.seed, config=row.config(job.seed))
        ),
    )
    now = time.time() + 60
    assert [job.seed for job in jobs if not is_done(job, place, now)] == [0, 2, 3]
    summary = perform(jobs, place, Console(quiet=True), NEVER, again=True, since=now)
    assert [job.seed for job in summary.trained] == [0, 2, 3]
    assert perform(jobs, place, Console(quiet=True), NEVER, again=True, since=now - 3600).before == jobs
    search = next(row for row in EVIDENCE if row.recipe == SEARCH)
    leave(tmp_path, made_up(search, epochs=search.config(0).epochs))
    assert is_done(Job(search, 0), place, now), "its images were held out: there is nothing to pair"
    assert [row for row in ROWS.values() if row.paired] == COMPARED


def test_seeds_that_say_nothing_are_left_out_where_others_do(tmp_path: Path) -> None:
    """With them all would be compared by seeds alone, and be far too sure."""
    row = ROWS["evidence-azimuth-strict/qcn/best"]
    records = [made_up(row, seed) for seed in range(4)]
    entry = Entry(row, (replace(records[0], by_toy={}), *records[1:]))
    (line,) = compared([entry])["azimuth-strict"]
    assert line.seeds == 3
    assert line.means == compared([Entry(row, tuple(records[1:]))])["azimuth-strict"][0].means
    notes = evidence_notes(compared([entry]))
    assert [note for note in notes if "are left out" in note and note.endswith("do: Azimuth, strict (QCN).")]
    assert [note for note in notes if note.startswith("`--again` measures")]
    few = compared([Entry(row, (records[0], *(replace(each, by_toy={}) for each in records[1:])))])["azimuth-strict"]
    assert few[0].seeds == 4, "by seeds alone, as there are too few others"
    assert few[0].means["novel"].seeds_alone


def test_notes_name_who_is_compared_by_seeds_alone() -> None:
    """Of systems with an interval, whose records say nothing of toys or images."""
    qcn, cnn = (ROWS[f"evidence-mnist/{system}"] for system in ("qcn/best", "cnn"))
    records = [
        [replace(made_up(row, seed), by_toy={}, digests={"test": "x"}) for seed in range(3)] for row in (qcn, cnn)
    ]
    told = [replace(each, missed={"test": tuple(range(each.final["test"].errors))}) for each in records[1]]
    notes = evidence_notes(compared([Entry(qcn, tuple(records[0])), Entry(cnn, tuple(told))]))
    assert [note for note in notes if "say nothing of other images: MNIST (QCN)." in note]
    lines = compared([Entry(qcn, tuple(records[0][:2])), Entry(cnn, tuple(told))])
    assert not [note for note in evidence_notes(lines) if "over seeds alone" in note and "do not say" in note]
    elsewhere = [replace(telling(each), digests={"test": "others"}) for each in records[0]]
    lines = compared([Entry(qcn, tuple(elsewhere)), Entry(cnn, tuple(told))])
    assert not lines["mnist"][1].means["test"].seeds_alone
    assert lines["mnist"][1].differences["test"].seeds_alone, "of other images"
    assert [note for note in evidence_notes(lines) if "say nothing of other images: MNIST (CNN)." in note]


def test_after_more_epochs_there_is_no_match(tmp_path: Path) -> None:
    """Novel viewpoints are measured at the end alone; runs of `settings` stand here too."""
    row, resnet = ROWS["evidence-azimuth-long/qcn-rotor"], ROWS["evidence-azimuth-long/resnet-153k"]
    leave(tmp_path, made_up(ROWS["settings-azimuth/longer"], 0, epochs=180))
    assert [state(Job(row, seed), Place(tmp_path, tmp_path)) for seed in (0, 1)] == [DONE, NONE]
    found, problems = collect([row], tmp_path)
    assert problems == []
    entries = [*found, Entry(resnet, (made_up(resnet, 0, epochs=180),))]
    made = page("evidence", entries)
    titles = [table.title.split(":")[0] for table in made.measured]
    assert titles == ["Azimuth, strict, 180 epochs", "Other pairs", "Errors by toy"]
    numbers = csv.DictReader(made.numbers.csv().splitlines())
    assert {line["matched_seeds"] for line in numbers if line["experiment"] == "azimuth-long"} == {""}


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    """Ten seeds of three systems, four of a fourth; ResNet has half as many errors more than QCN."""
    errors = {"qcn/best": 0.06, "resnet-153k": 0.09, "qcn/free": 0.06, "cnn": 0.2}
    found = []
    for row in COMPARED:
        if experiment_of(row) == "azimuth-strict":
            seeds = range(10 if row.recipe == "part" or system_of(row) != "cnn" else 4)
            records = [made_up(row, seed, errors[system_of(row)], 12) for seed in seeds if system_of(row) in errors]
            found.append(Entry(row, tuple(records)))
    return found


def test_errors_at_the_end_come_first(entries: list[Entry]) -> None:
    made = page("evidence", entries)
    first = made.tables[0]
    assert first.title == "Azimuth, strict: error at the end of training"
    lines = {line[0]: line for line in first.rows}
    (strict,) = [lines_of for name, lines_of in compared(entries).items() if name == "azimuth-strict"]
    qcn = next(line for line in strict if system_of(line.entry.row) == REFERENCE)
    assert lines["QCN"][3].startswith(f"{qcn.means['test'].mean:.2f} [")
    assert lines["QCN"][5:] == ("–", "–", "–")
    assert lines["QCN"][2] == "10"
    assert lines["CNN"][2] == "4 °", "few seeds are marked"
    assert lines["CNN"][-1] == lines["ResNet 153K"][-1] == "QCN is better"
    assert lines["ResNet 153K"][6].startswith("+")
    assert lines["QCN, free maps"][-1] == "not told apart"
    assert lines["VB"][2:] == ("–",) * 6
    titles = [table.title.split(":")[0] for table in made.measured]
    assert titles == ["Azimuth, strict", "Errors by toy", "At the match"], "no pair"
    searched = page("evidence", search_of(dict.fromkeys(FACTORS, 0.1)))
    assert [table.title.split(":")[0] for table in searched.measured] == ["Learning rates"]


def test_rotors_are_compared_with_residual_networks_too(entries: list[Entry]) -> None:
    """What the first has is less what the second has; the one with fewer errors is better."""
    by_system = {system_of(entry.row): entry for entry in entries}
    qcn, resnet = by_system[REFERENCE].records, by_system["resnet-153k"]
    row = ROWS[f"{STRICT}/qcn-rotor"]
    rotors = Entry(row, tuple(replace(record, key=row.key) for record in qcn))
    made = page("evidence", [rotors if entry.row.key == row.key else entry for entry in entries])
    (pairs,) = [table for table in made.measured if table.title.startswith("Other pairs")]
    ((experiment, first, second, _, novel, verdict),) = pairs.rows
    assert (experiment, first, second) == ("Azimuth, strict", "QCN, rotors", "ResNet 153K")
    (strict,) = [found for name, found in compared(entries).items() if name == "azimuth-strict"]
    mirrored = next(line for line in strict if line.entry is resnet).differences["novel"]
    assert novel.startswith(f"{-mirrored.mean:+.2f}".replace("-", "−"))
    assert verdict == "QCN, rotors: better"
    assert pair_verdict(mirrored, "rotors", "ResNet") == "ResNet: better"
    assert pair_verdict(Estimate(0.1, -1.0, 1.2), "rotors", "ResNet") == "not told apart"
    assert pair_verdict(Estimate(0.1, None, None), "rotors", "ResNet") == pair_verdict(None, "", "") == "–"


def test_every_seed_has_the_epoch_of_its_match(entries: list[Entry]) -> None:
    qcn = next(entry for entry in entries if system_of(entry.row) == REFERENCE)
    falling = tuple(epoch | {"test_error": 0.1 - 0.01 * epoch["epoch"]} for epoch in qcn.records[0].epochs)
    first, second = replace(qcn.records[0], epochs=falling), qcn.records[1]
    found = matched(Entry(qcn.row, (first, second)))
    assert (found.epochs, found.reached) == ((8, None), 1), "0.1 − 0.07 is the first below 3.7%"
    (line,) = match_table([Entry(qcn.row, (first, second))]).rows
    assert line[:3] == ("Azimuth, strict", "QCN", "3.7")
    assert line[3] == f"{found.novel[0]:.2f}"
    assert line[4:] == ("1 of 2", "8, –")


def test_azimuths_and_elevations_together(entries: list[Entry]) -> None:
    there = {system_of(entry.row): entry for entry in entries}
    elevations = []
    for system, more in (("qcn/best", 0.08), ("resnet-153k", 0.11)):
        row = ROWS[f"evidence-elevation-strict/{system}"]
        elevations.append(Entry(row, tuple(made_up(row, seed, more, 12) for seed in range(10))))
    found = compared([*entries, *elevations])
    table = together_table(found)
    assert [line[:3] for line in table.rows] == [("Strict", "ResNet 153K", "QCN")], "the others have azimuths alone"
    ((_, _, _, difference, verdict, alone, among),) = table.rows
    assert alone == among, "one pair needs no correction"
    assert float(alone.removeprefix("below ")) < 0.05
    lines = [next(each for each in found[name] if system_of(each.entry.row) == "resnet-153k") for name in STRICTLY]
    mean = sum(line.differences["novel"].mean for line in lines) / 2
    assert difference.startswith(f"{mean:+.2f} [")
    assert verdict == "QCN: better"
    assert lines[0].entry is there["resnet-153k"]


def test_more_epochs_are_compared_with_fewer() -> None:
    """All comparisons of some experiments are corrected together: two of systems, two of epochs."""
    entries = [
        Entry(row, tuple(made_up(row, seed, more - 0.05 * long, 12) for seed in range(5)))
        for viewpoints in ("azimuth", "elevation")
        for long in (False, True)
        for system, more in (("qcn/best", 0.1), ("resnet-153k", 0.13))
        for row in [ROWS[f"evidence-{viewpoints}-{'long' if long else 'strict'}/{system}"]]
    ]
    found = compared(entries)
    long = [line for line in together_table(found).rows if line[0] == "Strict, 180 epochs"]
    assert [line[1:3] for line in long] == [
        ("ResNet 153K", "QCN"),
        ("QCN", "the same after 60"),
        ("ResNet 153K", "the same after 60"),
    ]
    samples = {
        name: {system_of(line.entry.row): line.means["novel"] for line in found[name] if line.seeds} for name in found
    }
    (qcn,) = [line for line in long if line[1] == "QCN"]
    pairs = (("azimuth-long", "azimuth-strict"), ("elevation-long", "elevation-strict"))
    less = sum(samples[after]["qcn/best"].mean - samples[before]["qcn/best"].mean for after, before in pairs) / 2
    assert less < 0
    assert qcn[3].startswith(f"−{-less:.2f} [")
    assert qcn[4] == "QCN: better"
    chances = [float(line[5].removeprefix("below ")) for line in long]
    assert all(float(line[6].removeprefix("below ")) >= each for line, each in zip(long, chances, strict=True))


def test_the_hardest_toys_and_who_finds_them_hard() -> None:
    errors = {"qcn/best": (50, 10, 0, 40), "cnn": (5, 1, 0, 4)}
    found = []
    for system, counts in errors.items():
        row = ROWS[f"{STRICT}/{system}"]
        by_toy = {toy: Rate(count, 100) for toy, count in zip(("a 0", "a 1", "b 0", "b 1"), counts, strict=True)}
        records = [replace(made_up(row, seed, 0.1, 12), by_toy={"novel": by_toy}) for seed in range(3)]
        found.append(Entry(row, tuple(records)))
    table = toy_table(compared(found))
    assert [line[:2] for line in table.rows] == [("Azimuth, strict", "QCN"), ("Azimuth, strict", "CNN")]
    assert [line[2:] for line in table.rows] == [
        ("a 0 (50.0), b 1 (40.0), a 1 (10.0)", "100", "–"),
        ("a 0 (5.0), b 1 (4.0), a 1 (1.0)", "100", "1.00"),
    ]
    assert toy_table(compared(found[:1])).rows == (), "nothing to compare"


def test_numbers_for_programs(entries: list[Entry]) -> None:
    numbers = page("evidence", [*entries, Entry(ROWS["evidence-svhn/qcn/best"])]).numbers
    found = {(row["key"], row["images"]): row for row in csv.DictReader(numbers.csv().splitlines())}
    row = found[f"{STRICT}/resnet-153k", "novel"]
    assert (row["seeds"], row["toys"]) == ("10", "25")
    assert 0 < float(row["less_qcn_low"]) < float(row["less_qcn"]) < float(row["less_qcn_high"])
    assert found[f"{STRICT}/qcn/best", "novel"]["less_qcn"] == ""
    assert found["evidence-svhn/qcn/best", "test"]["error"] == ""


def test_a_search_knows_how_sure_its_means_are() -> None:
    """Toys and rates that add up leave nothing; what one fold has beyond that is spread over all."""

    def searched(beyond: int) -> list[Entry]:
        found = []
        for place, entry in enumerate(each for each in search_of({1.0: 0.1, 2.0: 0.2}) if each.records):
            errors = [1000 * (1 + place) + 300 * (seed % 5) + beyond * (place == seed % 5 == 1) for seed in range(10)]
            records = zip(entry.records, errors, strict=True)
            made = (replace(record, final={"validation": Rate(error, 10_000)}) for record, error in records)
            found.append(Entry(entry.row, tuple(made)))
        return found

    assert standard_error(searched(0)) == pytest.approx(0, abs=1e-9)
    assert standard_error(searched(100)) == pytest.approx(math.sqrt(0.02))
    assert standard_error(searched(0)[:1]) is None, "one rate"
    one_fold = [ROWS[f"rates-cifar10/cnn/x{scale}"] for scale in (1, 2)]
    assert standard_error([Entry(row, (made_up(row),)) for row in one_fold]) is None


def test_searches_are_told_apart_by_experiment_and_system() -> None:
    found = searches([Entry(row) for row in EVIDENCE])
    assert len(found) == 3 * 7, "seven systems in the three experiments with rates of their own"
    assert all(
        [entry.row.key.rsplit("x", 1)[1] for entry in group] == ["0.25", "0.5", "1", "2", "4", "8", "16"]
        for group in found.values()
    )


def test_what_is_left_has_its_time(tmp_path: Path) -> None:
    """A made-up run takes 4 minutes for 4 epochs and 100 steps of 64 images in each; 60 epochs take an hour."""
    row, other = ROWS[f"{STRICT}/qcn/best"], ROWS[f"{STRICT}/cnn"]
    times = Times([Entry(row, (made_up(row),))])
    place = Place(tmp_path, tmp_path)
    leave(tmp_path, made_up(row, seed=1, epochs=60))
    cost = cost_of([Job(row, 0), Job(row, 1), Job(other, 0), Job(ROWS["mnist/cnn"], 0)], place, times)
    assert (cost.left, round(cost.minutes, 6), cost.guessed, cost.untold) == (3, 120, 1, 1)
    assert str(cost) == (
        "3 runs left, about 120 min of training one after the other by the times on record (1 of them by those of "
        "other networks); 1 of which no record tells the time"
    )
    assert str(Cost(1, untold=1)) == "1 run left; 1 of which no record tells the time"
    keeping = ROWS["smallnorb/vb/published"].config(0)  # its validation images choose the epoch
    assert keeping.keep_best
    assert times.of_run(keeping) is None
    search = times.of_run(ROWS["rates-azimuth-strict/qcn/best/x1"].config(0))
    assert search is not None
    assert search.minutes == pytest.approx(48), "four toys of five"


def test_single_views_are_twice_as_many_images() -> None:
    """The time of the one is not that of the other, in whichever order records are read."""
    row = ROWS["smallnorb/qcn/paper"]
    pairs, single = made_up(row), made_up(row, 1, stereo_views="single")
    steps = tuple({**entry, "step": 2 * entry["step"]} for entry in single.epochs)
    single = replace(single, epochs=steps, seconds=2 * single.seconds)
    for records in ((pairs, single), (single, pairs)):
        times = Times([Entry(row, records)])
        told = [times.of_run(record.config) for record in (pairs, single)]
        assert [each and each.minutes for each in told] == pytest.approx([4.0, 8.0])


def test_keys_are_easy_to_select() -> None:
    """Neither rows nor the searches of their rates are in each other's way."""
    assert {row.key for row in select(EVIDENCE, ["evidence-*"])} == {row.key for row in COMPARED}
    assert all(row.recipe == SEARCH for row in select(EVIDENCE, ["rates-*"]))
    assert len(select(EVIDENCE, ["evidence-*-strict/*"])) == 2 * 13
    assert [system_of(row) for row in select(EVIDENCE, ["evidence-azimuth-strict/qcn"])] == [REFERENCE, *PARTS]
    chosen = Request(("evidence",)).chosen_rows()
    assert not any(row.recipe == SEARCH for row in chosen)
    slow = [f"{name}/{system}" for name in ("mnist", "fashionmnist", "svhn", "cifar10") for system in ("em", "vb")]
    toys = ("azimuth-strict", "elevation-strict", "smallnorb", "azimuth-pooled", "elevation-pooled")
    taught = [f"{name}/{system}" for name in toys for system in TAUGHT]
    assert [row.key for row in COMPARED if row not in chosen] == [f"evidence-{key}" for key in (*taught, *slow)]


def test_pretrained_systems_differ_from_others_by_their_first_weights() -> None:
    """And by poses beside the scores of a ResNet, which the rendered toys have taught."""
    assert len(TAUGHT) == 2
    for name in TAUGHT:
        taught, other = (ROWS[f"{STRICT}/{key}"] for key in (name, name.removesuffix("-pretrained")))
        assert taught.pretrained in ROWS
        assert not other.pretrained
        first, second = (vars(row.config(0)) for row in (taught, other))
        assert {key for key, value in first.items() if second[key] != value} <= {"model_settings"}
        lent = ROWS[taught.pretrained].config(0)
        assert build_like(first["model"], first["model_settings"]) == build_like(lent.model, lent.model_settings)


def build_like(model: str, settings: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    network = build(model, channels=2, classes=5, **settings)
    return {name: tuple(values.shape) for name, values in network.state_dict().items()}

"""What stands in results/ is what its records say, and the records are of the rows as they are."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quatcaps import weights
from quatcaps.paper import seconds
from quatcaps.paper.collection import Entry, collect, outdated
from quatcaps.paper.evidence_lines import searches
from quatcaps.paper.evidence_rates import CHOSEN, choice
from quatcaps.paper.evidence_rows import SEARCH
from quatcaps.paper.evidence_statistics import Sample, difference_of, difference_of_means, sample_of
from quatcaps.paper.fast import FAST
from quatcaps.paper.recipes import fast
from quatcaps.paper.record import read_record
from quatcaps.paper.render import document
from quatcaps.paper.rows import ROWS, TABLES
from quatcaps.paper.tables import page
from quatcaps.paper.to_error import Request
from quatcaps.paper.viewpoint_tables import MEASURED

RESULTS = Path(__file__).parents[1] / "results"


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    found, problems = collect(ROWS.values(), RESULTS)
    assert problems == []
    return found


def test_records_have_the_settings_of_their_rows(entries: list[Entry]) -> None:
    own = [record for entry in entries for record in entry.records if record.key == entry.row.key]
    short = list((RESULTS / "runs").glob("to-error*/**/*.json"))
    assert len(own) == len(list((RESULTS / "runs").rglob("*.json"))) - len(short) > 0
    assert outdated(entries) == []


@pytest.mark.parametrize("validation", [None, 0.1])
def test_short_runs_are_told_as_they_were_recorded(
    validation: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seconds, "seconds_figure", lambda entries, path: None)
    request = Request(validation=validation, output=RESULTS)
    found, problems = collect(request.with_recorded([]), RESULTS)
    assert problems == outdated(found) == []
    records = [record for entry in found for record in entry.records]
    assert len(records) == len(list((RESULTS / "runs" / request.name).rglob("*.json"))) > 0
    seconds.write(request.name, found, tmp_path)
    for ending in ("md", "csv"):
        name = f"{request.name}.{ending}"
        assert (tmp_path / name).read_text(encoding="utf-8") == (RESULTS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("dataset", FAST)
def test_short_recipes_are_the_shortest_of_those_that_are_as_good(dataset: str) -> None:
    """On held-out images, within a standard error of the lowest mean."""
    request = Request(validation=0.1, output=RESULTS)
    found, _ = collect(request.with_recorded([]), RESULTS)
    tried = [entry for entry in found if entry.row.dataset == dataset]
    assert len(tried) == 4
    means = [statistics.fmean(entry.errors("validation")) for entry in tried]
    lowest = tried[means.index(min(means))].errors("validation")
    most = min(means) + statistics.stdev(lowest) / len(lowest) ** 0.5
    good = [(entry.row.config(0), mean) for entry, mean in zip(tried, means, strict=True) if mean <= most]
    shortest, _ = min(good, key=lambda each: (each[0].epochs, each[1]))
    chosen = fast(dataset)
    assert (chosen.epochs, chosen.learning_rate, chosen.batch) == (
        shortest.epochs,
        shortest.learning_rate,
        shortest.batch,
    )


def test_as_many_settings_were_measured_on_pooled_images_as_table_1_says() -> None:
    """The row's own, and those that were tried."""
    words = {2: "two", 7: "seven"}
    for viewpoints in ("azimuth", "elevation"):
        tried = list((RESULTS / "tried").glob(f"{viewpoints}-pooled-*"))
        assert words[1 + len(tried)] == MEASURED[viewpoints]


FIRST_SEEDS = {
    "qcn-toys": "poses-toys/qcn/best",
    "qcn-rotor-toys": "poses-toys/qcn-rotor/poses",
    "qcn-rotor-smallnorb": "evidence-smallnorb/qcn-rotor",
}


@pytest.mark.parametrize("name", FIRST_SEEDS)
def test_cards_of_the_first_seed_say_so(name: str) -> None:
    """The record of smallNORB was measured on a GPU and its card on a CPU, where one image more is named rightly."""
    card = weights.card(name)
    paths = sorted((RESULTS / "runs" / FIRST_SEEDS[name]).glob("seed-*.json"))
    record = read_record(paths[0])
    fewer = 1 if name == "qcn-rotor-smallnorb" else 0
    assert card.error["test"] == replace(record.final["test"], errors=record.final["test"].errors - fewer)
    assert card.config.seed == record.seed == 0
    count = {5: "five", 10: "ten"}[len(paths)]
    assert f"seed 0; the first of {count} seeds, none was chosen; " in card.chosen
    assert f"--rows {FIRST_SEEDS[name]}" in card.chosen


ALONE = "qcn-rotor-paper-toys"


def test_the_card_of_a_network_that_is_in_no_table_says_so() -> None:
    card = weights.card(ALONE)
    assert (card.model, card.config.model_settings) == ("qcn-rotor", {})
    assert "the only seed, whose settings were not searched" in card.chosen


@pytest.mark.parametrize("name", sorted({*weights.names()} - {*FIRST_SEEDS, ALONE}))
def test_cards_say_what_the_records_have_of_their_seeds(name: str) -> None:
    """The file is the seed with the lowest error, and its card says those of the others."""
    card = weights.card(name)
    paths = sorted((RESULTS / "runs" / card.dataset / "qcn" / "best").glob("seed-*.json"))
    records = [read_record(path) for path in paths]
    percents = [record.final["test"].percent for record in records]
    lowest = min(records, key=lambda record: record.final["test"].percent)
    assert card.error["test"] == lowest.final["test"]
    assert card.config.seed == lowest.seed
    each = ", ".join(f"{percent:.2f}" for percent in percents)
    assert f"seed {lowest.seed}; the lowest test error of three seeds ({each} %)" in card.chosen
    assert f"whose mean is {statistics.mean(percents):.2f};" in card.chosen


def test_rates_are_those_that_the_searches_chose(entries: list[Entry]) -> None:
    """Every search that is complete stands in the source, and nothing else does."""
    searched = [entry for entry in entries if entry.row.recipe == SEARCH]
    found = {f"{name}/{system}": choice(members) for (name, system), members in searches(searched).items()}
    assert {key: chosen for key, chosen in found.items() if chosen is not None} == CHOSEN


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_rendered_from_the_records(name: str, entries: list[Entry]) -> None:
    own = [entry for entry in entries if name in entry.row.tables]
    made = page(name, own, quoted=True)
    assert document(name, made, own, quick=False) == (RESULTS / f"{name}.md").read_text()
    assert made.numbers.csv() == (RESULTS / f"{name}.csv").read_text()


def test_what_is_told_of_poses_was_measured() -> None:
    found = json.loads((RESULTS / "inspected/qcn-smallnorb/poses.json").read_text(encoding="utf-8"))["networks"][0]
    text = (RESULTS.parent / "docs/poses.md").read_text(encoding="utf-8")
    (turn,) = (each for each in found["transfer"] if each["turn"] == 40)
    told = [f"| {found['residual']['poses']:.1f} | 1.4 |", f"| {turn['ratio']:.2f} | 1 |", f"| {turn['moved']:.1f}° |"]
    told += [f"R² {probe['azimuth_r2']:.2f}, {probe['azimuth_degrees']:.0f}°" for probe in found["within"].values()]
    assert [words for words in told if words not in text] == []


def test_what_is_told_of_the_rate_of_qcn_follows_from_records(entries: list[Entry]) -> None:
    """Two experiments that no table compares with each other."""
    text = " ".join((RESULTS.parent / "docs/evidence.md").read_text(encoding="utf-8").split())
    found = {entry.row.key: sample_of(entry.records, "novel") for entry in entries if entry.row.paired}

    def of(key: str) -> Sample:
        sample = found[f"evidence-{key}"]
        assert sample is not None
        assert len(sample.errors) == 10
        return sample

    seen = ("azimuth", "elevation")
    chosen, default = ([of(f"{view}-{kind}/qcn/best") for view in seen] for kind in ("strict", "default"))
    more = difference_of_means(chosen, default)
    assert more.low is not None
    assert more.high is not None
    assert more.sign == 0
    assert f"it has {more.mean:.1f} points more errors (−{-more.low:.1f} to {more.high:.1f})" in text
    assert difference_of(of("azimuth-strict/resnet-153k"), default[0]).sign == 0
    ahead = difference_of(of("azimuth-strict/resnet-272k"), default[0])
    assert ahead.low is not None
    assert ahead.high is not None
    assert f"ResNet 272K is {-ahead.high:.1f} to {-ahead.low:.1f} points ahead from azimuths" in text


def nearest_of(network: dict[str, Any]) -> list[str]:
    return [f"{network['nearest'][name]['mean']:.3f}" for name in ("cw", "deepfool")]


def test_what_is_told_of_robustness_was_measured() -> None:
    text = (RESULTS.parent / "docs/robustness.md").read_text(encoding="utf-8")
    told = []
    found = json.loads((RESULTS / "attacked/qcn-toys/attack.json").read_text(encoding="utf-8"))["networks"][0]
    for name, words in (("fgsm", "FGSM"), ("pgd", "PGD"), ("vote", "vote attack")):
        percents = [rate["error_percent"] for rate in (found["clean"], *found["attacks"][name])]
        told.append(f"| {words} | {' | '.join(f'{percent:.1f}' for percent in percents)} |")
    photographs = json.loads((RESULTS / "attacked/cifar10-seed-4/attack.json").read_text(encoding="utf-8"))["networks"]
    for network in photographs:
        percents = [rate["error_percent"] for rate in (network["clean"], *network["strongest"][:4])]
        cells = [f"{network['parameters']:,}", *(f"{percent:.1f}" for percent in percents)]
        told.append(f"| {' | '.join(cells)} | {' | '.join(nearest_of(network))} |")
        assert not any(sign["seen"] for sign in network["masking"])
    qcn, rotors, resnet, _ = (network["nearest"]["deepfool"] for network in photographs)
    first, second = (f"{each['mean'] / resnet['mean']:.1f}" for each in (qcn, rotors))
    told.append(f"{first} times as robust as the residual network and rotors {second} times")
    first, second = (f"{each['median'] / resnet['median']:.1f}" for each in (qcn, rotors))
    told.append(f"by medians {first} and {second}")
    votes = [sign["words"] for network in photographs for sign in network["masking"] if sign["check"] == "votes"]
    assert [re.findall(r"[\d.]+%", words) for words in votes] == [["3.6%"], ["0.4%"]]
    for frame, words in ((28, "a frame of 28×28"), (40, "affNIST's frame of 40×40")):
        path = RESULTS / f"attacked/qcn-mnist-{frame}/affine.json"
        (network,) = json.loads(path.read_text(encoding="utf-8"))["networks"]
        percents = [rate["error_percent"] for rate in network["errors"].values()]
        told.append(f"| in {words} | {' | '.join(f'{percent:.2f}' for percent in percents)} |")
    for network in json.loads((RESULTS / "attacked/mnist/affine.json").read_text(encoding="utf-8"))["networks"]:
        percents = " | ".join(f"{rate['error_percent']:.2f}" for rate in network["errors"].values())
        told.append(f"| {network['parameters']:,} | {percents} |")
    assert [words for words in told if words not in text] == []


def test_what_is_told_of_unseen_kinds_was_measured() -> None:
    text = (RESULTS.parent / "docs/poses.md").read_text(encoding="utf-8")
    table = (RESULTS / "poses.md").read_text(encoding="utf-8")
    for line in re.findall(r"^\|.*±.*$", text, re.M):
        for number in re.findall(r"[\d.]+ ± [\d.]+", line):
            assert f"{number} (" in table, line

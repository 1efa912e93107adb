"""Records survive the disk, and nothing else passes for one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up import leave, made_up

from quatcaps.errors import QuatcapsError
from quatcaps.files import read_json
from quatcaps.paper import record
from quatcaps.paper.collection import Entry
from quatcaps.paper.record import differences, read_record, record_path, told
from quatcaps.paper.rows import ROWS
from quatcaps.paper.tables import page
from quatcaps.training.measure import Rate

ROW = ROWS["azimuth-strict/qcn/best"]


def test_round_trip(tmp_path: Path) -> None:
    record = made_up(ROW, seed=3)
    path = leave(tmp_path, record)
    assert path == tmp_path / "runs/azimuth-strict/qcn/best/seed-3.json" == record_path(tmp_path, ROW.key, 3)
    assert read_record(path) == record


def test_a_record_is_read_again_only_if_its_file_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    monkeypatch.setattr(record, "read_json", lambda path, what: (read.append(path), read_json(path, what))[1])
    path = leave(tmp_path, made_up(ROW, seed=3))
    assert read_record(path) is read_record(path)
    assert read == [path]
    assert leave(tmp_path, made_up(ROW, seed=3, error=0.05)) == path
    assert read_record(path) == made_up(ROW, seed=3, error=0.05)
    path.write_text("{}")
    with pytest.raises(QuatcapsError, match="is not the record of a run"):
        read_record(path)
    path.unlink()
    with pytest.raises(QuatcapsError, match="cannot read"):
        read_record(path)


def test_the_epoch_that_validation_images_chose(tmp_path: Path) -> None:
    row = ROWS["smallnorb/vb/published"]
    record = replace(made_up(row), chosen={"test": Rate(5, 100)}, chosen_epoch=3)
    found = read_record(leave(tmp_path, record))
    assert found == record
    entry = Entry(row, (found, made_up(row, 1)))
    assert entry.chosen() == [5.0], "the other has none"
    assert entry.lowest() == entry.late() == [], "test images are measured at the end alone"
    told_of = page("systems", [entry])
    assert told_of.tables[0].rows[0][-1] == "5.00 (1)"
    assert told_of.tables[0].columns[-1] == "chosen epoch (%)"
    assert any("Chosen epoch" in note and "`public code`" in note for note in told_of.notes)


@pytest.mark.parametrize(
    ("errors", "title", "name"),
    [
        ("renormalised", "new statistics", "new_statistics"),
        ("averaged", "averaged weights", "averaged"),
    ],
)
def test_other_measurements_of_the_end_have_a_column_where_there_are_some(
    errors: str, title: str, name: str, tmp_path: Path
) -> None:
    row = ROWS["smallnorb/qcn/published"]
    record = replace(made_up(row), **{errors: {"test": Rate(4, 100)}})
    assert read_record(leave(tmp_path, record)) == record
    told_of = page("systems", [Entry(row, (record,))])
    assert (told_of.tables[0].columns[-1], told_of.tables[0].rows[0][-1]) == (f"{title} (%)", "4.00 (1)")
    assert (told_of.numbers.columns[-1], told_of.numbers.rows[0][-1]) == (name, "4.0000")
    assert any(title.capitalize() in note for note in told_of.notes)
    without = page("systems", [Entry(row, (made_up(row),))])
    assert f"{title} (%)" not in without.tables[0].columns
    assert not any(title.capitalize() in note for note in without.notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda value: value.update(format=99), "format"),
        (lambda value: value.pop("format"), "format"),
        (lambda value: value.pop("machine"), "no machine"),
        (lambda value: value.update(parameters="many"), "'many' is a str"),
        (lambda value: value.update(seconds=None), "NoneType"),
        (lambda value: value.update(versions={}), "quatcaps and torch"),
        (lambda value: value["config"].update(margin="wide"), "margin"),
        (lambda value: value["config"].update(epochs="some"), "whole number"),
        (lambda value: value["epochs"].pop(), "3 of 4 epochs"),
        (lambda value: value["epochs"][1].update(error=1.5), "error is 1.5"),
        (lambda value: value["epochs"][1].update(novel_error="0.5"), "'0.5' is a str"),
        (lambda value: value["epochs"][1].pop("epoch"), "no epoch"),
        (lambda value: value.update(epochs=[1, 2, 3, 4]), "not a dict"),
        (lambda value: value["final"]["test"].update(errors=20_000), "20000 errors in 10000 images"),
        (lambda value: value["final"]["test"].update(images=0, errors=0), "0 errors in 0 images"),
        (lambda value: value.update(final={}), "0 final errors"),
        (lambda value: value["by_toy"]["novel"]["car 0"].update(errors=-1), "-1 errors in"),
        (lambda value: value.update(by_toy={"novel": []}), "not a dict"),
        (lambda value: value.update(key="mnist/em"), "holds another run, mnist/em"),
        (lambda value: value.update(seed=1), "another run"),
    ],
)
def test_foreign_and_damaged_files_are_refused_by_name(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    path = leave(tmp_path, made_up(ROW))
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    with pytest.raises(QuatcapsError) as caught:
        read_record(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_records_of_earlier_versions_have_no_errors_by_toy(tmp_path: Path) -> None:
    path = leave(tmp_path, made_up(ROW))
    value = json.loads(path.read_text())
    for later in ("by_toy", "digests", "poses"):
        value.pop(later)
    path.write_text(json.dumps(value))
    assert read_record(path) == replace(made_up(ROW), by_toy={})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": 1}'])
def test_what_is_no_record_at_all(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "seed-0.json"
    path.write_bytes(content)
    with pytest.raises(QuatcapsError, match=r"seed-0\.json"):
        read_record(path)


def test_only_settings_that_are_learned_from_count_as_differences() -> None:
    config = ROW.config(0)
    assert not differences(config.changed({"device": "cpu", "placement": "host", "log_every": 7}), config)
    plain = config.changed({"averaging": 0.0})
    assert not differences(plain.changed({"averaging_beside": 0.9}), plain)
    differing = differences(config.changed({"epochs": 7, "learning_rate": 0.5}), config)
    assert differing == {"epochs": (7, config.epochs), "learning_rate": (0.5, config.learning_rate)}
    assert told(differing).startswith(f"epochs was 7, is {config.epochs}; learning_rate was 0.5")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("within", {"classes": {}}),
        ("within", []),
        ("transfer", [{"turn": 40}]),
        ("transfer", [3]),
        ("residual", {"poses": "small"}),
        ("orientation", {"median_degrees": None}),
    ],
)
def test_damaged_poses_are_an_error(tmp_path: Path, name: str, value: object) -> None:
    record = made_up(ROWS["poses-toys/qcn-rotor/poses"])
    path = leave(tmp_path, replace(record, poses={**record.poses, name: value}))
    with pytest.raises(QuatcapsError, match="is not the record of a run"):
        read_record(path)


def test_errors_by_toy_are_the_final_ones(tmp_path: Path) -> None:
    record = made_up(ROW)
    more = replace(record.by_toy["novel"]["car 4"], errors=record.by_toy["novel"]["car 4"].errors + 1)
    other = {**record.by_toy, "novel": {**record.by_toy["novel"], "car 4": more}}
    with pytest.raises(QuatcapsError, match="errors by toy"):
        read_record(leave(tmp_path, replace(record, by_toy=other)))


def test_misclassified_images_of_what_was_not_measured_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="names 2 misclassified novel images"):
        read_record(leave(tmp_path, replace(IMAGES, missed={**IMAGES.missed, "novel": (0, 1)})))


IMAGES = replace(made_up(ROWS["mnist/cnn"]), by_toy={}, final={"test": Rate(3, 10)}, missed={"test": (0, 4, 9)})


@pytest.mark.parametrize(
    ("missed", "words"),
    [
        ("0 4", "names 2 misclassified test images"),
        ("0 4 10", "the last (10,)"),
        ("0 4 4", "not in order: '0 4 4'"),
        ("-1 4 9", "not in order"),
        ("0 4 x", "invalid literal"),
        ([0, 4, 9], "is a list, not a str"),
    ],
)
def test_misclassified_images_are_the_final_errors(tmp_path: Path, missed: object, words: str) -> None:
    path = leave(tmp_path, IMAGES)
    assert read_record(path) == IMAGES
    value = json.loads(path.read_text())
    assert value["missed"] == {"test": "0 4 9"}
    value["missed"] = {"test": missed}
    path.write_text(json.dumps(value))
    with pytest.raises(QuatcapsError, match=re.escape(words)):
        read_record(path)
    del value["missed"]
    path.write_text(json.dumps(value))
    assert read_record(path) == replace(IMAGES, missed={}), "a record of an earlier version"


@pytest.mark.parametrize("step", [None, "x", {}])
def test_steps_are_numbers(tmp_path: Path, step: object) -> None:
    record = made_up(ROW)
    epochs = (*record.epochs[:-1], {**record.epochs[-1], "step": step})
    with pytest.raises(QuatcapsError, match="is not the record"):
        read_record(leave(tmp_path, replace(record, epochs=epochs)))

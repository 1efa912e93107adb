"""`settings`: what is tried on rendered toys is what would be tried on smallNORB, and tables say what records do."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_up import made_up
from matplotlib.axes import Axes

from pictures import recorded
from quatcaps.data import pipeline_of
from quatcaps.data.preprocessing import draws, for_training
from quatcaps.paper import setting_figures
from quatcaps.paper.collection import Entry
from quatcaps.paper.miniature import quick
from quatcaps.paper.reproduce import Request
from quatcaps.paper.rows import ROWS
from quatcaps.paper.setting_rows import DRAWS, KNOWN, SEEDS, SETTINGS, VIEWPOINTS, known_key
from quatcaps.paper.setting_tables import Measured, on_toys, rank_correlation
from quatcaps.paper.tables import page
from quatcaps.training.measure import Rate
from quatcaps.training.start import checked

ROOT = Path(__file__).parents[2]
OURS = [row for row in ROWS.values() if "settings" in row.tables]


@pytest.mark.parametrize("viewpoints", VIEWPOINTS)
@pytest.mark.parametrize("key", SETTINGS)
def test_rendered_toys_stand_in_for_smallnorb_and_nothing_else_changes(key: str, viewpoints: str) -> None:
    toys = ROWS[f"settings-toys-{viewpoints}/{key}"]
    there = ROWS[known_key(viewpoints, SETTINGS[key]) or f"settings-{viewpoints}/{key}"]
    same = {"dataset": "smallnorb", "data_seed": 0, "evaluate_every": 0, "evaluate_images": 0}
    assert toys.config(3).changed(same) == there.config(3).changed(same)
    assert vars(pipeline_of("toys")) == vars(pipeline_of("smallnorb")), "the same way of the images"
    assert [toys.config(seed).data_seed for seed in range(DRAWS)] == list(range(DRAWS)), "toys of its own"
    assert checked(toys.config(0)) == toys.config(0)
    assert (toys.wanted, there.wanted) == (DRAWS, SEEDS)


@pytest.mark.parametrize("viewpoints", VIEWPOINTS)
def test_a_setting_changes_rotors_by_what_it_says(viewpoints: str) -> None:
    rotors = ROWS[f"settings-toys-{viewpoints}/rotors"].config(0)
    for key, tried in SETTINGS.items():
        config = ROWS[f"settings-toys-{viewpoints}/{key}"].config(0)
        if tried.known is None:
            back = {name: getattr(rotors, name) for name in tried.changes}
            assert config != rotors
            assert config.changed(back) == rotors


def test_another_lighting_is_one_that_standardising_leaves() -> None:
    """Images of grey levels that are far from black and white: else what is cut off there would differ."""
    images = torch.randint(100, 150, (4, 2, 48, 48), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    row = ROWS["settings-toys-azimuth/lighting"]
    changed, plain = (each.config(0).changed({"patch": 0.0}) for each in (row, ROWS["settings-toys-azimuth/rotors"]))
    chance = draws(changed, 4, (48, 48), torch.Generator().manual_seed(0))
    difference = for_training(changed, images, chance) - for_training(plain, images, chance)
    assert difference.abs().mean() > 0.2


def test_a_miniature_routes_as_its_row_does() -> None:
    small, rotors = (quick(ROWS[f"settings-toys-azimuth/{key}"]).config(0) for key in ("no-routing", "rotors"))
    assert small.model_settings == rotors.model_settings | {"routing.iterations": 1}


def test_runs_of_evidence_stand_in_both_tables() -> None:
    assert {row.key for row in OURS if "evidence" in row.tables} == KNOWN
    trained = {row.key for row in Request(("settings",)).chosen_rows()}
    assert trained == {row.key for row in OURS if row.default}
    assert not any(key.startswith(("settings-azimuth", "settings-elevation")) for key in trained), "only by name"


def test_commands_of_the_documents_choose_what_they_say() -> None:
    text = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    commands = re.findall(r"^quatcaps reproduce settings (.*)#", text, re.M)
    chosen = [
        Request(("settings",), rows=tuple(re.findall(r"--rows '?([^ ']+)", each))).chosen_rows() for each in commands
    ]
    toys, smallnorb = ([row.key for row in rows] for rows in chosen)
    assert toys == [row.key for row in OURS if row.dataset == "toys"]
    assert smallnorb == ["settings-azimuth/longer", "settings-elevation/longer"]


def entry(key: str, novel: list[int]) -> Entry:
    row = ROWS[key]
    made = [replace(made_up(row, seed=seed), final={"novel": Rate(wrong, 100)}) for seed, wrong in enumerate(novel)]
    return Entry(row, tuple(made))


@pytest.fixture
def entries() -> list[Entry]:
    """Rotors and four others, on two draws of toys and on smallNORB; of one setting only azimuths."""
    found = {
        "settings-toys-azimuth/rotors": [10, 20],
        "settings-toys-elevation/rotors": [30, 40],
        "settings-toys-azimuth/no-routing": [12, 26],
        "settings-toys-elevation/no-routing": [28, 42],
        "settings-toys-azimuth/cnn": [50, 60],
        "settings-toys-azimuth/erased": [9, 19],
        "evidence-azimuth-strict/qcn-rotor": [8, 10],
        "evidence-azimuth-strict/cnn": [30, 34],
        "settings-azimuth/no-routing": [12],
    }
    return [entry(key, errors) for key, errors in found.items()]


def test_settings_are_compared_on_the_same_toys(entries: list[Entry]) -> None:
    errors, agreement = page("settings", entries).tables
    lines = {line[0]: line[1:] for line in errors.rows}
    assert lines["rotors"] == ("15.00 ± 7.07 (2)", "35.00 ± 7.07 (2)", "–", "9.00 ± 1.41 (2)", "–", "–", "–")
    assert lines["no routing"][2:] == ("+2.00 ± 2.00", "12.00 (1)", "–", "+3.00", "–"), "0 and 4 points more"
    assert lines["CNN"][-2:] == ("+23.00 ± 2.24", "–"), "32 and 9, with errors of 2 and 1"
    assert lines["a blotted square"][2] == "–", "one experiment of two"
    assert lines["180 epochs"] == ("–",) * 7
    assert agreement.rows == (("azimuths", "3", "+1.00"), ("elevations", "0", "–"))


def test_the_mean_over_both_experiments_is_of_the_seeds_that_both_have() -> None:
    errors = {("toys", "azimuth"): {0: 1.0, 1: 2.0}, ("toys", "elevation"): {1: 4.0, 2: 9.0}}
    assert on_toys(Measured("", errors)) == {1: 3.0}


def test_ranks() -> None:
    assert rank_correlation([(1.0, 5.0), (2.0, 4.0), (3.0, 3.0), (4.0, 2.0)]) == pytest.approx(-1)
    assert rank_correlation([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)]) == pytest.approx(0.866, abs=1e-3), "ties share a rank"
    assert rank_correlation([(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]) is None
    assert rank_correlation([(1.0, 1.0), (2.0, 2.0)]) is None


def test_numbers_for_programs(entries: list[Entry]) -> None:
    rows = list(csv.DictReader(page("settings", entries).numbers.csv().splitlines()))
    assert len(rows) == len(entries)
    assert rows[0]["key"] == "settings-toys-azimuth/rotors"
    assert float(rows[0]["novel_error"]) == 15


def test_marks_stand_where_differences_are(
    entries: list[Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = recorded(monkeypatch, setting_figures)
    setting_figures.draw_settings(entries, tmp_path / "settings.png")
    toys, smallnorb = saved[0].axes
    names = [label.get_text().replace("\n", " ") for label in toys.get_yticklabels()]
    assert names == ["rotors", "CNN", "no routing", "a blotted square"], "those that were run"

    def marks(axes: Axes) -> set[tuple[str, float]]:
        lines = [bar.lines[0] for bar in axes.containers]
        return {(names[round(line.get_ydata()[0])], float(line.get_xdata()[0])) for line in lines}

    assert marks(toys) == {("no routing", 4.0), ("no routing", 0.0), ("CNN", 40.0), ("a blotted square", -1.0)}
    assert marks(smallnorb) == {("no routing", 3.0), ("CNN", 23.0)}
    runs = {(names[round(line.get_ydata()[0])], *line.get_xdata()) for line in smallnorb.lines if len(line.get_xdata())}
    assert {("rotors", -1.0, 1.0), ("CNN", 21.0, 25.0)} <= runs, "every seed, less the mean of rotors"


def test_what_was_not_run_has_no_panel(entries: list[Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = recorded(monkeypatch, setting_figures)
    setting_figures.draw_settings(entries[-3:], tmp_path / "settings.png")
    assert [axes.get_title(loc="left") for axes in saved[0].axes] == ["smallNORB"]
    setting_figures.draw_settings([], tmp_path / "nothing.png")
    assert len(saved[1].axes) == 2, "what is to come"
    assert len(saved[1].axes[0].get_yticks()) == len(SETTINGS)


def test_nothing_was_run() -> None:
    made = page("settings", [])
    assert made.measured == ()
    assert all(set(line[1:]) == {"–"} for line in made.tables[0].rows)

"""`quatcaps reproduce` as its user meets it."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up import leave, made_up

from quatcaps.paper import reproduce, torchrun
from quatcaps.paper.launch import command as launched
from quatcaps.paper.miniature import quick
from quatcaps.paper.reproduce import Request, listing, seeds_of, select
from quatcaps.paper.rows import ROWS
from quatcaps.paper.work import Job, Summary, in_order

pytestmark = pytest.mark.usefixtures("unchecked")
ROW, POOLED = "azimuth-strict/em", "elevation-pooled/em"


@pytest.fixture
def places(tmp_path: Path, toys_folder: Path) -> tuple[object, ...]:
    folders = ("--output", tmp_path / "results", "--work", tmp_path / "runs", "--data-dir", toys_folder)
    return (*folders, "--device", "cpu", "--quick")


def test_quick(command: Callable, places: tuple[object, ...], tmp_path: Path) -> None:
    asked = ("table1", "--rows", ROW, "--rows", POOLED, "--seed", 1, *places)
    outcome = command("reproduce", *asked)
    assert outcome.code == 0, outcome.err
    assert "run 2 of 2, " in outcome.out
    assert "2 runs asked for: 0 done before, 2 trained now" in outcome.out
    record = json.loads((tmp_path / "results/runs" / ROW / "seed-1.json").read_text())
    assert record["config"]["dataset"] == "toys-mini"
    assert record["config"]["seed"] == record["seed"] == 1
    assert len(record["epochs"]) == 2
    assert record["final"]["novel"]["images"] == 600
    pooled = json.loads((tmp_path / "results/runs" / POOLED / "seed-1.json").read_text())
    assert pooled["final"].keys() == pooled["by_toy"].keys() == {"novel"}
    for found, toys in ((record, 25), (pooled, 50)):
        for name, total in found["final"].items():
            rates = found["by_toy"][name].values()
            assert len(rates) == toys
            assert total == {count: sum(rate[count] for rate in rates) for count in ("errors", "images")}
    with (tmp_path / "results/table1.csv").open() as file:
        found = {row["key"]: row for row in csv.DictReader(file)}
    assert (found[ROW]["seeds"], found["azimuth-strict/vb"]["seeds"]) == ("1", "0")
    assert float(found[ROW]["final_novel"]) == pytest.approx(record["final"]["novel"]["errors"] / 6, abs=1e-3)
    assert float(found[POOLED]["final_novel"]) == pytest.approx(pooled["final"]["novel"]["errors"] / 12, abs=1e-3)
    assert (tmp_path / "results/table1.md").exists()
    assert (tmp_path / "results/table1.png").stat().st_size > 5_000

    outcome = command("reproduce", *asked)
    assert outcome.code == 0
    assert "2 runs asked for: 2 done before, 0 trained now" in outcome.out
    outcome = command("reproduce", *asked, "--list")
    assert outcome.out.count("done") == 2
    assert "asked for: 0 runs left\n" in outcome.out
    (tmp_path / "results/table1.md").unlink()
    outcome = command("reproduce", "table1", *places, "--render")
    assert "training qcn" not in outcome.out
    assert (tmp_path / "results/table1.md").exists()


def test_the_list_has_no_columns_that_say_nothing(tmp_path: Path) -> None:
    def columns(*tables: str) -> tuple[str, ...]:
        request = Request(tables, output=tmp_path)
        return listing(in_order(request.chosen_rows(), (0,)), request.place, tables)[0].columns

    assert columns("evidence") == ("row", "seed", "state", "minutes")
    assert columns("table1") == ("row", "seed", "published (%)", "state", "minutes")
    assert columns("table1", "table2") == ("row", "tables", "seed", "published (%)", "state", "minutes")


def test_one_damaged_record_is_told_in_the_list(command: Callable, places: tuple[object, ...], tmp_path: Path) -> None:
    leave(tmp_path / "results", made_up(quick(ROWS[POOLED]), epochs=2))
    path = tmp_path / "results/runs" / ROW / "seed-0.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    outcome = command("reproduce", "table1", "--rows", ROW, "--rows", POOLED, *places, "--list")
    assert outcome.code == 0, outcome.err
    states = {key: line for line in outcome.out.splitlines() for key in (ROW, POOLED) if line.startswith(f" {key}")}
    assert "damaged" in states[ROW]
    assert "done" in states[POOLED]
    assert f"{ROW}, seed 0 is damaged: {path} is not" in outcome.out
    outcome = command("reproduce", "table1", *places, "--render")
    assert outcome.code == 1
    assert str(path) in outcome.err
    assert "Elevation, pooled" in outcome.out, "what can be read is rendered and shown"


def test_failures_are_listed_in_the_end(
    command: Callable, places: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {Job(ROWS[ROW], 0): "smallnorb is not here"}
    monkeypatch.setattr(reproduce, "perform", lambda *_, **__: Summary(failed=failed))
    outcome = command("reproduce", "table1", *places)
    assert outcome.code == 1
    assert f"not everything could be done:\n  {ROW}, seed 0: smallnorb is not here" in outcome.err


@pytest.mark.parametrize(("interrupted", "code", "words"), [(False, 0, "the time is up"), (True, 130, "goes on")])
def test_a_budget_ends_well_and_an_interruption_does_not(
    command: Callable,
    places: tuple[object, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    interrupted: bool,
    code: int,
    words: str,
) -> None:
    left = [Job(ROWS[ROW], seed) for seed in range(6)]
    monkeypatch.setattr(reproduce, "perform", lambda *_, **__: Summary(left=left, interrupted=interrupted))
    outcome = command("reproduce", "table1", "--budget", 5, *places)
    assert outcome.code == code
    assert words in outcome.out + outcome.err
    assert (tmp_path / "results/table1.png").exists()
    assert interrupted or f"{ROW}, seed 3 and 2 more" in outcome.out


def test_a_budget_stops_training(command: Callable, places: tuple[object, ...], tmp_path: Path) -> None:
    outcome = command("reproduce", "table1", *places, "--budget", 0.03)  # 24 runs would take far longer than 2 s
    assert outcome.code == 0, outcome.err
    assert "the time is up; left: " in outcome.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tabel1",), ("unknown table 'tabel1': did you mean 'table1'",)),
        (("table1", "--rows", "nothing*"), ("'nothing*' matches no row", "begin with azimuth-strict, elevation-")),
        (("table1", "--rows", "azimuth-strict/resnet"), ("of 24 these are alike:\n", "  azimuth-strict/cnn\n")),
        (("table3", "--rows", ROW), ("matches no row of these tables", "smallnorb/em-joint")),
        (("table1", "--budget", "0"), ("budget = 0 minutes",)),
        (
            ("evidence", "--rows", "evidence-mnist", "--seed", "5"),
            ("seed 5: the rows asked for want no seed beyond 4",),
        ),
        (("table1", "--seeds", "0"), ("at least 1",)),
        (("table1", "--seeds", "2", "--seed", "1"), ("give one of them",)),
        (("table1", "--seed", "-1"), ("seed = -1",)),
        (("table1", "--processes", "0"), ("at least 1",)),
        (("table1", "--launcher", "slrum"), ("did you mean 'slurm'",)),
        (("table1", "--launcher-option", "gpus"), ("NAME=VALUE",)),
    ],
)
def test_what_is_refused(command: Callable, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    outcome = command("reproduce", *arguments)
    assert outcome.code == 1
    assert all(word in outcome.err for word in words), outcome.err


def test_under_torchrun_it_says_what_to_do(
    command: Callable, places: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    outcome = command("reproduce", "table1", *places)
    assert outcome.code == 1
    assert "--processes 4" in outcome.err


def test_a_job_whose_run_several_processes_train(command: Callable, places: tuple[object, ...], tmp_path: Path) -> None:
    launcher = "local" if importlib.util.find_spec("submitit") else "here"
    asked = ("table3", "--rows", "*/em-joint", *places, "--processes", 2, "--launcher", launcher)
    outcome = command("reproduce", *asked)
    assert outcome.code == 0, outcome.err
    assert launcher == "here" or "smallnorb/em-joint, seed 0: job " in outcome.out
    record = json.loads((tmp_path / "results/runs/smallnorb/em-joint/seed-0.json").read_text())
    assert record["final"]["test"]["images"] == 900


def test_torchrun_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torchrun, "command", lambda *_: [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(reproduce.QuatcapsError, match="status 3"):
        torchrun.train_together(tmp_path, 2, "cpu", None)


def test_patterns() -> None:
    rows = list(ROWS.values())
    assert [row.key for row in select(rows, ["smallnorb/qcn"])] == ["smallnorb/qcn/paper", "smallnorb/qcn/best"]
    assert [row.key for row in select(rows, ["smallnorb/vb"])] == ["smallnorb/vb"]
    published = [f"smallnorb/{name}/published" for name in ("vb", "em", "em-ibm", "qcn")]
    assert [row.key for row in select(rows, ["smallnorb/*/published"])] == published
    assert len(select(rows, ["*/qcn/best"])) == 9 + 4 + 13
    assert [row.key for row in select(rows, ["mnist/em", "mnist/em"])] == ["mnist/em"]
    assert [row.key for row in Request(("table2",), rows=("mnist/em-ibm",)).chosen_rows()] == ["mnist/em-ibm"]
    assert len(Request(("table2",)).chosen_rows()) == 30


def test_seeds() -> None:
    assert seeds_of(None, ()) == (0,)
    assert seeds_of(3, ()) == (0, 1, 2)
    assert seeds_of(None, (7, 3, 7)) == (7, 3)


def test_a_job_is_the_same_command(tmp_path: Path) -> None:
    request = Request(
        ("table2",), budget=30.0, quick=True, again=True, processes=2, device="cuda", output=tmp_path, data_dir=tmp_path
    )
    parts = launched(request, Job(ROWS["mnist/em"], 2))
    assert parts[:5] == [sys.executable, "-m", "quatcaps", "reproduce", "table2"]
    assert " ".join(parts[5:11]) == "--rows mnist/em --seed 2 --device cuda"
    for words in (f"--output {tmp_path}", f"--data-dir {tmp_path}", "--budget 30", "--processes 2", "--quick --again"):
        assert words in " ".join(parts)


def test_without_submitit(command: Callable, places: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    outcome = command("reproduce", "table1", "--rows", ROW, *places, "--launcher", "slurm")
    assert outcome.code == 1
    assert "pip install 'quatcaps[slurm]'" in outcome.err


def test_settings_are_compared_without_the_test_images(
    command: Callable, places: tuple[object, ...], tmp_path: Path
) -> None:
    outcome = command("reproduce", "ablation", "--rows", "ablation/best", *places)
    assert outcome.code == 0, outcome.err
    record = json.loads((tmp_path / "results/runs/ablation/best/seed-0.json").read_text())
    assert record["final"].keys() == {"validation"}
    assert not any("test_error" in epoch for epoch in record["epochs"])
    assert len(record["toys"]) == 5, "one toy of each class"
    assert sum(rate["images"] for rate in record["toys"].values()) == record["final"]["validation"]["images"]
    assert sum(rate["errors"] for rate in record["toys"].values()) == record["final"]["validation"]["errors"]


def test_an_output_that_cannot_be_is_told_before_training(command: Callable, tmp_path: Path) -> None:
    (tmp_path / "afile").touch()
    rows = ("--rows", "azimuth-strict/cnn", "--device", "cpu", "--quick")
    outcome = command("reproduce", "table1", *rows, "--output", tmp_path / "afile", "--work", tmp_path / "work")
    assert outcome.code == 1
    assert "cannot make the folder" in outcome.err
    assert not (tmp_path / "work").exists()

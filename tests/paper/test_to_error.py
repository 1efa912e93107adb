"""Short runs, their seconds, and what is said of them."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_up import leave, made_up

from pictures import legend_of, recorded, smallest_letters
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.paper import seconds, timed, work
from quatcaps.paper.collection import Entry, collect
from quatcaps.paper.fast import FAST
from quatcaps.paper.recipes import best, configured, fast
from quatcaps.paper.record import RunRecord, differences, read_record
from quatcaps.paper.row import Row
from quatcaps.paper.rows import DATASETS
from quatcaps.paper.to_error import Request, combinations
from quatcaps.training.config import TrainingConfig
from quatcaps.training.measure import Rate
from quatcaps.training.measuring import Measuring

PAPER = {"smallnorb": 2.29, "mnist": 0.37, "fashionmnist": 6.92, "svhn": 4.63, "cifar10": 13.92}


def short_run(row: Row, seed: int, percent: float, taken: float = 20.0) -> RunRecord:
    """A record of a short run, with an error in %."""
    record = made_up(row, seed, epochs=row.config(0).epochs)
    name = "validation" if row.config(0).validation else "test"
    return replace(record, final={name: Rate(round(100 * percent), 10_000)}, by_toy={}, seconds=taken)


def test_the_errors_to_come_to_are_the_papers_and_the_recipe_is_short() -> None:
    rows = Request().rows()
    assert {row.dataset: row.published.error for row in rows if row.published} == PAPER
    assert tuple(row.dataset for row in rows) == DATASETS == tuple(FAST)
    for row in rows:
        config = row.config(3)
        assert (config.seed, config.evaluate_every, config.validation, config.test) == (3, 0, 0.0, True)
        assert config.model_settings == best(row.dataset).model_settings  # so that it has no more parameters
        assert config.epochs <= best(row.dataset).epochs / 4
        assert row.timed
    assert configured("fast", {"dataset": "cifar10"}) == fast("cifar10")
    assert fast("toys").schedule == "cosine"


def test_every_combination_is_tried_on_held_out_images_alone() -> None:
    rows = Request(("smallnorb",), validation=0.2, tried=("learning-rate=3e-3,6e-3", "epochs=5,5,9")).rows()
    assert [row.key for row in rows] == [
        f"to-error-held-out/smallnorb/learning_rate={rate},epochs={epochs}"
        for rate in (0.003, 0.006)
        for epochs in (5, 9)
    ]
    configs = [rows[1].config(seed) for seed in range(6)]
    assert {(each.epochs, each.learning_rate, each.test, each.validation) for each in configs} == {
        (9, 0.003, False, 0.2)
    }
    assert len({each.data_seed for each in configs}) == 5  # of smallNORB every toy is held out by some seed
    assert all(row.published is None for row in rows)
    (alone,) = Request(("mnist",), validation=0.1).rows()
    assert alone.key == "to-error-held-out/mnist/recipe"
    assert combinations(()) == [{}]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"datasets": ("toys",)}, "unknown dataset with an error of the paper's 'toys'"),
        ({"seeds": 0}, "seeds"),
        ({"tried": ("epochs=3",)}, "--try without --validation"),
        ({"validation": 1.0}, "must lie between 0 and 1"),
        ({"recipe": "best"}, "--recipe best without --validation"),
        ({"recipe": "bset", "validation": 0.1}, "did you mean 'best'"),
        ({"validation": 0.1, "tried": ("epochs",)}, "write it as NAME=VALUE,VALUE"),
        ({"validation": 0.1, "tried": ("epoch=3",)}, "did you mean 'epochs'"),
        ({"validation": 0.1, "tried": ("seed=3",)}, "unknown setting to try 'seed'"),
        ({"validation": 0.1, "tried": ("mean=3",)}, "unknown setting to try 'mean'"),
        ({"validation": 0.1, "tried": ("epochs=many",)}, "epochs = 'many'"),
        ({"validation": 0.1, "tried": ("crop=90",)}, "crop = 90"),
        ({"validation": 0.1, "tried": ("wandb=a/b",)}, "cannot be the name of a folder"),
        ({"datasets": ("smallnorb",), "validation": 0.1, "tried": ("mixup=0.2",)}, "mixup = 0.2 with loss = spread"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_trained(asked: dict, words: str) -> None:
    with pytest.raises(QuatcapsError, match=words):
        Request(**asked).rows()


def test_other_recipes_are_compared_on_held_out_images_too(tmp_path: Path) -> None:
    asked = Request(("cifar10",), validation=0.1, recipe="best", tried=("epochs=120,300",), output=tmp_path)
    kept, longer = asked.rows()
    assert [row.key for row in (kept, longer)] == [f"best-held-out/cifar10/epochs={epochs}" for epochs in (120, 300)]
    assert kept.config(2) == best("cifar10").changed({"validation": 0.1, "test": False, "seed": 2})
    assert (longer.config(0).epochs, longer.timed) == (300, False)
    mixed = replace(asked, tried=("mixup=0,0.2",)).rows()[1].config(0)
    assert mixed.mixup == 0.2, "which the loss of this recipe allows, and that of the first run does not"
    network = replace(asked, tried=("model=qcn-rotor-deep",)).rows()[0].config(0)
    assert (network.model, network.model_settings) == ("qcn-rotor-deep", {})
    for row, percent in ((kept, 9.6), (longer, 8.8)):
        leave(tmp_path, short_run(row, 0, percent))
    entries, problems = collect(replace(asked, tried=()).with_recorded([]), tmp_path)
    assert problems == []
    table, (page, _) = seconds.write(asked.name, entries, tmp_path)
    assert [row[1] for row in table.rows] == ["epochs=300", "epochs=120"]
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Runs on held-out images\n")
    assert "changes to the recipe `best`" in text
    assert "thrown away" not in text


def test_a_setting_of_later_versions_makes_a_difference() -> None:
    before, after = TrainingConfig(), TrainingConfig(precision="bf16")
    assert differences(before, after) == {"precision": ("float32", "bf16")}
    assert differences(after, before) == {"precision": ("bf16", "float32")}


@pytest.mark.usefixtures("unchecked")
def test_the_throw_away_start_leaves_nothing(
    noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainingConfig(model="cnn-small", image_size=32, crop=28, batch=1000, device="cpu")
    monkeypatch.setattr(Measuring, "measure", None)  # no test image is looked at
    before = torch.random.get_rng_state()
    assert timed.warm_up(config, Experiment(noise_images, {"test": noise_images}), tmp_path / "run") == 1
    assert timed.warm_up(config.changed({"batch": 8}), Experiment(noise_images, {}), tmp_path / "run") == 2
    assert torch.equal(torch.random.get_rng_state(), before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unchecked")
def test_a_miniature_is_trained_once_and_told(
    command: Callable, toys_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("bench", "--to-error", "--quick", "--seeds", 1, "--dataset", "mnist", "--device", "cpu")
    where = ("--data-dir", toys_folder, "--output", tmp_path / "bench")
    stopped = tmp_path / "runs/to-error-quick/mnist/seed-0"
    stopped.mkdir(parents=True)
    (stopped / "run.json").write_text("{}")
    outcome = command(*asked, *where)
    assert outcome.code == 0, outcome.err
    assert "1 trained now" in outcome.out
    assert (tmp_path / "runs/to-error-quick/mnist/seed-0-before-1/run.json").read_text() == "{}"
    record = read_record(tmp_path / "bench/runs/to-error-quick/mnist/seed-0.json")
    assert record.config.dataset == "toys-mini"
    assert record.seconds > 0
    assert [epoch["test_error"] for epoch in record.epochs] == [record.final["test"].percent / 100]
    page = (tmp_path / "bench/to-error-quick.md").read_text()
    assert "says nothing about the paper's numbers" in page
    assert "![errors and seconds by seed](to-error-quick.png)" in page
    trained: list[str] = []
    monkeypatch.setattr(work, "train_timed", lambda *arguments: trained.append("again") or 1 / 0)
    assert "1 done before" in command(*asked, *where).out
    assert not trained
    with pytest.raises(ZeroDivisionError):
        command(*asked, *where, "--again")
    assert trained


def test_a_cpu_and_flags_that_do_not_fit_are_told_in_a_line(command: Callable) -> None:
    outcome = command("bench", "--to-error", "--device", "cpu")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "give --device cuda, or --quick" in outcome.err
    assert "--batch does not go with --to-error" in command("bench", "--to-error", "--batch", 3).err
    assert "belong to --to-error" in command("bench", "--dataset", "mnist").err


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    """Ten seeds of each dataset; of smallNORB eight come to the paper's error."""
    chance, found = random.Random(0), []
    for row in Request().rows():
        assert row.published
        first, records = short_run(row, 0, row.published.error), []
        for seed in range(10):
            share = 1.1 if row.dataset == "smallnorb" and seed > 7 else 1.0 if seed == 0 else chance.uniform(0.8, 0.99)
            error = Rate(round(100 * share * row.published.error), 10_000)
            records.append(replace(first, seed=seed, seconds=chance.gauss(20, 1), final={"test": error}))
        found.append(Entry(row, tuple(records)))
    return found


def test_tables_count_the_seeds_that_came_to_the_papers_error(
    entries: list[Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seconds, "seconds_figure", lambda entries, path: None)
    table, written = seconds.write("to-error", entries, tmp_path)
    lines = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert lines["smallNORB"]["reached"] == "8 of 10"
    assert lines["MNIST"]["reached"] == "10 of 10"  # an error that is the paper's has reached it
    assert lines["CIFAR-10"]["paper (%)"] == "13.92"
    assert lines["SVHN"]["seconds"].endswith("(10)")
    with (tmp_path / "to-error.csv").open(encoding="utf-8") as file:
        numbers = {row["dataset"]: row for row in csv.DictReader(file)}
    assert (numbers["smallnorb"]["reached"], numbers["smallnorb"]["seeds"]) == ("8", "10")
    assert float(numbers["smallnorb"]["seconds"]) == pytest.approx(20, abs=2)
    assert float(numbers["smallnorb"]["error_deviation"]) > 0
    page = written[0].read_text(encoding="utf-8")
    assert "no epoch is picked" in page
    assert "compilation" in page
    assert "Made by `quatcaps bench --to-error` from 50 records" in page


def test_the_picture_has_every_seed_and_the_papers_line(
    entries: list[Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = recorded(monkeypatch, seconds)
    seconds.seconds_figure(entries, tmp_path / "seconds.png")
    (figure,) = figures
    left, right = figure.axes
    assert legend_of(figure) == ["one seed", "mean", "the paper's error"]
    assert sum(len(line.get_xdata()) for line in left.lines if line.get_marker() == "o") == 50  # type: ignore[arg-type]
    assert [line.get_xdata() for line in left.lines if line.get_linestyle() == "--"] == [[1.0, 1.0]]
    assert [text.get_text() for text in left.get_yticklabels()][1] == "MNIST\npaper 0.37%, 10 seeds"
    assert right.get_xlim()[0] == 0
    assert smallest_letters(figure) >= 11


def test_earlier_requests_stay_in_the_table(tmp_path: Path, command: Callable) -> None:
    """Of other datasets, and of other settings; nothing has to be trained, so a CPU will do."""
    for request in (Request(("mnist",)), Request(("smallnorb",)), Request(("svhn",), validation=0.2)):
        for row in request.rows():
            leave(tmp_path, short_run(row, 0, 1.0))
    for row in Request(("cifar10",), validation=0.1, tried=("epochs=5,9", "precision=bf16")).rows():
        leave(tmp_path, short_run(row, 0, 12.0))
    (tmp_path / "runs/to-error-held-out/cifar10/notes=of,mine").mkdir()
    asked = ("bench", "--to-error", "--seeds", 1, "--device", "cpu", "--output", tmp_path)
    assert command(*asked, "--dataset", "mnist").code == 0
    assert command(*asked, "--dataset", "svhn", "--validation", 0.2).code == 0
    first, second = ((tmp_path / f"{name}.csv").read_text().splitlines() for name in ("to-error", "to-error-held-out"))
    assert [line.split(",")[0] for line in first[1:]] == ["smallnorb", "mnist"]
    assert [line.split(",")[0] for line in second[1:]] == ["svhn", "cifar10", "cifar10"]
    assert command(*asked, "--dataset", "fashionmnist").code == 1, "which is yet to be trained"
    damaged = next((tmp_path / "runs/to-error-held-out/cifar10").glob("epochs=9*/seed-0.json"))
    damaged.write_text("{")
    outcome = command(*asked, "--dataset", "svhn", "--validation", 0.2)
    assert outcome.code == 1
    assert str(damaged.relative_to(tmp_path)) in outcome.err


def test_held_out_settings_stand_in_the_order_of_their_errors(tmp_path: Path) -> None:
    rows = Request(("mnist", "smallnorb"), validation=0.1, tried=("epochs=5,9",)).rows()
    for row, percent in zip(rows, (0.5, 0.4, 6.0, 5.0), strict=True):
        for seed in range(2):
            leave(tmp_path, short_run(row, seed, percent + seed / 10))
    found, _ = collect(rows, tmp_path)
    table, written = seconds.write("to-error-held-out", found, tmp_path)
    assert [row[:2] for row in table.rows] == [
        ("MNIST", "epochs=9"),
        ("MNIST", "epochs=5"),
        ("smallNORB", "epochs=9"),
        ("smallNORB", "epochs=5"),
    ]
    assert [path.suffix for path in written] == [".md", ".csv"]
    assert "no test image was looked at" in written[0].read_text(encoding="utf-8")

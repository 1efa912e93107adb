"""Tables and pictures from records: the right numbers in the right places."""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import leave, made_up
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from quatcaps.paper.collection import Entry, collect, spread
from quatcaps.paper.figures import with_marks
from quatcaps.paper.matching import match
from quatcaps.paper.miniature import quick
from quatcaps.paper.pose_tables import difference
from quatcaps.paper.record import RunRecord, read_record, record_path
from quatcaps.paper.render import render
from quatcaps.paper.rows import ROWS, TABLES
from quatcaps.paper.tables import page
from quatcaps.paper.toy_errors import against_best
from quatcaps.paper.viewpoint_figures import emptier_side
from quatcaps.report import canvas
from quatcaps.training.measure import Rate

ALL = list(ROWS.values())
TWO_SETTINGS = (("best", 2), ("mirrored", 3))


def cells(text: str, start: str) -> list[list[str]]:
    """The cells of the table lines that begin so."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    records = [made_up(ROWS["smallnorb/qcn/paper"], seed, error) for seed, error in enumerate((0.02, 0.03, 0.05))]
    for record in records:
        leave(tmp_path, record)
    leave(tmp_path, made_up(ROWS["svhn/qcn/best"]))
    render("table2", ALL, tmp_path)
    errors = [record.final["test"].percent for record in records]
    expected = f"{statistics.mean(errors):.2f} ± {statistics.stdev(errors):.2f} (3)"
    text = (tmp_path / "table2.md").read_text()
    assert cells(text, "QCN, here, paper") == [["QCN, here, paper", expected, "–", "–", "–", "–"]]
    assert cells(text, "QCN, published (Özcan et al. 2020)")[0][1:] == ["2.29", "0.37", "6.92", "4.63", "13.92"]
    assert cells(text, "EM, published (Hinton et al. 2018)")[0][1:] == ["1.8", "0.44", "–", "–", "11.9"]
    lowest = spread([100 * min(epoch["test_error"] for epoch in record.epochs) for record in records])
    (line,) = cells(text, "smallnorb/qcn/paper")
    assert line[1:] == ["187,762", "188K", "2.29", expected, lowest, "–", "4.0"]
    assert "±" not in cells(text, "svhn/qcn/best")[0][4]
    assert "EM-IBM, here" not in text
    assert "EM-IBM, published (Gritzman 2019)" in text
    assert "quatcaps reproduce table2" in text
    assert "a machine" in text
    assert "2026-01-02" in text
    with (tmp_path / "table2.csv").open() as file:
        found = {row["key"]: row for row in csv.DictReader(file)}
    row = found["smallnorb/qcn/paper"]
    assert float(row["error"]) == pytest.approx(statistics.mean(errors), abs=1e-4)
    assert float(row["deviation"]) == pytest.approx(statistics.stdev(errors), abs=1e-4)
    assert (row["seeds"], row["parameters"], row["published"]) == ("3", "187762", "2.29")
    assert found["mnist/em"]["error"] == ""


def test_lowest_epoch_is_of_runs_that_measured_all_test_images_on_the_way() -> None:
    row = ROWS["smallnorb/qcn/paper"]
    record = made_up(row, error=0.05, epochs=12)
    *before, last = (100 * epoch["test_error"] for epoch in record.epochs)
    assert Entry(row, (record,)).lowest() == [min(before)]
    assert min(before) < last
    unmeasured = tuple(epoch | {"test_error": None} for epoch in record.epochs[:-1])
    assert Entry(row, (replace(record, epochs=(*unmeasured, record.last)),)).lowest() == [last]
    for changes in ({"evaluate_every": 0}, {"evaluate_images": 2000}):
        assert Entry(row, (record, made_up(row, epochs=12, **changes))).lowest() == [min(before)]


def test_rows_that_look_at_several_windows_are_told(tmp_path: Path) -> None:
    leave(tmp_path, made_up(ROWS["mnist/qcn/best"]))
    render("table2", ALL, tmp_path)
    assert "several looks" not in (tmp_path / "table2.md").read_text()
    leave(tmp_path, made_up(ROWS["svhn/qcn/best"], test_crops=3))
    leave(tmp_path, made_up(ROWS["mnist/qcn/best"], 1, test_crops=2, flip=True, test_mirrored=True))
    render("table2", ALL, tmp_path)
    text = (tmp_path / "table2.md").read_text()
    assert "name its class in mnist/qcn/best (2×2 windows and their mirror images), svhn/qcn/best (3×3 w" in text


def test_late_epochs_are_the_median_of_the_last_twenty_measurements() -> None:
    row = ROWS["smallnorb/qcn/paper"]
    record = made_up(row, epochs=30)
    errors = [100 * epoch["test_error"] for epoch in record.epochs]
    assert Entry(row, (record,)).late() == [pytest.approx(statistics.median(errors[10:]))]
    third = tuple(epoch if epoch["epoch"] % 3 == 0 else epoch | {"test_error": None} for epoch in record.epochs)
    assert Entry(row, (replace(record, epochs=third), made_up(row, epochs=19))).late() == [], "ten and nineteen"
    row = ROWS["azimuth-strict/cnn"]
    record = made_up(row, epochs=20)
    (table, *_) = page("table1", [Entry(row, (record,))], quoted=False).tables
    familiar, novel = (
        100 * statistics.median(epoch[name] for epoch in record.epochs) for name in ("test_error", "novel_error")
    )
    assert table.rows[0][7] == f"{familiar:.2f} → {novel:.2f} (1)"


def test_viewpoints_match_where_their_protocol_says(tmp_path: Path) -> None:
    for protocol in ("strict", "pooled"):
        leave(tmp_path, made_up(ROWS[f"azimuth-{protocol}/qcn/best"], error=0.01, epochs=12))
        leave(tmp_path, made_up(ROWS[f"azimuth-{protocol}/cnn"], error=0.2, epochs=12))
    entries, problems = collect(ALL, tmp_path)
    assert not problems
    strict, _, pooled, _ = page("table1", entries).tables
    lines = {(line[0], line[1]): line for line in strict.rows}
    found = match(made_up(ROWS["azimuth-strict/qcn/best"], error=0.01, epochs=12).epochs, "strict", 3.7)
    assert lines["QCN", "best"][3:5] == ("–", f"3.70 → {found.novel:.2f} (1)")
    last = made_up(ROWS["azimuth-strict/qcn/best"], error=0.01, epochs=12).final
    assert lines["QCN", "best"][5] == f"{found.epoch:.1f}"
    assert lines["QCN", "best"][6] == f"{last['test'].percent:.2f} → {last['novel'].percent:.2f} (1)"
    assert lines["CNN", "control"][3] == "3.7 → 20.0"
    assert lines["CNN", "control"][4].endswith("(1) *")
    assert lines["EM (Hinton et al. 2018)", "quoted"][2:4] == ("310K", "3.7 → 13.5")
    lines = {(line[0], line[1]): line for line in pooled.rows}
    assert lines["QCN", "best"][3] == "3.7 → 7.5"
    assert not any("Hinton" in line[0] for line in pooled.rows)
    assert "| 3.7 → 7.5 |" not in strict.markdown()
    assert "| 3.7 → 20.0 |" not in pooled.markdown()


def test_seeds_that_match_are_not_mixed_with_those_that_do_not(tmp_path: Path) -> None:
    row = ROWS["azimuth-strict/qcn/best"]
    records = tuple(made_up(row, seed, error, 12) for seed, error in enumerate((0.01, 0.3)))
    matches = Entry(row, records).matches()
    assert [each.reached for each in matches] == [True]
    assert [each.reached for each in Entry(row, records[1:]).matches()] == [False]


def test_branching(tmp_path: Path) -> None:
    leave(tmp_path, made_up(ROWS["smallnorb/qcn-joint/paper"]))
    render("table3", ALL, tmp_path)
    lines = cells((tmp_path / "table3.md").read_text(), "QCN")
    assert [line[1:3] for line in lines] == [["paper", "yes"], ["best", "yes"], ["paper", "no"], ["best", "no"]]
    assert [line[4] for line in lines] == ["2.29", "2.29", "3.72", "3.72"]
    assert [line[5] == "–" for line in lines] == [True, True, False, True]


def test_every_match_has_its_epoch(tmp_path: Path) -> None:
    """Pooled runs are compared at a training error, which one has after epoch 2 and another after 30."""
    row = ROWS["elevation-pooled/vb"]
    for seed, epoch in enumerate((1, 2, 4)):
        record = made_up(row, seed, epochs=6)
        errors = tuple(each | {"error": 0.03 if each["epoch"] >= epoch else 0.5} for each in record.epochs)
        leave(tmp_path, replace(record, epochs=errors))
    render("table1", ALL, tmp_path)
    (line,) = [line for line in cells((tmp_path / "table1.md").read_text(), "VB") if line[4] != "–"]
    assert line[5] == "3.3", "the mean of 2, 3 and 5, counted from 1"
    with (tmp_path / "table1.csv").open() as file:
        found = {row["key"]: row for row in csv.DictReader(file)}
    assert found["elevation-pooled/vb"]["matched_epoch"] == "3.3"
    assert found["elevation-pooled/em"]["matched_epoch"] == ""


def test_tables_that_hold_a_run_are_shown(tmp_path: Path) -> None:
    """Also where the last column is empty: Table II without CIFAR-10."""
    row = quick(ROWS["mnist/em"])
    for records, titles in (((), []), ((made_up(row, epochs=1),), ["Test error (%)", "The runs"])):
        made = page("table2", [Entry(row, records)], quoted=False)
        assert [table.title for table in made.measured] == titles
    row = ROWS["elevation-strict/vb"]
    made = page("table1", [Entry(row, (made_up(row),)), Entry(ROWS["azimuth-strict/vb"])])
    assert [table.title.split(":")[0] for table in made.measured] == ["Elevation, strict protocol"]
    assert len(made.tables) == 4


def ablation_of(records: Iterable[RunRecord], output: Path) -> str:
    """The ablation's page, rendered from these."""
    for record in records:
        leave(output, record)
    render("ablation", ALL, output)
    return (output / "ablation.md").read_text()


def test_ablation(tmp_path: Path) -> None:
    """Six toys, of which five are always the hardest: what is left is one, of the first run."""
    runs = [made_up(ROWS["ablation/ending"], seed, 0.02 + 0.1 * seed) for seed in range(3)]
    best = [made_up(ROWS["ablation/best"], seed, 0.05 + 0.1 * seed) for seed in range(3)]
    text = ablation_of((*runs, *best), tmp_path)
    assert "The hardest toys: cat 0, cat 1, cat 2, car 2, car 1." in text
    (line,) = cells(text, "+ a rate that ends at 0")
    errors = [run.final["validation"].percent for run in runs]
    differing = [error - run.final["validation"].percent for error, run in zip(errors, best, strict=True)]
    folds = [each / 2 for each in differing]  # of two toys, one has the same error
    mean, deviation = statistics.mean(folds), statistics.stdev(folds)
    assert line[1:3] == [f"{statistics.mean([*errors, 90, 90, 90]):.2f}", f"{errors[0]:.2f}"]
    assert line[3:5] == [f"{mean:+.2f} ± {deviation / 3**0.5:.2f}", "3"]
    assert mean < 0
    assert cells(text, "+ zoom by 20%: best")[0][3] == "–"
    with (tmp_path / "ablation.csv").open() as file:
        found = {row["key"]: row for row in csv.DictReader(file)}
    assert found["ablation/ending"]["error"] == line[1]
    assert float(found["ablation/ending"]["against_best"]) == pytest.approx(mean, abs=1e-4)
    assert found["ablation/paper"]["error"] == ""


def test_settings_are_compared_on_the_toys_that_both_have_seen(tmp_path: Path) -> None:
    """Two of three runs: a mean over other toys would say something about the toys."""
    best = [made_up(ROWS["ablation/best"], seed, 0.05 + 0.1 * seed) for seed in range(3)]
    fewer = [made_up(ROWS["ablation/mirrored"], seed, 0.07 + 0.1 * seed) for seed in range(2)]
    text = ablation_of((*best, *fewer), tmp_path)
    (line,) = cells(text, "best, mirrored toys")
    shared = zip(fewer, best[:2], strict=True)
    differing = [one.final["validation"].percent - other.final["validation"].percent for one, other in shared] + [0, 0]
    assert line[1:3] == ["–", "–"]
    assert line[3].startswith(f"{statistics.mean(differing):+.2f} ± ")
    assert line[4] == "2"
    assert "Not measured yet: the paper's settings, 15 epochs; " in text


def test_the_standard_error_is_over_folds() -> None:
    """Toys that share a run share its luck. By hand: folds differ by 10, 20 and 60 points, on average 30; their sample
    deviation is √700, over √3 is 15.28. Single toys, taken as independent, would have 10.33."""
    of_fold = {0: (1, 1), 1: (1, 3), 2: (5, 7)}
    best = [
        replace(made_up(ROWS["ablation/best"], seed), toys={f"car {seed}": Rate(0, 10), f"cat {seed}": Rate(0, 10)})
        for seed in of_fold
    ]
    other = [
        replace(
            made_up(ROWS["ablation/mirrored"], seed),
            toys={f"car {seed}": Rate(first, 10), f"cat {seed}": Rate(second, 10)},
        )
        for seed, (first, second) in of_fold.items()
    ]
    entries = [Entry(ROWS[records[0].key], tuple(records)) for records in (best, other)]
    assert str(against_best(entries[1], entries)) == "+30.00 ± 15.28"
    again = replace(other[0], seed=5, config=ROWS["ablation/mirrored"].config(5))
    assert again.config.data_seed == other[0].config.data_seed
    repeated = Entry(entries[1].row, (*other, again))
    assert str(against_best(repeated, [entries[0], repeated])) == "+30.00 ± 15.28", "a fold twice is one fold"


def test_one_fold_has_no_standard_error() -> None:
    made = [
        replace(made_up(ROWS[f"ablation/{key}"]), toys={"car 1": Rate(errors, 10), "cat 1": Rate(errors, 10)})
        for key, errors in TWO_SETTINGS
    ]
    best, other = (Entry(ROWS[record.key], (record,)) for record in made)
    assert str(against_best(other, [best, other])) == "+10.00"
    assert against_best(best, [best, other]) is None
    assert against_best(other, [other]) is None, "nothing to compare it with"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were written, in order."""
    found: list[Figure] = []
    draw = FigureCanvasAgg.draw
    monkeypatch.setattr(FigureCanvasAgg, "draw", lambda self: (found.append(self.figure), draw(self))[1])
    return found


def points(figures: Iterable[Figure]) -> int:
    return sum(len(line.get_xdata()) for figure in figures for axes in figure.axes for line in axes.lines)


@pytest.mark.parametrize("name", TABLES)
def test_pictures_show_every_run(tmp_path: Path, name: str, drawn: list[Figure]) -> None:
    render(name, ALL, tmp_path)
    count = len(drawn)
    assert count == {"table1": 2, "ablation": 2}.get(name, 1)
    assert "Nothing has been measured yet" in (tmp_path / f"{name}.md").read_text()
    trained = ("azimuth-strict", "elevation-pooled", "smallnorb", "ablation/best", "ablation/mirrored", "ablation/deep")
    trained = (*trained, "poses-toys", "poses-smallnorb", "evidence-elevation-strict", "evidence-mnist")
    rows = [row for row in ALL if name in row.tables and row.key.startswith(trained)]
    for row in rows:
        leave(tmp_path, made_up(row))
    render(name, ALL, tmp_path)
    assert points(drawn[count:]) >= points(drawn[:count]) + len(rows), "each run adds its dots"
    with Image.open(tmp_path / f"{name}.png") as picture:
        assert picture.width > 7.5 * canvas.DOTS_PER_INCH


def test_what_poses_know(tmp_path: Path) -> None:
    rows = [row for row in ALL if "poses" in row.tables]
    for row in rows:
        for seed in range(3):
            leave(tmp_path, made_up(row, seed, error=0.02 if "rotor" in row.key else 0.04))
    page, problems = render("poses", ALL, tmp_path)
    assert not problems
    found = {table.title: {row[:2]: row[2:] for row in table.rows} for table in page.tables}
    errors = found["Errors, kinds of toys that were not trained on"]
    assert errors["QCN, rotors", "poses"][2] == "10.00 ± 1.00 (3)"
    assert errors["QCN", "best"][2] == "–"
    poses = found["Poses, kinds of toys that were not trained on"]
    assert poses["ResNet", "poses"] == ("–", "0.26 ± 0.01 (3)", "0.60 ± 0.10 (3)", "0.60 ± 0.10 (3)")
    assert found["Poses, smallNORB"]["QCN", "best"] == ("1.0e-06", "0.26 ± 0.01 (3)", "0.60 ± 0.10 (3)", "–")
    (layers,) = (table for table in page.tables if "by layer" in table.title)
    assert layers.columns == ("row", "primary", "capsules 1", "stage 1", "classes")
    apart = found["Differences of errors"]["azimuth, novel", "QCN, rotors, best, less QCN"]
    mean, low, high = map(float, re.findall(r"[+-][\d.]+", apart[0]))
    assert low <= mean <= high < 0
    assert read_record(record_path(tmp_path, rows[0].key, 0)).poses["transfer"][0]["ratio"] == 0.25


def test_differences_have_an_interval() -> None:
    assert difference([1.0], [2.0, 3.0]) == "–"
    mean, low, high = map(float, re.findall(r"[+-][\d.]+", difference([1.0, 2.0, 3.0, 2.0], [2.0, 2.0, 1.0, 3.0])))
    assert mean == 0
    assert -1.5 < low < -0.5
    assert 0.5 < high < 1.5


def test_pictures_leave_out_systems_without_an_error() -> None:
    qcn, em, cnn, other = (Entry(ROWS[f"mnist/{key}"]) for key in ("qcn/best", "em", "cnn", "resnet-20"))
    elsewhere = Entry(ROWS["svhn/cnn"], (made_up(ROWS["svhn/cnn"]),))
    assert with_marks([qcn, em, cnn, other]) == [qcn, em]
    assert with_marks([qcn, em, cnn, other, elsewhere]) == [qcn, em, cnn, elsewhere]
    assert with_marks([cnn]) == []


@pytest.mark.parametrize("name", ["table2", "table3"])
def test_pictures_without_any_error_keep_all_systems(tmp_path: Path, name: str) -> None:
    render(name, [quick(row) for row in ALL], tmp_path, quick=True)
    with Image.open(tmp_path / f"{name}.png") as picture:
        assert picture.height > 1.9 * canvas.DOTS_PER_INCH


def test_labels_stand_where_fewer_points_are() -> None:
    right_of_it, left_of_it = (5.0, 20.0), (3.9, 20.1)
    assert emptier_side([], (4.0, 20.0), 12.0, 30.0) == "right"
    assert emptier_side([right_of_it], (4.0, 20.0), 12.0, 30.0) == "left"
    assert emptier_side([right_of_it, left_of_it], (4.0, 20.0), 12.0, 30.0) == "right"
    assert emptier_side([(5.0, 25.0), (9.0, 20.0)], (4.0, 20.0), 12.0, 30.0) == "right", "too far to be in the way"


def test_quick_tables_leave_the_papers_numbers_out(tmp_path: Path) -> None:
    rows = [quick(row) for row in ALL]
    leave(tmp_path, made_up(quick(ROWS["mnist/em"]), epochs=1))
    render("table2", rows, tmp_path, quick=True)
    text = (tmp_path / "table2.md").read_text()
    assert "published (" not in text.split("The runs")[0]
    assert "13.92" not in text
    assert "A quick run" in text


def test_damaged_and_outdated_records_are_told(tmp_path: Path) -> None:
    row = ROWS["mnist/vb"]
    broken = leave(tmp_path, made_up(row, seed=1, epochs=300))
    broken.write_text("{")
    leave(tmp_path, made_up(row, epochs=300, batch=100))
    (broken.parent / "notes.txt").write_text("not a record")
    _, problems = render("table2", ALL, tmp_path)
    assert [str(broken) in problem for problem in problems] == [True]
    assert "mnist/vb, seed 0: batch was 100, is 128" in (tmp_path / "table2.md").read_text()


def test_a_record_without_the_errors_of_its_table_is_told(tmp_path: Path) -> None:
    row = ROWS["azimuth-strict/em"]
    record = made_up(row)
    bare = tuple({name: value for name, value in each.items() if name != "novel_error"} for each in record.epochs)
    path = leave(tmp_path, replace(record, epochs=bare))
    leave(tmp_path, made_up(row, seed=1))
    made, problems = render("table1", ALL, tmp_path)
    assert problems == [f"{path}: no epoch has a test_error and a novel_error: measure after every epoch"]
    assert [line[5] for line in made.measured[0].rows if line[0] == "EM*"] != ["–"], "the other seed counts"


def test_no_value_is_no_number() -> None:
    assert spread([]) == "–"

"""Pictures of tables: what their marks say, on which scales, in letters that can be read."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up import made_up
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from pictures import legend_of, smallest_letters, touching
from quatcaps.paper.collection import Entry, collect
from quatcaps.paper.evidence_figures import draw_evidence, measured
from quatcaps.paper.evidence_lines import compared
from quatcaps.paper.figures import draw
from quatcaps.paper.rows import ROWS, TABLES
from quatcaps.paper.system_figures import draw_epochs
from quatcaps.report.intervals import of_mean
from quatcaps.report.styles import BEST, EM, QCN, ROTORS
from quatcaps.training.measure import Rate

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figure]:
    """The pictures of the tables from the records of results/, by the name of their file."""
    found: dict[str, Figure] = {}
    folder = tmp_path_factory.mktemp("pictures")
    with pytest.MonkeyPatch.context() as patch:
        kinds = (
            "viewpoint_",
            "ablation_",
            "pose_",
            "evidence_",
            "evidence_toy_",
            "evidence_together_",
            "setting_",
            "system_",
        )
        for module in ("figures", *(f"{kind}figures" for kind in kinds)):
            patch.setattr(f"quatcaps.paper.{module}.save", lambda figure, path: found.setdefault(path.stem, figure))
        for name in TABLES:
            entries, _ = collect([row for row in ROWS.values() if name in row.tables], RESULTS)
            draw(name, entries, folder / f"{name}.png")
    return found


def entry(key: str) -> Entry:
    (found,), _ = collect([ROWS[key]], RESULTS)
    return found


def colours(axes: Axes) -> set[str]:
    return {to_hex(line.get_color()) for line in axes.lines}


def test_there_is_a_file_for_each_picture(drawn: dict[str, Figure]) -> None:
    of_evidence = {path.stem for path in RESULTS.glob("evidence*.png")}
    assert {"evidence-datasets", "evidence-together", "evidence-toys"} <= of_evidence
    assert set(drawn) == {*TABLES, "table1-compared", "ablation-tried", "systems-epochs", *of_evidence}
    for name in drawn:
        assert (RESULTS / f"{name}.png").stat().st_size < 200_000
    for name in ("ablation", "poses"):
        assert len(drawn[name].axes) >= 3


def test_pairs_stand_where_the_table_has_them(drawn: dict[str, Figure]) -> None:
    text = (RESULTS / "evidence.md").read_text(encoding="utf-8").replace("\\", "").replace("−", "-")
    axes = drawn["evidence-together"].axes[0]
    marks = {line.get_ydata()[0]: line for line in axes.lines if line.get_marker() not in ("None", "")}
    for level, name in enumerate(tick.get_text() for tick in axes.get_yticklabels()):
        first, second = name.split(" less ")
        (told,) = re.findall(
            rf"\| Strict \| {re.escape(first)} \| {re.escape(second)} \| ([+\d.-]+) \[(.*?), (.*?)\]", text
        )
        mean, low, high = map(float, told)
        assert marks[level].get_xdata()[0] == pytest.approx(mean, abs=0.006)
        hollow = to_hex(marks[level].get_markerfacecolor()) == "#ffffff"
        assert hollow == (low <= 0 <= high)


def test_errors_by_toy_are_those_of_the_records(drawn: dict[str, Figure]) -> None:
    axes = drawn["evidence-toys"].axes[0]
    assert axes.get_title(loc="left") == "Azimuth, strict: error by toy (%)"
    rotors = entry("evidence-azimuth-strict/qcn-rotor")
    row = [tick.get_text() for tick in axes.get_yticklabels()].index("QCN, rotors")
    shown = axes.images[0].get_array()[row]
    rates = [list(record.by_toy["novel"].values()) for record in rotors.records]
    means = [sum(each.percent for each in toy) / len(toy) for toy in zip(*rates, strict=True)]
    assert shown.tolist() == pytest.approx(means)
    toys = list(rotors.records[0].by_toy["novel"])
    assert [tick.get_text().split("\n")[0] for tick in axes.get_xticklabels()] == [toy.split()[-1] for toy in toys]
    written = {text.get_position(): text.get_text() for text in axes.texts}
    car = toys.index("car 5")
    assert written[car, row] == f"{shown[car]:.0f}"
    assert (toys.index("human 1"), row) not in written, "below half a percent"


def test_errors_by_epoch_end_where_the_table_has_them(drawn: dict[str, Figure]) -> None:
    panels = drawn["systems-epochs"].axes
    qcn = entry("smallnorb/qcn/published")
    (axes,) = (each for each in panels if each.get_title(loc="left") == "QCN, public code")
    curve, lowest, last, published = axes.lines
    assert len(curve.get_xydata()) == 300
    assert (last.get_xydata()[0] == [300, qcn.errors("test")[0]]).all()
    assert lowest.get_ydata()[0] == min(curve.get_ydata()) == qcn.lowest()[0]
    assert set(published.get_ydata()) == {2.29}
    assert len({each.get_ylim() for each in panels}) == 1
    assert "VB, public code" not in {each.get_title(loc="left") for each in panels}, "measured at the end alone"


def test_averaged_weights_stand_at_the_end_of_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Figure] = []
    monkeypatch.setattr("quatcaps.paper.system_figures.save", lambda figure, path: found.append(figure))
    plain = entry("smallnorb/qcn/published")
    averaged = replace(plain, records=tuple(replace(each, averaged={"test": Rate(1, 200)}) for each in plain.records))
    for each in (plain, averaged):
        draw_epochs([each], tmp_path / "epochs.png")
    named = [[text.get_text() for text in figure.legends[0].get_texts()] for figure in found]
    assert [name for name in named[1] if name not in named[0]] == ["averaged weights"]
    (mark,) = (line for line in found[1].axes[0].lines if line.get_marker() == "D")
    assert mark.get_xydata().tolist() == [[300, 0.5]]
    assert found[1].axes[0].get_ylim()[0] < 0.5


def test_panels_of_many_systems_stand_in_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Figure] = []
    monkeypatch.setattr("quatcaps.paper.system_figures.save", lambda figure, path: found.append(figure))
    draw_epochs([entry("smallnorb/qcn/published")] * 6, tmp_path / "epochs.png")
    draw_epochs([entry("smallnorb/vb/published")], tmp_path / "epochs.png")
    draw_epochs([entry("smallnorb/vb/published-cosine")] * 4, tmp_path / "epochs.png")
    figure, long = found
    assert "VB, public code, all\nimages, cosine" in {each.get_title(loc="left") for each in long.axes}, "not cut off"
    assert len(figure.axes) == 6
    assert figure.axes[4].get_subplotspec().rowspan.start == 1


def test_an_experiment_of_one_system_has_no_panel() -> None:
    """There is nothing to compare."""
    keys = ("azimuth-strict/qcn/best", "azimuth-strict/cnn", "smallnorb/qcn/best", "smallnorb/cnn")
    entries = [Entry(ROWS[f"evidence-{key}"], (made_up(ROWS[f"evidence-{key}"]),)) for key in keys[:3]]
    lines = compared([*entries, Entry(ROWS[f"evidence-{keys[3]}"])])
    assert [*measured(lines)] == ["azimuth-strict"]
    assert measured(compared(entries[2:])).keys() == lines.keys(), "what is to come, where nothing can be compared"


def test_the_first_record_of_a_dataset_without_toys_is_drawn(tmp_path: Path) -> None:
    """Alone in its experiment, with nothing in any other."""
    row = ROWS["evidence-mnist/qcn/best"]
    draw_evidence(compared([Entry(row, (made_up(row),)), Entry(ROWS["evidence-svhn/cnn"])]), tmp_path / "evidence.png")
    assert {path.name for path in tmp_path.iterdir()} == {"evidence.png", "evidence-datasets.png"}


def test_letters_can_be_read_at_the_width_of_a_page(drawn: dict[str, Figure]) -> None:
    assert {name: smallest_letters(figure) >= 11 for name, figure in drawn.items()} == dict.fromkeys(drawn, True)


def test_numbers_along_an_axis_stand_apart(drawn: dict[str, Figure]) -> None:
    assert {name: touching(figure) for name, figure in drawn.items()} == {name: [] for name in drawn}


def test_parameters_are_those_of_the_dataset(drawn: dict[str, Figure]) -> None:
    """A CNN for images of 28×28 has fewer than one for 32×32."""
    found = {axes.get_title(loc="left"): axes.get_yticklabels() for axes in drawn["evidence-datasets"].axes}
    told = {title: [tick.get_text() for tick in ticks if "CNN" in tick.get_text()] for title, ticks in found.items()}
    assert (told["MNIST"], told["CIFAR-10"]) == (["CNN 3.3M"], ["CNN 4.3M"])


def test_panels_of_the_same_quantity_share_its_scale(drawn: dict[str, Figure]) -> None:
    for row in (drawn["table1"].axes[:2], drawn["table1"].axes[2:]):
        assert row[0].get_ylim() == row[1].get_ylim()
        assert row[0].get_xlim() == row[1].get_xlim()
    for name in ("table1-compared", "table3"):
        assert len({axes.get_xlim() for axes in drawn[name].axes}) == 1
    by_title = {axes.get_title(loc="left"): axes for axes in drawn["evidence"].axes}
    assert by_title["Azimuth, strict"].get_xlim() == by_title["Elevation, strict"].get_xlim()
    steps, tried = drawn["ablation"].axes, drawn["ablation-tried"].axes
    assert len({axes.get_xlim() for axes in (*steps[:2], *tried[:2])}) == 1
    assert steps[2].get_xlim() == tried[2].get_xlim()


def test_a_system_has_one_colour_in_all_pictures(drawn: dict[str, Figure]) -> None:
    for name in ("table1", "table1-compared", "table2"):
        for style in (QCN, BEST, EM):
            assert any(style.colour.lower() in colours(axes) for axes in drawn[name].axes), name
    assert {BEST.colour.lower(), ROTORS.colour.lower()} <= colours(drawn["poses"].axes[0])
    steps = drawn["ablation"].axes[0]
    assert to_hex(steps.lines[0].get_color()) == QCN.colour.lower()
    assert to_hex(steps.lines[-1].get_color()) == BEST.colour.lower()


def test_every_mark_is_explained(drawn: dict[str, Figure]) -> None:
    seeds = ["one seed", "mean over seeds", "95% interval of the mean, from 3 seeds on"]
    assert legend_of(drawn["table2"]) == legend_of(drawn["table3"]) == [*seeds, "published"]
    assert legend_of(drawn["table1-compared"]) == [*seeds, "published", "never came to that error: at its lowest"]
    marks = ["one epoch of one run", "median of neighbouring dots", "run where it is compared", "error to compare at"]
    assert legend_of(drawn["table1"])[-5:] == [*marks, "published"]
    assert {*seeds, "chance"} <= set(legend_of(drawn["poses"]))
    assert {"QCN", "one seed", "mean with its 95% interval"} <= set(legend_of(drawn["evidence-datasets"]))
    for name in ("ablation", "ablation-tried"):
        words = legend_of(drawn[name])
        assert len(words) >= 4
        assert "mean difference ± standard error over folds" in words


def test_signs_in_names_are_explained(drawn: dict[str, Figure]) -> None:
    for name, signs in (
        ("table1", ["EM*"]),
        ("table1-compared", ["EM*", "quoted"]),
        ("table3", ["EM‡"]),
        ("evidence", ["EM*"] if entry("evidence-azimuth-strict/em").records else [""]),
    ):
        notes = drawn[name].get_supxlabel().split("\n")
        assert [note.split(":")[0] for note in notes] == signs
    assert drawn["poses"].get_supxlabel() == ""


def test_seeds_have_their_mean_and_its_interval(drawn: dict[str, Figure]) -> None:
    errors = entry("smallnorb/qcn/best").errors("test")
    axes = drawn["table2"].axes[0]
    (dots,) = (line for line in axes.lines if to_hex(line.get_color()) == BEST.colour.lower())
    assert list(dots.get_xdata()) == errors
    assert len(set(dots.get_ydata())) == len(errors) == 3, "none hides another"
    place = statistics.fmean(dots.get_ydata())
    mean, interval = (each for each in axes.collections if abs(each.get_segments()[0][:, 1].mean() - place) < 0.5)
    assert np.allclose(mean.get_segments()[0][:, 0], statistics.fmean(errors))
    assert np.allclose(interval.get_segments()[0][:, 0], of_mean(errors))


def test_runs_that_never_came_to_the_error_are_hollow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Figure] = []
    monkeypatch.setattr("quatcaps.paper.viewpoint_figures.save", lambda figure, path: kept.append(figure))
    row = ROWS["azimuth-strict/qcn/best"]
    for error in (0.01, 0.3):
        draw("table1", [Entry(row, (made_up(row, 0, error, 12),))], tmp_path / "table1.png")
    reached, never = (figure.axes[0].lines[0] for figure in kept[1::2])
    assert to_hex(reached.get_markerfacecolor()) == BEST.colour.lower()
    assert to_hex(never.get_markerfacecolor()) == "#ffffff"

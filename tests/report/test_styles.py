"""One look for each network in all pictures, and intervals that are what their names say."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from PIL import Image
from scipy.stats import binomtest, t

from quatcaps import weights
from quatcaps.bench.cases import LABELS
from quatcaps.bench.variants import VARIANTS as MEASURED
from quatcaps.models import MODELS
from quatcaps.paper.rows import ROWS
from quatcaps.report import styles
from quatcaps.report.canvas import GREY, INK, MUTED, SHADE, new_figure, readable_on, save, tint
from quatcaps.report.curves import training_curves
from quatcaps.report.figures import error_by_viewpoint, evaluation_figure
from quatcaps.report.intervals import of_mean, quantile, wilson
from quatcaps.report.orientations import orientation_curves
from quatcaps.report.palettes import indexed
from quatcaps.report.styles import NEUTRAL, Style, network_style, styles_for, system_style
from quatcaps.training.measure import Evaluation, Rate


def contrast(one: str, other: str) -> float:
    """WCAG's, from 1 to 21."""
    light = []
    for colour in (one, other):
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
        light.append(0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05)
    return max(light) / min(light)


def test_every_network_weights_and_variant_has_a_style() -> None:
    built_in = {name for name in MODELS if ":" not in name}
    assert built_in <= styles.MODELS.keys()
    assert set(weights.names()) <= styles.WEIGHTS.keys()
    assert {LABELS.get(name, name) for name in MEASURED} <= styles.VARIANTS.keys()
    of_tables = {
        (row.system, row.recipe) for row in ROWS.values() if row.recipe not in ("ablation", "search", "settings")
    }
    assert of_tables <= styles.SYSTEMS.keys()
    assert len(set(styles.MODELS.values())) == len(styles.MODELS)


def test_systems_of_one_table_differ_and_agree_with_their_models() -> None:
    for table in ("table1", "table2", "table3", "poses", "evidence"):
        rows = [row for row in ROWS.values() if table in row.tables and row.recipe != "search"]
        systems = {(row.system, row.recipe) for row in rows}
        assert len({system_style(*system) for system in systems}) == len(systems)
    assert system_style("QCN", "paper") == network_style("qcn")
    assert system_style("QCN", "best") == network_style("qcn-deep") == network_style("qcn-smallnorb")
    assert system_style("QCN, rotors", "poses") == network_style("qcn-rotor-deep") == network_style("qcn-rotor-toys")
    assert system_style("VB", "paper") == system_style("VB", "best") == network_style("vb")
    for part, model in (("no routing", "qcn-no-routing"), ("free maps", "qcn-free"), ("one trunk", "qcn-joint")):
        assert system_style(part, "part") == network_style(model)
    assert system_style("ResNet 153K", "best") == network_style("resnet-153k")
    assert system_style("ResNet", "poses") == system_style("ResNet-20", "control") == network_style("resnet-20")


def test_names_of_one_picture_never_look_alike() -> None:
    names = ["cnn", "cnn:width=2", "cnn, again", "mine", "other", "qcn", "runs-1", *(f"more {n}" for n in range(12))]
    found = styles_for(names)
    assert len(set(found.values())) == len(names)
    assert found["cnn"] == network_style("cnn")
    assert found["cnn:width=2"].colour == found["cnn, again"].colour == found["cnn"].colour
    unknown = {found[name].colour for name in ("mine", "other", "runs-1")}
    assert not unknown & {found["cnn"].colour, found["qcn"].colour}
    assert network_style("mine") == Style(NEUTRAL, "o")
    assert styles_for(["qcn-smallish"])["qcn-smallish"] != network_style("qcn-small"), "another word"


def test_a_network_has_its_colour_in_every_picture(
    evaluation: Evaluation, log: Callable[[int], list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr("quatcaps.report.canvas.lessened", lambda picture: picture)
    draw = FigureCanvasAgg.draw
    monkeypatch.setattr(FigureCanvasAgg, "draw", lambda self: (drawn.append(self.figure), draw(self))[1])
    angles = torch.linspace(0, 180, 20)
    training_curves({"cnn-small": log(2), "vb": log(2)}, {"cnn-small": "cross-entropy", "vb": "x"}, tmp_path / "a.png")
    orientation_curves({"vb": angles, "cnn-small": angles}, tmp_path / "b.png")
    error_by_viewpoint({"other": evaluation, "cnn-small": evaluation}, "azimuth", (), tmp_path / "c.png")
    evaluation_figure(evaluation, tmp_path / "d.png", network="cnn-small")
    curves, orientation, viewpoints, whole = drawn
    expected = network_style("cnn-small")
    (loss,) = (line for line in curves.axes[0].lines)
    by_azimuth = viewpoints.axes[0].lines[1]
    assert (loss.get_color(), loss.get_marker()) == (by_azimuth.get_color(), by_azimuth.get_marker()) == expected
    assert orientation.axes[0].lines[1].get_color() == expected.colour
    bars = {to_hex(bar.get_facecolor()) for axes in whole.axes[1:] for bar in axes.patches}
    assert bars == {tint(expected.colour)}


def test_text_can_be_read() -> None:
    assert all(contrast(colour, ground) > 4.5 for colour in (INK, MUTED, GREY) for ground in ("white", SHADE))
    for grey, blue in itertools.product(range(0, 256, 15), range(0, 256, 15)):
        colour = f"#{grey:02x}{grey:02x}{blue:02x}"
        assert contrast(readable_on(colour), colour) > 4.5


def test_wilson_intervals_are_those_of_scipy() -> None:
    for errors, images in ((0, 1), (1, 1), (0, 40), (3, 40), (40, 40), (223, 900)):
        expected = binomtest(errors, images).proportion_ci(method="wilson")
        assert wilson(Rate(errors, images)) == pytest.approx((100 * expected.low, 100 * expected.high), abs=1e-4)


def test_intervals_of_means_are_students() -> None:
    for freedom in (1, 2, 5, 10, 11, 15, 30, 1000):
        assert quantile(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=1e-3)
    assert of_mean([1.0, 5.0]) is None
    values = [1.0, 2.0, 4.0, 7.0]
    low, high = t.interval(0.95, 3, loc=3.5, scale=torch.tensor(values).std().item() / 2)
    assert of_mean(values) == pytest.approx((low, high), rel=1e-4)


def test_a_palette_changes_no_pixel() -> None:
    few = Image.linear_gradient("L").convert("RGB")
    few.putpixel((3, 5), (200, 10, 30))
    assert few.getcolors(256) is None, "257 colours"
    assert indexed(few) is few
    few.paste((255, 255, 255), (0, 0, 256, 4))
    small = indexed(few)
    assert small.mode == "P"
    assert small.convert("RGB").tobytes() == few.tobytes()


def test_the_colour_of_a_small_mark_survives_in_the_file(tmp_path: Path) -> None:
    """Among many shades of letters and of a colour map, each in more pixels than the mark has."""
    colours = sorted({style.colour for style in (*styles.NETWORKS.values(), *styles.VARIANTS.values())})
    figure = new_figure(6.0, 3.0)
    axes, shades = figure.subplots(1, 2)
    shades.imshow(np.linspace(0, 1, 4000).reshape(40, 100), cmap="Blues")
    for place, colour in enumerate(colours):
        axes.plot(place, 0, marker="s", markersize=5, color=colour, label=f"network {place}")
    axes.legend(fontsize=5)
    save(figure, tmp_path / "small.png")
    with Image.open(tmp_path / "small.png") as picture:
        assert picture.mode == "P"
        found = {
            f"#{red:02X}{green:02X}{blue:02X}" for _, (red, green, blue) in picture.convert("RGB").getcolors() or []
        }
    assert set(colours) - {"#000000"} <= found

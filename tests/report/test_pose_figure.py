"""The picture of what poses know: networks in their colours, toys in others, every mark explained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pictures import legend_of, smallest_letters
from quatcaps.inspection.inspection import Inspection, Turn
from quatcaps.inspection.probe import Probe
from quatcaps.inspection.turns import Transfer
from quatcaps.report.poses import TOYS, pose_figure
from quatcaps.report.styles import NETWORKS, network_style

FOUND = Inspection(
    name="runs/qcn-smallnorb",
    images="toys",
    error_percent=1.0,
    pose="direction",
    chance_degrees=90.0,
    residual=None,
    transfer=(Transfer(20, 10, 1.0, 2.0, 1.0), Transfer(40, 10, 3.0, 2.0, 1.0)),
    composition=None,
    within={name: Probe(r2, 1.0, 0.5, 1.0, 0.0, 90.0, 10) for name, r2 in (("primary", 0.8), ("classes", -0.1))},
    across={},
    orientation=None,
    turns=(Turn("car 1", (0, 20), ((0.0, 0.1), (0.1, 0.0)), False),),
)


def test_networks_have_their_colours_and_toys_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr("quatcaps.report.poses.save", lambda figure, path: drawn.append(figure))
    turned = replace(FOUND, name="resnet-20", pose="orientation")
    for networks in ([FOUND], [FOUND, turned]):
        pose_figure(networks, tmp_path / "poses.png")
    alone, both = drawn
    assert legend_of(alone) == ["qcn-smallnorb", "shuffled pairs"]
    assert legend_of(both) == [
        *("qcn-smallnorb", "resnet-20", "shuffled pairs"),
        "unit circle: the toy's forward axis is level",
    ]
    toys, _, layers, transfer = both.axes
    for axes, first in ((layers, 0), (transfer, 1)):
        lines = axes.lines[first:]
        styles = [(line.get_color(), line.get_marker()) for line in lines]
        assert styles == [network_style("qcn-smallnorb"), network_style("resnet-20")]
    assert toys.lines[0].get_color() == TOYS[0][0]
    assert not {colour for colour, _ in TOYS} & {style.colour for style in NETWORKS.values()}
    assert transfer.get_ylim()[1] > 1.5, "errors above those of shuffled pairs are shown"
    assert all(smallest_letters(figure) >= 11 for figure in drawn)

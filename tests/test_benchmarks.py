"""The formulations that benchmarks compare compute the same thing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from quatcaps.models import build

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def beside_the_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_the_papers_votes_are_ours_with_a_zero_before_them() -> None:
    from paper_formulation import PaperCapsules, paper_votes

    network = build("qcn-small", channels=2, classes=5, seed=0, iterations=1)
    images = torch.randn(3, 2, 32, 32, generator=torch.Generator().manual_seed(0))
    capsules = network.primary(images)
    for layer in (*network.layers, network.classify):
        ours, theirs = layer(*capsules), PaperCapsules(layer)(*capsules)
        torch.testing.assert_close(theirs.poses, ours.poses, atol=1e-5, rtol=1e-5)
        capsules = ours
    layer, capsules = network.layers[0], network.primary(images)
    votes = paper_votes(*capsules, layer.maps.angle, layer.maps.axis, layer.window).votes
    assert votes.shape[2] == 4
    assert votes[:, :, 0].abs().max() < 1e-5 < votes[:, :, 1].abs().max()


def test_a_network_as_in_the_paper_keeps_its_parameters() -> None:
    from paper_formulation import as_in_the_paper

    network = build("qcn", channels=2, classes=5)
    assert sum(p.numel() for p in as_in_the_paper(network).parameters()) == 187_762

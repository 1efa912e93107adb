"""The formulations that benchmarks compare compute the same thing."""

from __future__ import annotations

import torch

from quatcaps.bench.paper import PaperCapsules, as_in_the_paper, paper_votes
from quatcaps.models import build
from quatcaps.models.capsule_network import CapsuleNetwork


def test_the_papers_votes_are_ours_with_a_zero_before_them() -> None:
    network = build("qcn-small", channels=2, classes=5, seed=0, iterations=1)
    assert isinstance(network, CapsuleNetwork)
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
    network = build("qcn", channels=2, classes=5)
    assert isinstance(network, CapsuleNetwork)
    assert sum(p.numel() for p in as_in_the_paper(network).parameters()) == 187_762

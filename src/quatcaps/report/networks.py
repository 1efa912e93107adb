"""The networks that there are, as a table."""

from __future__ import annotations

from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.models import MODELS, build, parameter_count, settings_for
from quatcaps.models.operations import multiply_adds
from quatcaps.pipelines import PIPELINES
from quatcaps.report.tables import NOTHING, Table

COLUMNS = {"smallNORB": "smallnorb", "MNIST": "mnist", "SVHN": "svhn", "CIFAR-10": "cifar10"}
"""FashionMNIST has MNIST's."""


def models_table(dataset: str = "smallnorb") -> Table:
    """All networks: parameters by dataset, and what an image of `dataset` costs."""
    rows = []
    for name in MODELS:
        counts = []
        for known in COLUMNS.values():
            description = DESCRIPTIONS[known]
            network = build(
                name,
                channels=description.channels,
                classes=len(description.classes),
                seed=0,
                **settings_for(name, known),
            )
            counts.append(f"{parameter_count(network):,}")
            if known == dataset:
                side = PIPELINES[known].crop
                votes = network.votes(side, side)
                work = multiply_adds(network, description.channels, (side, side))
        rows.append((name, *counts, f"{votes:,}" if votes else NOTHING, f"{work / 1e6:,.1f}"))
    title = f"parameters by dataset; votes and million multiply-adds per image ({DESCRIPTIONS[dataset].title})"
    return Table(title, ("name", *COLUMNS, "votes", "work"), tuple(rows))

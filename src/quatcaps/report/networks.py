"""The networks that there are, as a table."""

from __future__ import annotations

from dataclasses import dataclass

from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.models import MODELS, build, parameter_count, settings_for
from quatcaps.models.operations import multiply_adds
from quatcaps.pipelines import PIPELINES
from quatcaps.report.tables import NOTHING, Table

COLUMNS = {"smallNORB": "smallnorb", "MNIST": "mnist", "SVHN": "svhn", "CIFAR-10": "cifar10"}
"""FashionMNIST has MNIST's."""


@dataclass(frozen=True)
class Size:
    """How large a network is, and what an image costs it."""

    name: str
    parameters: dict[str, int]  # by dataset
    votes: int  # of one image; 0: it has no capsules
    multiply_adds: int  # of one image


def sizes(dataset: str = "smallnorb") -> list[Size]:
    """Of all networks; votes and multiply-adds of an image of `dataset`."""
    found = []
    for name in MODELS:
        counts = {}
        for known in COLUMNS.values():
            description = DESCRIPTIONS[known]
            network = build(
                name,
                channels=description.channels,
                classes=len(description.classes),
                seed=0,
                **settings_for(name, known),
            )
            counts[known] = parameter_count(network)
            if known == dataset:
                side = PIPELINES[known].crop
                votes = network.votes(side, side)
                work = multiply_adds(network, description.channels, (side, side))
        found.append(Size(name, counts, votes, work))
    return found


def models_table(dataset: str = "smallnorb") -> Table:
    """All networks: parameters by dataset, and what an image of `dataset` costs."""
    rows = tuple(
        (
            each.name,
            *(f"{count:,}" for count in each.parameters.values()),
            f"{each.votes:,}" if each.votes else NOTHING,
            f"{each.multiply_adds / 1e6:,.1f}",
        )
        for each in sizes(dataset)
    )
    title = f"parameters by dataset; votes and million multiply-adds per image ({DESCRIPTIONS[dataset].title})"
    return Table(title, ("name", *COLUMNS, "votes", "work"), rows)

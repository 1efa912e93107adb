"""`quatcaps models`."""

from __future__ import annotations

from rich.console import Console

from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.models import MODELS, build, parameter_count, settings_for
from quatcaps.models.operations import multiply_adds
from quatcaps.pipelines import PIPELINES
from quatcaps.poses import list_poses
from quatcaps.report.tables import NOTHING, Table
from quatcaps.routing import list_routings

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


def models_command(console: Console) -> None:
    """The table, and what each network is."""
    console.print(models_table().rich(console.width))
    for name, model in MODELS.items():
        console.print(f"{name}: {model.summary}", highlight=False, markup=False, soft_wrap=True)
    for kind, names in (("poses", list_poses()), ("routings", list_routings())):
        console.print(f"{kind}: {', '.join(names)}", highlight=False, markup=False, soft_wrap=True)
    console.print(
        "FashionMNIST has MNIST's numbers. Train one with quatcaps train --model NAME; change it with --model-setting "
        "NAME=VALUE, such as pose=matrix, routing=vb or routing.iterations=3.",
        highlight=False,
        soft_wrap=True,
    )

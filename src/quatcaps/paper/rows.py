"""The rows of the paper's tables: what to train, and what was published. A row is a value; its configuration is whole.

Keys read EXPERIMENT/SYSTEM, or EXPERIMENT/SYSTEM/RECIPE where a system has two recipes. One run may stand in several
tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from quatcaps.paper.ablation import rows_of_ablation
from quatcaps.paper.evidence_rows import rows_of_evidence
from quatcaps.paper.matching import REFERENCES
from quatcaps.paper.pose_rows import rows_of_poses
from quatcaps.paper.public_code import BESIDE, PLAIN, VARIANTS
from quatcaps.paper.recipes import Recipe, best, best_of_viewpoints, paper
from quatcaps.paper.row import GRITZMAN, HINTON, RIBEIRO, Published, Quoted, Row, whole
from quatcaps.paper.setting_rows import KNOWN, rows_of_settings
from quatcaps.paper.setting_rows import TABLE as OF_SETTINGS
from quatcaps.training.config import TrainingConfig

TABLES = {
    "table1": "Table I: novel viewpoints",
    "table2": "Table II: five datasets",
    "table3": "Table III: branching",
    "ablation": "From `paper` to `best`",
    "systems": "The compared systems on smallNORB, and as their public code has them",
    "poses": "What poses know",
    "evidence": "Evidence: systems that are given the same images",
    OF_SETTINGS: "Settings for new viewpoints, on rendered toys and on smallNORB",
}
DATASETS = ("smallnorb", "mnist", "fashionmnist", "svhn", "cifar10")


@dataclass(frozen=True)
class System:
    """A network with its recipe, as rows are made of them."""

    name: str
    model: str
    recipe: str
    base: Recipe
    changes: Mapping[str, Any]
    default: bool = True
    branched: bool | None = None


FOLLOWED = {"evaluate_every": 3, "evaluate_images": 0}
"""The test images are followed, all of them: the paper's public code keeps the epoch that does best on them, which can
then be told. They choose nothing here."""
MATRIX = {**FOLLOWED, "weight_decay": 2e-7}
"""What the paper's matrix capsules have beside its own settings."""
VARIATIONAL = {**FOLLOWED, "loss": "cross-entropy", "learning_rate": 1e-3, "batch": 128}
"""Routing via variational Bayes has the loss, the rate and the batches of its authors' public code."""
ONCE = {"evaluate_every": 0}
"""The test images are measured at the end alone."""
EVERY_EPOCH = {"evaluate_every": 1, "evaluate_images": 0, "test_crops": 1, "epochs": 60}
"""All images after every epoch, their middle alone: where familiar errors match is found between them. Systems are
compared there, not at the end of the paper's 300 epochs."""


def plain(dataset: str = "toys") -> TrainingConfig:
    """A plain network under the paper's settings, with a loss and a rate of its own."""
    return paper(dataset).changed(PLAIN)


def control(dataset: str = "toys") -> TrainingConfig:
    """A plain network that is given what `best` gives QCN: images, batches, epochs, weight decay, averaged weights. Its
    loss and its rate are its own; nothing was tried for it."""
    given = best(dataset)
    rate = PLAIN["learning_rate"] * math.sqrt(given.batch / 64)
    own = {**PLAIN, "learning_rate": rate, "score_scale": 1.0, "label_smoothing": 0.0, "model_settings": {}}
    return given.changed(own)


SYSTEMS = {
    "qcn/paper": System("QCN", "qcn", "paper", paper, FOLLOWED, branched=True),
    "qcn/best": System("QCN", "qcn", "best", best, ONCE, branched=True),
    "qcn-joint/paper": System("QCN", "qcn-joint", "paper", paper, FOLLOWED, branched=False),
    "qcn-joint/best": System("QCN", "qcn-joint", "best", best, ONCE, branched=False),
    "em": System("EM*", "em", "paper", paper, MATRIX),
    "em-branched": System("EM‡", "em-branched", "paper", paper, MATRIX, branched=True),
    "em-joint": System("EM‡", "em-joint", "paper", paper, MATRIX, branched=False),
    "vb": System("VB", "vb", "paper", paper, VARIATIONAL),
    "em-ibm": System("EM-IBM", "em-ibm", "paper", paper, MATRIX, default=False),
    "cnn": System("CNN", "cnn", "control", control, ONCE),
    "resnet-20": System("ResNet-20", "resnet-20", "control", control, ONCE),
}

PUBLISHED: dict[tuple[str, str], Published] = {
    ("azimuth-pooled", "qcn"): Published(7.5, familiar=3.7),
    ("elevation-pooled", "qcn"): Published(11.5, familiar=4.4),
    ("azimuth-pooled", "em"): Published(13.4, familiar=3.7),
    ("elevation-pooled", "em"): Published(15.8, familiar=4.0),
    ("azimuth-strict", "vb"): Published(11.3, RIBEIRO, familiar=3.7),
    ("elevation-strict", "vb"): Published(11.6, RIBEIRO, familiar=4.3),
    ("azimuth-strict", "cnn"): Published(20.0, HINTON, "4.2M", familiar=3.7),
    ("elevation-strict", "cnn"): Published(17.8, HINTON, "4.2M", familiar=4.3),
    ("smallnorb", "qcn"): Published(2.29, parameters="188K"),
    ("mnist", "qcn"): Published(0.37, parameters="187K"),
    ("fashionmnist", "qcn"): Published(6.92, parameters="187K"),
    ("svhn", "qcn"): Published(4.63, parameters="189K"),
    ("cifar10", "qcn"): Published(13.92, parameters="189K"),
    ("smallnorb", "em"): Published(3.40, parameters="317K"),
    ("mnist", "em"): Published(0.89),
    ("fashionmnist", "em"): Published(9.74),
    ("svhn", "em"): Published(8.19),
    ("cifar10", "em"): Published(17.76, parameters="460K"),
    ("smallnorb", "vb"): Published(1.6, RIBEIRO, "169K"),
    ("fashionmnist", "vb"): Published(5.2, RIBEIRO, "172K"),
    ("svhn", "vb"): Published(3.9, RIBEIRO, "323K"),
    ("cifar10", "vb"): Published(11.2, RIBEIRO, "323K"),
    ("smallnorb", "em-ibm"): Published(4.6, GRITZMAN, "335K"),
    ("mnist", "em-ibm"): Published(1.23, GRITZMAN),
    ("fashionmnist", "em-ibm"): Published(10.44, GRITZMAN),
    ("smallnorb", "qcn-joint"): Published(3.72, parameters="298K"),
    ("smallnorb", "em-branched"): Published(3.66, parameters="411K"),
    ("smallnorb", "em-joint"): Published(3.44, parameters="533K"),
}
"""By experiment and network. Both recipes of QCN stand beside the paper's number."""

QUOTED = (
    Quoted("table1", "EM", "smallnorb", Published(13.5, HINTON, "310K", 3.7), "azimuth", "strict"),
    Quoted("table1", "EM", "smallnorb", Published(12.3, HINTON, "310K", 4.3), "elevation", "strict"),
    Quoted("table2", "EM", "smallnorb", Published(1.8, HINTON, "310K")),
    Quoted("table2", "EM", "mnist", Published(0.44, HINTON)),
    Quoted("table2", "EM", "cifar10", Published(11.9, HINTON)),
)

IN_TABLE_1 = ("qcn/paper", "qcn/best", "em", "vb", "cnn", "resnet-20")
IN_TABLE_2 = ("qcn/paper", "qcn/best", "em", "vb", "em-ibm", "cnn", "resnet-20")
IN_SYSTEMS = ("qcn/paper", "em", "vb", "em-ibm")
IN_TABLE_3 = ("qcn/paper", "qcn/best", "qcn-joint/paper", "qcn-joint/best", "em-branched", "em-joint")


def configure(system: System, dataset: str, changes: Mapping[str, Any]) -> TrainingConfig:
    """A system's configuration for a dataset."""
    return whole(system.base(dataset).changed({"model": system.model, **system.changes, **changes}))


def make_row(name: str, experiment: str, dataset: str, tables: tuple[str, ...], changes: Mapping[str, Any]) -> Row:
    """The row of a system in `SYSTEMS`."""
    system = SYSTEMS[name]
    viewpoints = changes.get("viewpoints", "all")
    if viewpoints != "all":
        of_viewpoints: Recipe = partial(best_of_viewpoints, viewpoints, changes["protocol"])
        base = {"best": of_viewpoints, "control": plain}.get(system.recipe, system.base)
        system = replace(system, base=base)
    return Row(
        key=f"{experiment}/{name}",
        tables=tables,
        system=system.name,
        recipe=system.recipe,
        dataset=dataset,
        configuration=partial(configure, system, dataset, changes),
        viewpoints=viewpoints,
        protocol=changes.get("protocol", ""),
        branched=system.branched,
        published=PUBLISHED.get((experiment, system.model)),
        default=system.default,
    )


def rows_of_viewpoints() -> list[Row]:
    """Table I."""
    return [
        make_row(
            name,
            f"{viewpoints}-{protocol}",
            "smallnorb",
            ("table1",),
            {"viewpoints": viewpoints, "protocol": protocol, **EVERY_EPOCH},
        )
        for viewpoints, protocol in REFERENCES
        for name in IN_TABLE_1
    ]


def rows_of_datasets() -> list[Row]:
    """Tables II and III; the second is about smallNORB alone, and shares two rows with the first."""
    rows = []
    for dataset in DATASETS:
        for name in dict.fromkeys((*IN_TABLE_2, *(IN_TABLE_3 if dataset == "smallnorb" else ()))):
            second = ("table2",) if name in IN_TABLE_2 else ()
            third = ("table3",) if name in IN_TABLE_3 and dataset == "smallnorb" else ()
            compared = ("systems",) if name in IN_SYSTEMS and dataset == "smallnorb" else ()
            changes = BESIDE if compared else {}
            rows.append(make_row(name, dataset, dataset, (*second, *third, *compared), changes))
    return rows


def rows_of_public_code() -> list[Row]:
    """Systems as their public code has them, and what might explain a difference: trained where asked for by name."""
    rows = []
    for name, each in VARIANTS.items():
        changes = {**BESIDE, **each.changes, "model_settings": dict(each.model_settings)}
        system = System(each.system, each.model, each.recipe, paper, changes, default=False)
        rows.append(
            Row(
                key=f"smallnorb/{name}",
                tables=("table2", "systems") if each.in_table_2 else ("systems",),
                system=each.system,
                recipe=each.recipe,
                dataset="smallnorb",
                configuration=partial(configure, system, "smallnorb", {}),
                published=each.published,
                default=False,
                quiet=True,
            )
        )
    return rows


def in_settings_too(row: Row) -> Row:
    """Some systems of `evidence` tell whether rendered toys rank settings as smallNORB does."""
    return replace(row, tables=(*row.tables, OF_SETTINGS)) if row.key in KNOWN else row


ROWS: dict[str, Row] = {
    row.key: in_settings_too(row)
    for row in (
        *rows_of_viewpoints(),
        *rows_of_datasets(),
        *rows_of_public_code(),
        *rows_of_ablation(),
        *rows_of_poses(),
        *rows_of_evidence(),
        *rows_of_settings(),
    )
}
"""Every row by its key, in the order of the tables."""

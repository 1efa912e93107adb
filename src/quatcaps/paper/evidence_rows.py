"""The rows of `evidence`: systems that are given the same images, and QCN without one of its parts.

Every system has what `best` gives QCN in an experiment: images and their augmentation, epochs, batches, weight decay,
label smoothing and averaged weights. Its network and its loss are its own, and its learning rate is chosen for it on
held-out images (`evidence_rates`).

Keys read evidence-EXPERIMENT/SYSTEM, and rates-EXPERIMENT/SYSTEM/xFACTOR for the search of a rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from quatcaps.models.variants import COARSE, DEEP
from quatcaps.paper.ablation import FOLDS
from quatcaps.paper.evidence_rates import FACTORS, SHARED, factor, rate_name
from quatcaps.paper.matching import REFERENCES
from quatcaps.paper.pose_rows import LIGHTER, OBJECTIVE, PRETRAINED, SMALL_RESNET, TOYS_HERE
from quatcaps.paper.recipes import best, best_of_viewpoints
from quatcaps.paper.row import Row, whole
from quatcaps.training.config import TrainingConfig

TABLE, REFERENCE = "evidence", "qcn/best"
"""What the other systems are compared with."""
MAIN, PART, SEARCH = "best", "part", "search"
"""The recipes of these rows: a system under the settings of `best`; QCN without one of its parts, under the same; the
search of a rate. And `PRETRAINED`: one that begins with a network of `poses`, which many kinds of rendered toys have
taught."""


@dataclass(frozen=True)
class Contender:
    """A system. changes: its network, and its loss where that is not QCN's. rate: its default rate with batches of 64,
    which grows with the square root of the batch; None: that of `best`. pretrained: the key of the row that it begins
    with."""

    name: str
    changes: Mapping[str, Any]
    rate: float | None = None
    recipe: str = MAIN
    pretrained: str = ""


CROSS_ENTROPY: Mapping[str, Any] = {"loss": "cross-entropy", "score_scale": 1.0}
SPREAD: Mapping[str, Any] = {"loss": "spread", "margin_scale": 100.0, "score_scale": 1.0, "label_smoothing": 0.0}
"""The loss of EM*, with the margins of `best`: the paper's schedule takes 50,000 steps per unit, and most of these runs
have fewer in all."""
ONE_TRUNK: Mapping[str, Any] = {**DEEP, "joint_blocks": ((40, 1), (52, 2), (60, 2))}
"""One trunk with as many parameters as two branches: 160,534 on smallNORB."""

CONTENDERS: Mapping[str, Contender] = {
    REFERENCE: Contender("QCN", {"model": "qcn", "model_settings": DEEP}),
    "qcn-rotor": Contender("QCN, rotors", {"model": "qcn-rotor-deep", "model_settings": {}}),
    "resnet-153k": Contender(
        "ResNet 153K", {"model": "resnet-20", "model_settings": {"widths": (12, 24, 48)}, **CROSS_ENTROPY}, 1e-3
    ),
    "resnet-272k": Contender("ResNet 272K", {"model": "resnet-20", "model_settings": {}, **CROSS_ENTROPY}, 1e-3),
    "cnn": Contender("CNN", {"model": "cnn", "model_settings": {}, **CROSS_ENTROPY}, 1e-3),
    "em": Contender("EM*", {"model": "em", "model_settings": {}, **SPREAD}, 3e-3),
    "vb": Contender("VB", {"model": "vb", "model_settings": {}, **CROSS_ENTROPY}, 1e-3 / math.sqrt(2)),
    "qcn-rotor-pretrained": Contender(
        "QCN, rotors, pretrained",
        {"model": "qcn-rotor-deep", "model_settings": {}},
        recipe=PRETRAINED,
        pretrained=f"poses-{TOYS_HERE}/qcn-rotor/{LIGHTER}",
    ),
    "resnet-153k-pretrained": Contender(
        "ResNet 153K, pretrained",
        {"model": "resnet-20", "model_settings": SMALL_RESNET, **CROSS_ENTROPY},
        1e-3,
        recipe=PRETRAINED,
        pretrained=f"poses-{TOYS_HERE}/resnet/{OBJECTIVE}",
    ),
    "qcn/no-routing": Contender("no routing", {"model": "qcn-no-routing", "model_settings": DEEP}, recipe=PART),
    "qcn/free": Contender("free maps", {"model": "qcn-free", "model_settings": DEEP}, recipe=PART),
    "qcn/fixed-axis": Contender("fixed axes", {"model": "qcn-fixed-axis", "model_settings": DEEP}, recipe=PART),
    "qcn/one-trunk": Contender("one trunk", {"model": "qcn-joint", "model_settings": ONE_TRUNK}, recipe=PART),
    "qcn/coarse": Contender("coarse shape", {"model": "qcn", "model_settings": COARSE}, recipe=PART),
}
"""By key. The rates of ResNet, CNN and EM* are those of Tables I and II; VB's are its authors' 1e-3 with batches of
128."""
SYSTEMS = tuple(key for key, each in CONTENDERS.items() if each.recipe == MAIN)
TAUGHT = tuple(key for key, each in CONTENDERS.items() if each.recipe == PRETRAINED)
"""They have seen more images than the others: rendered toys from all around."""
PAIRS = (
    ("qcn-rotor", "resnet-153k"),
    ("qcn-rotor", "resnet-272k"),
    ("qcn-rotor-pretrained", "qcn-rotor"),
    ("resnet-153k-pretrained", "resnet-153k"),
    ("qcn-rotor-pretrained", "resnet-153k-pretrained"),
)
"""Compared with each other, beside all with QCN: rotors with residual networks, and what rendered toys give to each."""
PARTS = ("qcn/no-routing", "qcn/free", "qcn/fixed-axis", "qcn/one-trunk")
TWINS = {REFERENCE: "qcn/best", "resnet-272k": "resnet-20", "cnn": "cnn"}
"""The same systems in Table II. Where images show no toys, their records have all that is needed here."""
RUNS_A_FOLD = 2
"""Of toys, in the search of a strict experiment."""
SLOW = ("em", "vb")
"""Several times as long as the others: where images are many they are trained only if asked for by name."""


@dataclass(frozen=True)
class Experiment:
    """What systems are compared in. seeds: how many are wanted. epochs: other than those of `best`; then images are
    measured at the end alone, and there is no match. twins: systems, and the rows of other tables that have the same
    runs."""

    title: str
    dataset: str
    seeds: int
    viewpoints: str = "all"
    protocol: str = ""
    systems: tuple[str, ...] = SYSTEMS
    epochs: int = 0
    twins: tuple[tuple[str, str], ...] = ()

    @property
    def of_toys(self) -> bool:
        return self.dataset == "smallnorb"

    @property
    def folds(self) -> tuple[int, ...]:
        """What a search holds out. Pooled runs have twice the images, and a fold two toys of each class."""
        return (FOLDS[:2] if self.protocol == "pooled" else FOLDS) if self.of_toys else (0,)

    @property
    def searches(self) -> int:
        """How many runs a search of rates has for each factor."""
        return len(self.folds) * (1 if self.protocol == "pooled" or not self.of_toys else RUNS_A_FOLD)


@cache
def given(experiment: Experiment) -> TrainingConfig:
    """What every system is given. Novel viewpoints are measured where the match may be: under the strict protocol, by
    familiar test images, after every epoch; under the pooled one after the epoch that the training error tells."""
    if experiment.viewpoints == "all":
        return best(experiment.dataset).changed({"evaluate_every": 0})
    at_match: dict[str, Any] = {"evaluate_every": 1}
    if experiment.protocol == "pooled":
        at_match = {"evaluate_every": 0, "evaluate_at": REFERENCES[experiment.viewpoints, experiment.protocol]}
    followed = {**at_match, "evaluate_images": 0, "test_crops": 1}
    seen = {"viewpoints": experiment.viewpoints, "protocol": experiment.protocol}
    recipe = best_of_viewpoints(experiment.viewpoints, experiment.protocol, experiment.dataset)
    longer = {"epochs": experiment.epochs, "evaluate_every": 0} if experiment.epochs else {}
    return recipe.changed({**seen, **followed, **longer})


ON_TOYS = (*SYSTEMS, *TAUGHT, *PARTS)
WITHOUT_PARTS = (*SYSTEMS, *TAUGHT, "qcn/no-routing")
"""Where what earns its place is asked of routing alone; the strict protocols ask it of every part."""
AT_DEFAULT = (REFERENCE, *PARTS)
"""QCN and its parts once more, with the rate that no search chose."""
LONGER, AT_LENGTH = 180, (REFERENCE, "qcn-rotor", "resnet-153k", "resnet-272k", "qcn/no-routing")
"""Epochs that rendered toys chose for rotors (`settings`), and who is given them."""
EXPERIMENTS: Mapping[str, Experiment] = {
    "azimuth-strict": Experiment("Azimuth, strict", "smallnorb", 10, "azimuth", "strict", ON_TOYS),
    "elevation-strict": Experiment("Elevation, strict", "smallnorb", 10, "elevation", "strict", ON_TOYS),
    "azimuth-default": Experiment("Azimuth, strict, default rate", "smallnorb", 10, "azimuth", "strict", AT_DEFAULT),
    "elevation-default": Experiment(
        "Elevation, strict, default rate", "smallnorb", 10, "elevation", "strict", AT_DEFAULT
    ),
    **{
        f"{viewpoints}-long": Experiment(
            f"{viewpoints.capitalize()}, strict, {LONGER} epochs",
            "smallnorb",
            10,
            viewpoints,
            "strict",
            AT_LENGTH,
            LONGER,
            (("qcn-rotor", f"settings-{viewpoints}/longer"),),
        )
        for viewpoints in ("azimuth", "elevation")
    },
    "smallnorb": Experiment("Whole smallNORB", "smallnorb", 10, systems=WITHOUT_PARTS),
    "azimuth-pooled": Experiment(
        "Azimuth, pooled", "smallnorb", 10, "azimuth", "pooled", (*WITHOUT_PARTS, "qcn/coarse")
    ),
    "elevation-pooled": Experiment("Elevation, pooled", "smallnorb", 10, "elevation", "pooled", WITHOUT_PARTS),
    "mnist": Experiment("MNIST", "mnist", 5),
    "fashionmnist": Experiment("FashionMNIST", "fashionmnist", 5),
    "svhn": Experiment("SVHN", "svhn", 5),
    "cifar10": Experiment("CIFAR-10", "cifar10", 5),
}


TOGETHER: Mapping[str, tuple[str, str]] = {
    "Strict": ("azimuth-strict", "elevation-strict"),
    "Strict, default rate": ("azimuth-default", "elevation-default"),
    f"Strict, {LONGER} epochs": ("azimuth-long", "elevation-long"),
    "Pooled": ("azimuth-pooled", "elevation-pooled"),
}
"""Experiments of which the mean is told too: as many toys, seen from novel azimuths and from novel elevations."""
AFTER_MORE = f"Strict, {LONGER} epochs"
"""Of these, who is compared with itself after the epochs of `best` as well."""


def default_rate(experiment: Experiment, system: str) -> float:
    """A system's learning rate where no search has chosen one."""
    base, own = given(experiment), CONTENDERS[system].rate
    return base.learning_rate if own is None else own * math.sqrt(base.batch / 64)


def configure(experiment: str, system: str, scale: float, changes: Mapping[str, Any]) -> TrainingConfig:
    """The configuration of a system in an experiment, with `scale` times its default rate."""
    held = EXPERIMENTS[experiment]
    rate = {"learning_rate": scale * default_rate(held, system)}
    return whole(given(held).changed({**CONTENDERS[system].changes, **rate, **changes}))


def searching(experiment: Experiment) -> Mapping[str, Any]:
    """What a search changes: images are held out, no test image is measured, and where images are many, a quarter of
    the epochs has to do."""
    shorter = {} if experiment.of_toys else {"epochs": given(experiment).epochs // 4}
    return {"validation": 0.2 if experiment.of_toys else 0.1, "test": False, "evaluate_every": 0, **shorter}


def rows_of_evidence() -> list[Row]:
    """Every system in every experiment, then the searches of their rates."""
    return [*compared_rows(), *search_rows()]


def compared_rows() -> Iterator[Row]:
    for name, experiment in EXPERIMENTS.items():
        for system in experiment.systems:
            yield Row(
                key=f"evidence-{name}/{system}",
                tables=(TABLE,),
                system=CONTENDERS[system].name,
                recipe=CONTENDERS[system].recipe,
                dataset=experiment.dataset,
                configuration=partial(configure, name, system, factor(name, system), {}),
                viewpoints=experiment.viewpoints,
                protocol=experiment.protocol,
                default=system not in TAUGHT and (experiment.of_toys or system not in SLOW),
                wanted=experiment.seeds,
                pretrained=CONTENDERS[system].pretrained,
                twin=twin_of(name, system),
                followed=not experiment.epochs,
            )


def twin_of(name: str, system: str) -> str:
    """The key of another table's row with the same runs, if any."""
    experiment = EXPERIMENTS[name]
    shared = not experiment.of_toys and system in TWINS
    return f"{name}/{TWINS[system]}" if shared else dict(experiment.twins).get(system, "")


def search_rows() -> Iterator[Row]:
    for name, experiment in EXPERIMENTS.items():
        if name in SHARED:
            continue
        for system in SYSTEMS:
            for scale in FACTORS:
                yield Row(
                    key=f"rates-{name}/{system}/{rate_name(scale)}",
                    tables=(TABLE,),
                    system=CONTENDERS[system].name,
                    recipe=SEARCH,
                    dataset=experiment.dataset,
                    configuration=partial(configure, name, system, scale, searching(experiment)),
                    viewpoints=experiment.viewpoints,
                    protocol=experiment.protocol,
                    default=False,
                    folds=experiment.folds,
                    wanted=experiment.searches,
                )


def experiment_of(row: Row) -> str:
    """The experiment of a row, by its key."""
    return row.key.split("/")[0].split("-", 1)[1]


def system_of(row: Row) -> str:
    """The key in `CONTENDERS` of a row."""
    parts = row.key.split("/")[1:]
    return "/".join(parts[:-1] if row.recipe == SEARCH else parts)

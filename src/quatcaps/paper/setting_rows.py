"""The rows of `settings`: what might hold up better under new viewpoints, tried on rendered toys before smallNORB.

A class of smallNORB has five toys to train on, and those held out of them rank settings no better than a coin. There
are as many rendered toys as one likes. A run trains on five of each class from familiar viewpoints and is measured on
five others from novel ones, as under the strict protocol; every seed has toys of its own. Systems that `evidence`
compares on smallNORB are trained on rendered toys too: they tell whether both rank alike.

Keys read settings-toys-VIEWPOINTS/SETTING, and settings-VIEWPOINTS/SETTING for the same on smallNORB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from quatcaps.paper.evidence_rates import factor
from quatcaps.paper.evidence_rows import configure
from quatcaps.paper.row import Row, whole
from quatcaps.training.config import TrainingConfig

TABLE = "settings"
RENDERED, SMALLNORB = "toys", "smallnorb"
DRAWS = 5
"""How many times toys are drawn for each setting."""
SEEDS = 10
"""On smallNORB."""
ROTORS = "qcn-rotor"
"""What settings are changed of, and compared with."""
ONCE: Mapping[str, Any] = {"evaluate_every": 0}


@dataclass(frozen=True)
class Tried:
    """Settings in words. changes: to rotors; or known: the experiment of `evidence`, strict or at the default rate, and
    the system in it, whose runs on smallNORB there are."""

    words: str
    changes: Mapping[str, Any]
    known: tuple[str, str] | None = None


SETTINGS: Mapping[str, Tried] = {
    "rotors": Tried("rotors", {}, ("strict", ROTORS)),
    "qcn": Tried("QCN", {}, ("default", "qcn/best")),
    "qcn-x8": Tried("QCN, rate × 8", {}, ("strict", "qcn/best")),
    "qcn-no-routing": Tried("QCN, no routing, rate × 8", {}, ("strict", "qcn/no-routing")),
    "resnet-272k": Tried("ResNet 272K", {}, ("strict", "resnet-272k")),
    "cnn": Tried("CNN", {}, ("strict", "cnn")),
    "no-routing": Tried("no routing", {"model_settings": {"routing.iterations": 1}}),
    "mirrored": Tried("mirrored and stretched, tests too", {"flip": True, "stretch": 0.3, "test_mirrored": True}),
    "longer": Tried("180 epochs", {"epochs": 180}),
    "poses": Tried("a pose objective", {"pose_weight": 0.3}),
    "decay": Tried("weight decay × 10", {"weight_decay": 0.1}),
    "erased": Tried("a blotted square", {"erase": 0.3}),
    "patches": Tried("larger patches", {"patch": 0.9}),
    "lighting": Tried(
        "other brightness and contrast", {"lighting": "standardised", "brightness": 2.0, "contrast": 0.5}
    ),
    "cross-entropy": Tried(
        "cross-entropy, smoothed labels", {"loss": "cross-entropy", "score_scale": 30.0, "label_smoothing": 0.1}
    ),
}
"""By key; those after the known ones are changes to rotors."""
VIEWPOINTS = ("azimuth", "elevation")


def known_key(viewpoints: str, tried: Tried) -> str:
    """The row of `evidence` that has its runs on smallNORB, if any."""
    return "" if tried.known is None else f"evidence-{viewpoints}-{tried.known[0]}/{tried.known[1]}"


KNOWN = frozenset(known_key(viewpoints, each) for viewpoints in VIEWPOINTS for each in SETTINGS.values() if each.known)
"""Rows of `evidence` that stand in this table too."""


def configured(viewpoints: str, tried: Tried, dataset: str) -> TrainingConfig:
    """A setting's configuration."""
    kind, system = tried.known or ("strict", ROTORS)
    experiment = f"{viewpoints}-{kind}"
    given = configure(experiment, system, factor(experiment, system), ONCE)
    return whole(given.changed({**tried.changes, "dataset": dataset}))


def rows_of_settings() -> list[Row]:
    """All on rendered toys, then those on smallNORB that `evidence` does not have, trained where asked for by name."""
    every = [(viewpoints, key) for viewpoints in VIEWPOINTS for key in SETTINGS]
    rendered = [make_row(f"{TABLE}-{RENDERED}-{viewpoints}", viewpoints, key, RENDERED) for viewpoints, key in every]
    others = [each for each in every if SETTINGS[each[1]].known is None]
    return [*rendered, *(make_row(f"{TABLE}-{viewpoints}", viewpoints, key, SMALLNORB) for viewpoints, key in others)]


def make_row(experiment: str, viewpoints: str, key: str, dataset: str) -> Row:
    """A setting on a dataset. Every seed has rendered toys of its own."""
    rendered, tried = dataset == RENDERED, SETTINGS[key]
    return Row(
        key=f"{experiment}/{key}",
        tables=(TABLE,),
        system=tried.words,
        recipe=TABLE,
        dataset=dataset,
        configuration=partial(configured, viewpoints, tried, dataset),
        viewpoints=viewpoints,
        protocol="strict",
        default=rendered,
        folds=tuple(range(DRAWS)) if rendered else (),
        wanted=DRAWS if rendered else SEEDS,
    )

"""Attacks by name, and how much work they may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quatcaps.errors import QuatcapsError, at_least_one, unknown_name
from quatcaps.robustness.adaptive import apgd, targeted_apgd
from quatcaps.robustness.balls import Ball, Radius
from quatcaps.robustness.boundary import targeted_fab
from quatcaps.robustness.chance import Chance, Randomness
from quatcaps.robustness.gradient import bim, fgsm, pgd, projected_ascent
from quatcaps.robustness.minimal import carlini_wagner, deepfool
from quatcaps.robustness.objectives import dlr, misclassified
from quatcaps.robustness.squares import square
from quatcaps.robustness.victims import Victim

FEWEST_CLASSES = {"apgd-dlr": 3, "apgd-t": 4}
"""That the DLR losses need."""


@dataclass(frozen=True)
class Effort:
    """How much work an attack may do: gradient steps, random starts, and queries of the Square attack."""

    steps: int = 20
    restarts: int = 1
    queries: int = 1000

    def __post_init__(self) -> None:
        for name, count in vars(self).items():
            at_least_one(name, count)


Within = Callable[[Victim, Tensor, Tensor, Radius, Effort, Randomness], Tensor]
Nearest = Callable[[Victim, Tensor, Tensor, Effort], Tensor]


def in_turn(*names: str) -> Within:
    """Several attacks, each on the images that withstood those before it; those that need more classes are left out."""

    def attack(
        victim: Victim, images: Tensor, labels: Tensor, epsilon: Radius, effort: Effort, generator: Randomness
    ) -> Tensor:
        chance, radius = Chance.of(generator, len(images)), Ball.around(images, epsilon).radius
        found, left = images.clone(), torch.arange(len(images), device=images.device)
        for name in names:
            if not enough_classes(name, victim):
                continue
            found[left] = WITHIN[name](victim, images[left], labels[left], radius[left], effort, chance.at(left))
            left = left[~misclassified(victim(found[left]), labels[left])]
            if not len(left):
                break
        return found

    return attack


def enough_classes(name: str, victim: Victim) -> bool:
    return len(victim.trained.classes) >= FEWEST_CLASSES.get(name, 2)


WITHIN: Mapping[str, Within] = {
    "fgsm": lambda victim, images, labels, epsilon, effort, generator: fgsm(victim, images, labels, epsilon),
    "bim": lambda victim, images, labels, epsilon, effort, generator: bim(
        victim, images, labels, epsilon, effort.steps
    ),
    "pgd": lambda victim, images, labels, epsilon, effort, generator: pgd(
        victim, images, labels, epsilon, effort.steps, effort.restarts, generator
    ),
    "vote": lambda victim, images, labels, epsilon, effort, generator: projected_ascent(
        victim.votes(), images, labels, epsilon, effort.steps, effort.restarts, generator
    ),
    "apgd-ce": lambda victim, images, labels, epsilon, effort, generator: apgd(
        victim, images, labels, epsilon, effort.steps, effort.restarts, generator
    ),
    "apgd-dlr": lambda victim, images, labels, epsilon, effort, generator: apgd(
        victim, images, labels, epsilon, effort.steps, effort.restarts, generator, dlr
    ),
    "apgd-t": lambda victim, images, labels, epsilon, effort, generator: targeted_apgd(
        victim, images, labels, epsilon, effort.steps, effort.restarts, generator
    ),
    "fab-t": lambda victim, images, labels, epsilon, effort, generator: targeted_fab(
        victim, images, labels, epsilon, effort.steps
    ),
    "square": lambda victim, images, labels, epsilon, effort, generator: square(
        victim, images, labels, epsilon, effort.queries, generator
    ),
    "ensemble": in_turn("apgd-ce", "apgd-dlr", "square"),
    "autoattack": in_turn("apgd-ce", "apgd-t", "fab-t", "square"),
}
"""Attacks within ε of the image, in the maximum norm, by name. `autoattack` is the standard one of Croce and Hein 2020
with 100 steps, one start and 5,000 queries; `ensemble` is cheaper."""
NEAREST: Mapping[str, Nearest] = {
    "deepfool": lambda victim, images, labels, effort: deepfool(victim, images, labels),
    "cw": lambda victim, images, labels, effort: carlini_wagner(victim, images, labels, 5 * effort.steps),
}
"""Attacks that look for the nearest misclassified image, in the Euclidean norm, by name."""
ATTACKS = (*WITHIN, *NEAREST)
"""The names of all attacks."""
USUAL = ("fgsm", "bim", "pgd", "vote", "deepfool")
"""Those that are meant where none is named."""


def check_attacks(names: Sequence[str], victims: Sequence[Victim]) -> None:
    """Raises where an attack is not known, or none of the networks has what it needs."""
    if not names:
        raise QuatcapsError(f"no attack was given: give some of {', '.join(ATTACKS)}")
    for name in names:
        if name not in ATTACKS:
            raise unknown_name("attack", name, ATTACKS)
    if "vote" in names and not any(victim.has_votes for victim in victims):
        victims[0].votes()  # raises, and says why
    for name in names:
        if not enough_classes(name, victims[0]):
            raise QuatcapsError(
                f"{name} with {len(victims[0].trained.classes)} classes: its DLR loss needs at least "
                f"{FEWEST_CLASSES[name]}; give apgd-ce or fab-t"
            )

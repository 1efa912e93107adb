"""The error of a network on images that were made to deceive it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.robustness.attacks import NEAREST, USUAL, WITHIN, Effort, check_attacks
from quatcaps.robustness.balls import Radius, check_epsilon
from quatcaps.robustness.chance import Randomness
from quatcaps.robustness.gradient import pgd
from quatcaps.robustness.masking import Sign, looks, signs_of_masking
from quatcaps.robustness.minimal import distances
from quatcaps.robustness.trials import Counter, Progress, Trial, pixels_of, with_effort
from quatcaps.robustness.unfinished import Unfinished, asked
from quatcaps.robustness.victims import Victim, under_attack
from quatcaps.training.measure import Rate
from quatcaps.training.trained import Trained

EPSILONS = (0.004, 0.008, 0.016, 0.031, 0.1)
"""About 1, 2, 4 and 8 of 255 grey levels, and an ε at which little should withstand."""


@dataclass(frozen=True)
class Distances:
    """How far the nearest adversarial images that an attack found lie, for the images that are classified correctly."""

    found: int
    images: int
    mean: float | None  # Euclidean, pixels in [0, 1]; None: nothing found
    median: float | None


@dataclass(frozen=True)
class Attacked:
    """What attacks made of one network. Errors are of all images, so that they begin at the error without attack."""

    name: str
    model: str
    parameters: int
    images: str  # which, and how many
    clean: Rate
    epsilons: tuple[float, ...]
    within: dict[str, tuple[Rate, ...]]  # by attack, then by ε
    strongest: tuple[Rate, ...]  # by ε: images that any of the attacks broke
    nearest: dict[str, Distances]
    transfer: dict[str, tuple[Rate, ...]] = field(default_factory=dict)  # by the network that examples were made on
    signs: tuple[Sign, ...] = ()
    checkpoint: str = ""  # best, last or average, where a run keeps more than one
    broken: tuple[tuple[int, ...], ...] = ()  # by ε: the numbers of the images that any of the attacks broke

    def success(self, rate: Rate) -> float:
        """In %: of the images that were classified correctly, those that an attack broke."""
        right = self.clean.images - self.clean.errors
        return 100 * (rate.errors - self.clean.errors) / right if right else 0.0

    def to_json(self) -> dict[str, Any]:
        def rate(counted: Rate) -> dict[str, Any]:
            return {"error_percent": counted.percent, "errors": counted.errors, "images": counted.images}

        def curve(rates: Sequence[Rate]) -> list[dict[str, Any]]:
            pairs = zip(self.epsilons, rates, strict=True)
            return [{"epsilon": e, **rate(each), "success_percent": self.success(each)} for e, each in pairs]

        return {
            "name": self.name,
            "checkpoint": self.checkpoint or None,
            "model": self.model,
            "parameters": self.parameters,
            "images": self.images,
            "clean": rate(self.clean),
            "attacks": {name: curve(rates) for name, rates in self.within.items()},
            "strongest": curve(self.strongest) if self.within else [],
            "broken": [" ".join(map(str, numbers)) for numbers in self.broken],
            "nearest": {name: vars(each) for name, each in self.nearest.items()},
            "transfer": {name: curve(rates) for name, rates in self.transfer.items()},
            "masking": [vars(each) for each in self.signs],
            "epsilons": list(self.epsilons),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Attacked:
        """What `to_json` wrote."""

        def rate(counted: Mapping[str, Any]) -> Rate:
            return Rate(counted["errors"], counted["images"])

        def rates(curves: Mapping[str, Any]) -> dict[str, tuple[Rate, ...]]:
            return {name: tuple(map(rate, curve)) for name, curve in curves.items()}

        curves = [*value["attacks"].values(), *value["transfer"].values()]
        earlier = [point["epsilon"] for point in curves[0]] if curves else []
        return Attacked(
            **{name: value[name] for name in ("name", "model", "parameters", "images")},
            clean=rate(value["clean"]),
            epsilons=tuple(value.get("epsilons", earlier)),
            within=rates(value["attacks"]),
            strongest=tuple(map(rate, value["strongest"])),
            nearest={name: Distances(**each) for name, each in value["nearest"].items()},
            transfer=rates(value["transfer"]),
            signs=tuple(Sign(**each) for each in value["masking"]),
            checkpoint=value.get("checkpoint") or "",
            broken=tuple(tuple(map(int, numbers.split())) for numbers in value.get("broken", [])),
        )


def attack(
    trained: Trained,
    images: ImageSet,
    device: torch.device,
    *,
    attacks: Sequence[str] | None = None,
    epsilons: Sequence[float] = EPSILONS,
    effort: Effort | None = None,
    normalised: bool = False,
    source: Trained | None = None,
    masking: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    unfinished: Unfinished | None = None,
) -> Attacked:
    """Attacks a network on some images, which `some_images` may have chosen, and counts what it misclassifies.

    attacks: names of `ATTACKS`; without, the usual ones that this network can be attacked by. epsilons: how far a pixel
    in [0, 1] may change; `normalised`: in units of the network's input instead. source: another network, on which
    adversarial images are made by PGD and shown to this one. masking: look for signs that gradients are masked.
    unfinished: keeps what every attack found, so that the same call goes on after one that was stopped.
    """
    trained.check_fit(images)
    victim, effort = Victim(trained), effort or Effort()
    attacks = [name for name in USUAL if name != "vote" or victim.has_votes] if attacks is None else attacks
    check_attacks(attacks, [victim])
    epsilons = tuple(sorted(set(epsilons)))
    if not epsilons:
        raise QuatcapsError("no ε was given: give at least one, such as 0.031")
    for epsilon in epsilons:
        check_epsilon(epsilon, normalised=normalised)
    victims = [victim] if source is None else [victim, source_of(source, trained, images)]
    for one in victims:
        one.trained.network.to(device)
    pixels, labels = pixels_of(images, victims, device), images.labels.to(device)
    names = [name for name in dict.fromkeys(attacks) if name in WITHIN]
    nearest = [name for name in dict.fromkeys(attacks) if name in NEAREST]
    runs = len(epsilons) * (len(names) + len(victims) - 1) + len(nearest)
    counter = Counter(len(labels) * (runs + (looks(names, epsilons) if masking else 0)), progress)
    earlier = None
    if unfinished is not None:
        request = {"epsilons": epsilons, "effort": vars(effort), "normalised": normalised, "seed": seed}
        states = [tensor for one in victims for tensor in one.trained.network.state_dict().values()]
        given = [one.trained.config.to_json() for one in victims]
        stored = (255 * pixels).round().byte()  # devices divide by 255 otherwise, in the last digit
        earlier = unfinished.begin(asked({**request, "given": given}, (*states, stored, labels)))
    trial = Trial(victim, pixels, labels, seed, normalised, counter, earlier)
    with under_attack(*victims):
        clean = trial.wrong()
        broken = {name: trial.broken(name, with_effort(name, effort), epsilons) for name in names}
        found = {name: nearest_found(trial, name, effort, clean) for name in nearest}
        carried = {}
        if source is not None:
            carried[source.name] = transferred(trial, victims[1], effort, epsilons)
        signs = signs_of_masking(trial, broken, carried, epsilons, effort) if masking else ()
    counter.finish()
    together = [torch.stack([each[k] for each in broken.values()]).any(0) for k in range(len(epsilons)) if broken]
    return Attacked(
        name=trained.name,
        model=trained.config.model,
        parameters=sum(weight.numel() for weight in trained.network.parameters()),
        images=f"{images.name}, {len(images):,} images",
        clean=rate_of(clean),
        epsilons=epsilons,
        within={name: tuple(map(rate_of, masks)) for name, masks in broken.items()},
        strongest=tuple(map(rate_of, together)),
        nearest=found,
        transfer={name: tuple(map(rate_of, masks)) for name, masks in carried.items()},
        signs=tuple(signs),
        checkpoint=trained.checkpoint,
        broken=tuple(tuple(mask.nonzero().flatten().tolist()) for mask in together),
    )


def nearest_found(trial: Trial, name: str, effort: Effort, clean: Tensor) -> Distances:
    """The distances that an attack for the nearest misclassified image found."""
    right = ~clean
    if not right.any():
        return Distances(0, 0, None, None)

    def anywhere(victim: Victim, images: Tensor, labels: Tensor, _: Radius, __: Randomness) -> Tensor:
        return NEAREST[name](victim, images, labels, effort)

    def measured() -> dict[str, Any]:
        (made,) = trial.made(name, anywhere, (1.0,))
        found = distances(trial.pixels, made).cpu()[right & trial.wrong(made)]
        middle = (float(found.mean()), float(found.median())) if len(found) else (None, None)
        return vars(Distances(len(found), int(right.sum()), *middle))

    return Distances(**trial.once(name, measured, len(trial)))


def transferred(trial: Trial, source: Victim, effort: Effort, epsilons: Sequence[float]) -> list[Tensor]:
    """By ε, (N,) bool: which images are misclassified as PGD has made them for another network."""

    def elsewhere(_: Victim, images: Tensor, labels: Tensor, radius: Radius, chance: Randomness) -> Tensor:
        return pgd(source, images, labels, radius, effort.steps, 1, chance, stop=False)

    return trial.broken("transfer", elsewhere, epsilons)


def source_of(source: Trained, trained: Trained, images: ImageSet) -> Victim:
    """The other network; an error where it cannot be shown these images."""
    if source.classes != trained.classes or source.channels != trained.channels:
        raise QuatcapsError(
            f"{source.name} has {source.channels} channels and {len(source.classes)} classes, {trained.name} "
            f"{trained.channels} and {len(trained.classes)}: examples go from one to the other on the same dataset"
        )
    if source.size != (0, 0) and source.size != images.size:
        raise QuatcapsError(
            f"{source.name} takes images of {source.size[0]}×{source.size[1]}, {trained.name} of "
            f"{images.size[0]}×{images.size[1]}: give a source of the same image size"
        )
    return Victim(source)


def rate_of(wrong: Tensor) -> Rate:
    return Rate(int(wrong.sum()), len(wrong))

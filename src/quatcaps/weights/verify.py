"""Whether weights are what their card says: the file, and the error, measured again where the data are here."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.data.custom import is_path
from quatcaps.data.imageset import ImageSet
from quatcaps.data.published import is_here
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.pipelines import PIPELINES
from quatcaps.training.config import TrainingConfig
from quatcaps.training.evaluate import Progress, errors_on
from quatcaps.training.identity import difference, digests_of, images_by_name
from quatcaps.training.measure import Rate
from quatcaps.training.run import load_experiment
from quatcaps.weights.cards import Card, read_card
from quatcaps.weights.zoo import trained_by

ROUNDING = 0.0002
"""The part of the images whose class may differ: sums come out in another order on other devices."""

Load = Callable[[TrainingConfig, str], ImageSet]


@dataclass
class Verdict:
    """What was found of one card, in words, and what of it is a fault."""

    name: str
    found: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def verify(source: Path, folder: Path, load: Load, device: torch.device, progress: Progress | None = None) -> Verdict:
    """Checks one file of weights against the card beside it.

    folder: where datasets are kept; load: gives a split of a configuration's images. Nothing is downloaded.
    """
    verdict = Verdict(source.stem)
    try:
        card = read_card(source.with_suffix(".json"))
        verdict.name = card.name
        trained = trained_by(card, source)
    except QuatcapsError as error:
        verdict.faults.append(str(error))
        return verdict
    verdict.found.append(f"the file is the card's: {card.bytes:,} bytes, sha256 {card.sha256}")
    remedy = missing_data(card.config, folder)
    if remedy is not None:
        verdict.found.append(f"the error was not measured: {remedy}")
        return verdict
    try:
        experiment = load_experiment(card.config, lambda split: load(card.config, split))
        measured = errors_on(trained, experiment.tests, device, progress)
    except QuatcapsError as error:
        verdict.faults.append(f"the error cannot be measured: {error}")
        return verdict
    compare(card, measured, other_images(card, experiment), device.type, verdict)
    return verdict


def compare(card: Card, measured: dict[str, Rate], other: str | None, device: str, verdict: Verdict) -> None:
    """Adds to the verdict how the errors compare with the card's; on other images they are not held against it. other:
    in what the images differ from the card's."""
    comparable = other is None
    if other is not None:
        verdict.found.append(f"these are not the card's images: {other}")
    for name in sorted(card.error.keys() | measured.keys()):
        said, now = card.error.get(name), measured.get(name)
        words = f"{name}: {in_words(now)} on {device}, {in_words(said)} on {card.measured_on} by the card"
        if said is None or now is None or said.images != now.images:
            verdict.faults.append(f"{words}: not the same images")
        elif said.errors == now.errors:
            verdict.found.append(f"{name}: {in_words(now)} on {device}, as on the card")
        elif abs(said.errors - now.errors) <= ROUNDING * said.images:
            verdict.found.append(f"{words}: within rounding")
        elif comparable:
            verdict.faults.append(f"{words}: more than rounding, {ROUNDING:.2%} of the images")
        else:
            verdict.found.append(words)


def other_images(card: Card, experiment: Experiment) -> str | None:
    """In what images differ from the card's: by their digests where both are known, else by where they came from."""
    images, source = images_by_name(experiment), experiment.training.source
    if card.digests.keys() & digests_of(images).keys():
        return difference("the card", card.provenance, card.digests, images)
    if source == card.provenance:
        return None
    return f"{source or 'unknown'} here, {card.provenance or 'unknown'} on the card"


def in_words(rate: Rate | None) -> str:
    """An error with its counts."""
    return "nothing" if rate is None else f"{rate.percent:.2f}% error ({rate.errors:,} of {rate.images:,})"


def missing_data(config: TrainingConfig, folder: Path) -> str | None:
    """What to do to have the images of a configuration; None where they are here or are rendered."""
    name = config.dataset
    if name in DESCRIPTIONS:
        if is_here(name, folder, config.image_size):
            return None
        sized = [] if config.image_size == PIPELINES[name].image_size else ["--size", str(config.image_size)]
        command = shlex.join(["quatcaps", "data", "prepare", name, *sized, "--data-dir", str(folder)])
        return f"{DESCRIPTIONS[name].title} is not in {folder}; get it with: {command}"
    if is_path(name) and not Path(name).expanduser().exists():
        return f"there is no folder or file {name}; put the images there"
    return None

"""What a run learns from, what its settings may be chosen on, and what it is measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from quatcaps.data.batches import mix
from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import ALL, split_viewpoints
from quatcaps.errors import QuatcapsError, unknown_name

PROTOCOLS = ("strict", "pooled")
HELD_OUT_BY = ("instance", "image")
HELD_OUT = -3  # a stream of chance of its own


@dataclass(frozen=True)
class Experiment:
    """The images of one run.

    tests: `test`, and in an experiment on viewpoints `novel` beside it: then `test` is seen from familiar viewpoints.
    The pooled protocol has `novel` alone, as it trains on everything familiar.
    """

    training: ImageSet
    tests: dict[str, ImageSet]
    validation: ImageSet | None = None

    @property
    def measured(self) -> dict[str, ImageSet]:
        """Everything that a run is measured on at its end, by name."""
        held_out = {} if self.validation is None else {"validation": self.validation}
        return held_out | self.tests


def arrange(
    load: Callable[[str], ImageSet],
    *,
    viewpoints: str = ALL,
    protocol: str = "strict",
    validation: float = 0.0,
    by: str = "instance",
    seed: int = 0,
) -> Experiment:
    """The experiment that a run's settings ask for; `load` gives the `train` or `test` images, or `all` of them.

    validation, by: the part of the training images held out for choosing settings, and by what; see `hold_out`.
    """
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    pooled = viewpoints != ALL and protocol == "pooled"
    training = load(ALL) if pooled else load("train")
    tests = {} if pooled else {"test": load("test")}
    if pooled:
        training, tests["novel"] = split_viewpoints(training, viewpoints)
    elif viewpoints != ALL:
        training = split_viewpoints(training, viewpoints)[0]
        tests["test"], tests["novel"] = split_viewpoints(tests["test"], viewpoints)
    if not validation:
        return Experiment(training, tests)
    kept, held_out = hold_out(training, validation, seed, by=by)
    return Experiment(kept, tests, held_out)


def hold_out(
    images: ImageSet, part: float, seed: int, name: str = "validation", *, by: str = "instance"
) -> tuple[ImageSet, ImageSet]:
    """Two sets that share nothing: what is left, and about that `part` of every class.

    Where images show instances, whole instances are held out, so that none is on both sides; `by` image, any images,
    whatever they show. The choice depends on the seed alone. Each class gives at least one image (or instance) and
    keeps at least one.
    """
    if not 0 < part < 1:
        raise QuatcapsError(f"{name} = {part}: the part to hold out must lie between 0 and 1")
    if by not in HELD_OUT_BY:
        raise unknown_name("way to hold out images", by, HELD_OUT_BY)
    generator = torch.Generator().manual_seed(mix(seed, HELD_OUT))
    by_instance = by == "instance" and "instance" in images.info
    chosen = torch.zeros(len(images), dtype=torch.bool)
    for label, class_name in enumerate(images.classes):
        of_class = images.labels == label
        if not of_class.any():
            continue
        groups = images.info["instance"] if by_instance else torch.arange(len(images))
        known = groups[of_class].unique()
        if len(known) < 2:
            what = "instance" if by_instance else "image"
            raise QuatcapsError(
                f"{images.name} has one {what} of class {class_name}: none can be held out for {name}; leave it out"
            )
        count = min(max(1, round(part * len(known))), len(known) - 1)
        taken = known[torch.randperm(len(known), generator=generator)[:count]]
        chosen |= of_class & torch.isin(groups, taken)
    return images.select(~chosen), images.select(chosen, f"{images.name}, {name}")


def same_toys(images: ImageSet, shown: ImageSet, name: str = "validation") -> ImageSet:
    """Those of `images` that show a toy which `shown` has too, from whatever viewpoint."""
    known = set(zip(shown.labels.tolist(), shown.info["instance"].tolist(), strict=True))
    pairs = zip(images.labels.tolist(), images.info["instance"].tolist(), strict=True)
    return images.select(torch.tensor([pair in known for pair in pairs]), f"{images.name}, {name}")

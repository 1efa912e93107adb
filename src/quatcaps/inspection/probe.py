"""What a linear reader finds of the viewpoint in some numbers: ridge regression, fitted on some images and measured on
others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import views_of
from quatcaps.errors import QuatcapsError
from quatcaps.inspection.turns import half_of

STRENGTHS = tuple(10.0**k for k in range(-6, 4))
"""Of the ridge, relative to the mean square of the features; generalised cross-validation chooses."""
MOST_PRODUCTS = 200
"""Few numbers are expanded into their products, to the highest degree (3 at most) that gives no more than these."""
SHUFFLES = 8
"""Random orders of the azimuths that the chance level is the mean of."""
IMAGES_PER_PRODUCT = 3
"""… and that leaves so many images to fit each."""
FEWEST = 6
"""Images that a probe is fitted on or measured with: groups of fewer are left out."""


@dataclass(frozen=True)
class Probe:
    """What was read off: R² (1: all of it, 0: nothing) and the median error in degrees; `chance` is a reader that was
    fitted to azimuths in random order, the mean of several."""

    azimuth_r2: float
    azimuth_degrees: float
    elevation_r2: float
    elevation_degrees: float
    chance_r2: float
    chance_degrees: float
    images: int  # measured


def probe_within(images: ImageSet, features: Tensor, seed: int = 0) -> Probe:
    """Within a toy: fitted on every other lighting, measured on the rest."""
    toys, lighting = views_of(images).toys, images.info.get("lighting")
    if lighting is None:
        raise QuatcapsError(f"{images.name} has no lighting: a toy has no two images of one viewpoint to compare")

    def groups() -> Iterator[tuple[Tensor, Tensor]]:
        for toy in toys.unique():
            here = toys == toy
            yield here & (lighting % 2 == 0), here & (lighting % 2 == 1)

    return probe(images, features, groups(), seed)


def probe_across(images: ImageSet, features: Tensor, seed: int = 0) -> Probe:
    """Across toys: fitted on half of the toys of a class, measured on the other half, and the other way round."""
    if not images.aligned:
        raise QuatcapsError(f"{images.name}: azimuth 0 differs from toy to toy, and cannot be read across toys")
    halves = half_of(images)

    def groups() -> Iterator[tuple[Tensor, Tensor]]:
        for label in images.labels.unique():
            here = images.labels == label
            yield here & halves, here & ~halves
            yield here & ~halves, here & halves

    return probe(images, features, groups(), seed)


def probe(images: ImageSet, features: Tensor, groups: Iterator[tuple[Tensor, Tensor]], seed: int) -> Probe:
    """One reader for each pair of masks: the images that it is fitted on, and those that it is measured with."""
    azimuth = (10.0 * images.info["azimuth"].double()).deg2rad()
    elevation = 30 + 5.0 * images.info["elevation"].double()
    wanted = torch.stack((azimuth.sin(), azimuth.cos(), elevation), 1)
    generator = torch.Generator().manual_seed(seed)
    read: list[Tensor] = []
    true: list[Tensor] = []
    guessed: list[Tensor] = []
    means: list[Tensor] = []
    for fitted, measured in groups:
        if min(int(fitted.sum()), int(measured.sum())) < FEWEST:
            continue
        inputs = expanded(features[fitted].double(), features[measured].double())
        here = wanted[fitted]
        shuffled = [here[torch.randperm(len(here), generator=generator), :2] for _ in range(SHUFFLES)]
        predicted = ridge(*inputs, torch.cat((here, *shuffled), 1))
        read.append(predicted[:, :3])
        guessed.append(predicted[:, 3:].unflatten(1, (SHUFFLES, 2)))
        true.append(wanted[measured])
        means.append(wanted[measured].mean(0).expand(int(measured.sum()), 3))
    if not read:
        raise QuatcapsError(
            f"{images.name} has too few images of a toy to read its azimuth from them: give more images"
        )
    found, by_chance, truth, mean = (torch.cat(each) for each in (read, guessed, true, means))
    return Probe(
        azimuth_r2=explained(found[:, :2], truth[:, :2], mean[:, :2]),
        azimuth_degrees=turn_between(found, truth).median().item(),
        elevation_r2=explained(found[:, 2:], truth[:, 2:], mean[:, 2:]),
        elevation_degrees=(found[:, 2] - truth[:, 2]).abs().median().item(),
        chance_r2=sum(explained(each, truth[:, :2], mean[:, :2]) for each in by_chance.unbind(1)) / SHUFFLES,
        chance_degrees=sum(turn_between(each, truth).median().item() for each in by_chance.unbind(1)) / SHUFFLES,
        images=len(truth),
    )


def explained(found: Tensor, true: Tensor, mean: Tensor) -> float:
    """R², about the mean of each group; 0 where there is nothing to explain."""
    total = (true - mean).square().sum().item()
    return 1 - (true - found).square().sum().item() / total if total else 0.0


def turn_between(found: Tensor, true: Tensor) -> Tensor:
    """(N,) degrees between azimuths given as (sine, cosine)."""
    apart = torch.atan2(found[:, 0], found[:, 1]) - torch.atan2(true[:, 0], true[:, 1])
    return torch.remainder(apart + math.pi, 2 * math.pi).sub(math.pi).abs().rad2deg()


def ridge(fitted: Tensor, measured: Tensor, targets: Tensor) -> Tensor:
    """What a ridge regression of targets (n, T) on features (n, F) predicts for others (m, F); each target has the
    strength with the least error of generalised cross-validation."""
    mean, goal = fitted.mean(0), targets.mean(0)
    u, s, vh = torch.linalg.svd(fitted - mean, full_matrices=False)
    rotated, projected = u.T @ (targets - goal), (measured - mean) @ vh.T
    rest = (targets - goal).square().sum(0) - rotated.square().sum(0)
    scale = s.square().mean().clamp(min=torch.finfo(s.dtype).tiny)
    best = torch.full((targets.shape[1],), math.inf, dtype=targets.dtype)
    chosen = torch.zeros_like(measured[:, :1]) + goal
    for strength in STRENGTHS:
        shrunk = s.square() / (s.square() + strength * scale)
        left = ((1 - shrunk)[:, None] * rotated).square().sum(0) + rest
        score = left / (len(fitted) - 1 - shrunk.sum()).clamp(min=1e-3).square()
        weights = shrunk / s.clamp(min=torch.finfo(s.dtype).tiny)
        predicted = projected @ (weights[:, None] * rotated) + goal
        better = score < best
        best, chosen = torch.where(better, score, best), torch.where(better, predicted, chosen)
    return chosen


def expanded(fitted: Tensor, measured: Tensor) -> tuple[Tensor, Tensor]:
    """Both standardised by the first; few numbers with their products."""
    mean, deviation = fitted.mean(0), fitted.std(0)
    deviation = torch.where(deviation > 1e-9 * deviation.max().clamp(min=1e-300), deviation, torch.inf)
    one, other = (fitted - mean) / deviation, (measured - mean) / deviation
    other = other.clamp(one.amin(0), one.amax(0))  # a product of numbers beyond those fitted may be anything
    count = one.shape[1]
    most = min(MOST_PRODUCTS, len(fitted) // IMAGES_PER_PRODUCT)
    degree = max((d for d in (1, 2, 3) if math.comb(count + d, d) - 1 <= most), default=1)
    return products(one, degree), products(other, degree)


def products(values: Tensor, degree: int) -> Tensor:
    """(N, F) → all products of up to `degree` of the numbers."""
    terms, found = [(values[:, k], k) for k in range(values.shape[1])], [values]
    for _ in range(1, degree):
        terms = [(term * values[:, k], k) for term, last in terms for k in range(last, values.shape[1])]
        found.append(torch.stack([term for term, _ in terms], 1))
    return torch.cat(found, 1)

"""Does a pose turn when its toy turns? The rotation that a turn of the toy makes of its poses, fitted on some toys and
measured on others, and whether small turns add up to large ones.

A toy at elevation e and azimuth a is seen in the orientation q_y(e) q_z(−a) c, with c whatever is the toy's own: a turn
by Δ multiplies it from the left by q_y(e) q_z(−Δ) q_y(e)*, the same for all toys and azimuths at one elevation. So a
rotation is fitted at each elevation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from quatcaps.data.imageset import VIEW, ImageSet
from quatcaps.data.viewpoints import views_of
from quatcaps.errors import QuatcapsError
from quatcaps.inspection.actions import Action

CIRCLE = 360
FEWEST_PAIRS = 8
"""Of images, at an elevation: with fewer no rotation is fitted."""


class Pairs(NamedTuple):
    """Images of one toy, elevation, lighting and view, a turn apart; indices into the images, (P,) each."""

    before: Tensor
    after: Tensor
    elevations: Tensor
    toys: Tensor


def pairs_of(images: ImageSet, turn: int) -> Pairs:
    """All pairs of images that a turn by so many degrees of azimuth takes into each other."""
    toys = views_of(images).toys
    fields = [toys, *(images.info[name] for name in ("elevation", "lighting", VIEW) if name in images.info)]
    rest = torch.zeros_like(toys)
    for column in fields:
        rest = rest * (int(column.max()) + 1) + column
    slots = CIRCLE // 10
    azimuth = images.info["azimuth"] % slots
    keys = rest * slots + azimuth
    wanted = rest * slots + (azimuth + turn // 10) % slots
    order = keys.argsort(stable=True)
    found = torch.searchsorted(keys[order], wanted).clamp(max=len(keys) - 1)
    there = keys[order[found]] == wanted
    before = torch.arange(len(keys))[there]
    return Pairs(before, order[found][there], images.info["elevation"][before], toys[before])


@dataclass(frozen=True)
class Transfer:
    """How well the rotation of a turn by `turn` degrees, fitted on some toys, takes poses of other toys along: mean
    angles in degrees. `moved`: between a pose before and after; `shuffled`: as `error`, with pairs of any two images of
    a toy at an elevation, so that poses which stay where they are gain nothing by it."""

    turn: int
    pairs: int
    error: float
    shuffled: float
    moved: float

    @property
    def ratio(self) -> float:
        """1: no better than chance."""
        return self.error / self.shuffled if self.shuffled else 1.0


def transfer(images: ImageSet, poses: Tensor, action: Action, turn: int = 40, seed: int = 0) -> Transfer:
    """Fits on half of the toys of each class and measures on the other half, then the other way round.

    poses (N, D): of each image's true class, or any other D numbers that `action` turns.
    """
    poses = poses.double()
    pairs = pairs_of(images, turn)
    halves = half_of(images)
    generator = torch.Generator().manual_seed(seed)
    errors: list[Tensor] = []
    by_chance: list[Tensor] = []
    moved: list[Tensor] = []
    for elevation in pairs.elevations.unique():
        here = pairs.elevations == elevation
        before, after = pairs.before[here], pairs.after[here]
        for fitted in (halves[before], ~halves[before]):
            if min(int(fitted.sum()), int((~fitted).sum())) < FEWEST_PAIRS:
                continue
            start, end = poses[before], poses[after]
            shuffled = end[within_toys(pairs.toys[here], generator)]
            for target, found in ((end, errors), (shuffled, by_chance)):
                rotation = action.fit(start[fitted], target[fitted])
                found.append(action.degrees(action.apply(rotation, start[~fitted]), target[~fitted]))
            moved.append(action.degrees(start[~fitted], end[~fitted]))
    if not errors:
        raise QuatcapsError(
            f"{images.name} has too few pairs of images of one toy that are {turn}° of azimuth apart: give a dataset "
            "with turns of whole toys, such as smallnorb or toys, or more images of it"
        )
    error, chance, motion = (torch.cat(each).mean().item() for each in (errors, by_chance, moved))
    return Transfer(turn, sum(map(len, errors)), error, chance, motion)


@dataclass(frozen=True)
class Composition:
    """Whether fitted rotations compose as turns do; mean angles in degrees, over elevations and poses.

    `nine_steps`: between what R(20°) nine times and R(180°) make of a pose. `circle`: between a pose and what R(20°)
    eighteen times makes of it. `step`: how far R(20°) takes a pose; where poses do not move, circles close for nothing.
    `shuffled`: `nine_steps` with rotations fitted to pairs of any two images of a toy.
    """

    nine_steps: float
    circle: float
    step: float
    shuffled: float


def composition(images: ImageSet, poses: Tensor, action: Action, seed: int = 0) -> Composition:
    """Of rotations that are fitted to all toys, at each elevation."""
    poses = poses.double()
    short, long = pairs_of(images, 20), pairs_of(images, 180)
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, list[Tensor]] = {"nine": [], "circle": [], "step": [], "shuffled": []}
    for elevation in short.elevations.unique():
        some = poses[images.info["elevation"] == elevation]
        steps, halves = (torch.nonzero(pairs.elevations == elevation).flatten() for pairs in (short, long))
        if min(len(steps), len(halves)) < FEWEST_PAIRS:
            continue

        def rotation(pairs: Pairs, here: Tensor, shuffled: bool) -> Tensor:
            after = pairs.after[here]
            if shuffled:
                after = after[within_toys(pairs.toys[here], generator)]
            return action.fit(poses[pairs.before[here]], poses[after])

        for shuffled in (False, True):
            step, half = rotation(short, steps, shuffled), rotation(long, halves, shuffled)
            nine = repeated(action, step, 9, some)
            apart = action.degrees(action.apply(nine, some), action.apply(half, some))
            if shuffled:
                found["shuffled"].append(apart)
                continue
            circle = repeated(action, step, 18, some)
            found["nine"].append(apart)
            found["circle"].append(action.degrees(action.apply(circle, some), some))
            found["step"].append(action.degrees(action.apply(step, some), some))
    if not found["nine"]:
        raise QuatcapsError(f"{images.name} has too few pairs of images of one toy that are 20° and 180° apart")
    means = {name: torch.cat(each).mean().item() for name, each in found.items()}
    return Composition(means["nine"], means["circle"], means["step"], means["shuffled"])


def within_toys(toys: Tensor, generator: torch.Generator) -> Tensor:
    """A random order (P,) that puts in the place of each pair another of the same toy."""
    mixed = torch.randperm(len(toys), generator=generator)
    order = torch.empty_like(mixed)
    order[toys.argsort(stable=True)] = mixed[toys[mixed].argsort(stable=True)]
    return order


def repeated(action: Action, rotation: Tensor, times: int, like: Tensor) -> Tensor:
    total = action.identity(like)
    for _ in range(times):
        total = action.compose(rotation, total)
    return total


def half_of(images: ImageSet) -> Tensor:
    """(N,) bool: the images of every other toy of each class."""
    toys = views_of(images).toys
    half = torch.zeros(len(images), dtype=torch.bool)
    for label in images.labels.unique():
        here = images.labels == label
        half |= here & torch.isin(toys, toys[here].unique()[::2])
    return half

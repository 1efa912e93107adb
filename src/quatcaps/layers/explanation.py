"""Who voted for whom: what routing made of the votes of a few images, iteration by iteration."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.routing import Votes
from quatcaps.routing.moments import Moments, Parents


class Iteration(NamedTuple):
    """What one iteration of routing came to."""

    capsules: Capsules
    """The parents: poses (N, J, D, height, width), activations (N, J, height, width)."""
    assignments: Tensor
    """r_ij that made them, (N, rows, columns, I, J, height, width): which share of the child of type i, at that row and
    column of the window, the parent of type j takes. Over the parents that compete for a child, shares sum to 1."""


@dataclass(frozen=True)
class Scale:
    """Where the capsules of a grid stand on the image, along one direction: at `first` + `step` · index, in pixels."""

    first: float
    step: float

    def over(self, window: int, stride: int, padding: int) -> Scale:
        """That of the parents, which stand in the middle of their windows."""
        return Scale(self.first + self.step * ((window - 1) / 2 - padding), self.step * stride)


class Reach(NamedTuple):
    """Which children a parent of a layer sees: `rows` × `columns` of them, every `stride` of them a parent; the grid
    has `padding` rows and columns of children that are not there on each side."""

    rows: int
    columns: int
    stride: int
    padding: tuple[int, int]


@dataclass(frozen=True)
class ExplainedLayer:
    """One layer of capsules for N images; of class capsules, the grid is 1×1."""

    name: str
    capsules: Capsules
    places: tuple[Scale, Scale]  # of rows, of columns
    reach: Reach | None = None  # None: primary capsules, which no votes made
    iterations: tuple[Iteration, ...] = ()

    @property
    def grid(self) -> tuple[int, int]:
        height, width = self.capsules.activations.shape[-2:]
        return height, width

    @property
    def assignments(self) -> Tensor:
        """Those that made the capsules: of the last iteration."""
        return self.iterations[-1].assignments

    def place(self, row: int, column: int) -> tuple[float, float]:
        """The pixel, (row, column), in the middle of what a capsule sees."""
        down, across = self.places
        return down.first + down.step * row, across.first + across.step * column


class Recorded:
    """Votes that note by which parents they were last shared out."""

    def __init__(self, votes: Votes) -> None:
        self.votes, self.backend, self.inside = votes, votes.backend, votes.inside
        self.parents: Parents | None = None

    def uniform(self) -> Moments:
        self.parents = None
        return self.votes.uniform()

    def under(self, parents: Parents) -> Moments:
        self.parents = parents
        return self.votes.under(parents)


def iterations_of(votes: Votes, routing: nn.Module, rows: int, columns: int) -> Iterator[Iteration]:
    """Each iteration of a routing on the same votes; of one whose iterations cannot be counted, the last alone."""
    for stopped in stopped_early(routing):
        recorded = Recorded(votes)
        capsules = stopped(recorded)
        shares = votes.assignments(recorded.parents)
        yield Iteration(capsules, shares.unflatten(1, (rows, columns, -1)))


def stopped_early(routing: nn.Module) -> Iterator[nn.Module]:
    """The routing after 1, 2, … and all of its iterations."""
    settings = getattr(routing, "settings", None)
    if is_dataclass(settings) and not isinstance(settings, type) and hasattr(settings, "iterations"):
        for count in range(1, settings.iterations):
            shorter = copy.copy(routing)
            shorter.settings = replace(settings, iterations=count)  # type: ignore[assignment]
            yield shorter
    yield routing


def on_a_grid(capsules: Capsules) -> Capsules:
    """Class capsules as a grid of 1×1."""
    if capsules.activations.ndim == 4:
        return capsules
    return Capsules(capsules.poses[..., None, None], capsules.activations[..., None, None])


def memory_needed(votes: int, dims: int, dtype: torch.dtype) -> int:
    """Bytes, about: the votes, their distances to the parents, and the shares."""
    return votes * (3 * dims + 4) * dtype.itemsize

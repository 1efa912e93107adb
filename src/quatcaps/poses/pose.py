"""The seam between poses and everything that routes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class PoseType:
    """A pose of `rows` × `columns` numbers and the module that learns its maps.

    `maps(offsets, children, parents)` builds a module whose call returns the matrices A as a tensor of shape
    (offsets, children, parents, columns, columns), or quaternions (offsets, children, parents, 4) that multiply a
    pose from the right. `offsets` counts the places of a child in a parent's window: kernel height × kernel width, or
    1 where all places share one map. Where the maps are `fused`, the call takes `by`, the name of the backend that
    routes, for the same matrices by a kernel or in C. `bounded` promises that no number of a matrix exceeds 1, as in a
    rotation; the numbers of others are bounded by `Votes`.
    """

    name: str
    rows: int
    columns: int
    maps: Callable[[int, int, int], nn.Module]
    fused: bool = False
    bounded: bool = False

    @property
    def dims(self) -> int:
        """How many numbers a pose holds."""
        return self.rows * self.columns

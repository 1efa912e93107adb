"""Matrix poses: 4×4 numbers, turned into votes by free 4×4 weights (Hinton et al. 2018).

`matrix` has maps that begin near the identity, `matrix-xavier` maps that begin small and unlike each other, as in the
public code of routing via variational Bayes: near the identity all parents see the same votes at first, of the size of
its prior, and it learns slowly. `matrix-drawn` begins as the matrix capsules in the QCN authors' public code,
`matrix-normal` as those in the public code of Gritzman 2019.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatcaps.poses.pose import PoseType

SIDE = 4


class MatrixMaps(nn.Module):
    """One free 4×4 matrix per (offset, child, parent): 16 numbers a map."""

    def __init__(self, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(offsets, children, parents, SIDE, SIDE))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The identity plus noise of deviation 0.1: a vote begins near the child's own pose."""
        drawn = nn.init.normal_(as_drawn(self.weight), std=0.1)
        with torch.no_grad():
            self.weight.copy_(drawn + torch.eye(SIDE, dtype=drawn.dtype, device=drawn.device))

    def forward(self) -> Float[Tensor, "offsets children parents 4 4"]:
        return self.weight


class XavierMatrixMaps(MatrixMaps):
    """The same maps with another beginning."""

    def reset_parameters(self) -> None:
        """Xavier-uniform over all numbers of the poses that a window holds and of the parents it votes for."""
        offsets, children, parents = self.weight.shape[:3]
        deviation = math.sqrt(2 / (offsets * SIDE * SIDE * (children + parents)))
        drawn = nn.init.uniform_(as_drawn(self.weight), -math.sqrt(3) * deviation, math.sqrt(3) * deviation)
        with torch.no_grad():
            self.weight.copy_(drawn)


class DrawnMatrixMaps(MatrixMaps):
    """The same maps with another beginning."""

    def reset_parameters(self) -> None:
        """Uniform from 0 to 1; where all places share one map, as in class capsules, normal with deviation 1."""
        drawn = as_drawn(self.weight)
        drawn = nn.init.normal_(drawn) if len(self.weight) == 1 else nn.init.uniform_(drawn)
        with torch.no_grad():
            self.weight.copy_(drawn)


class NormalMatrixMaps(MatrixMaps):
    """The same maps with another beginning."""

    def reset_parameters(self) -> None:
        """Normal with deviation 1, cut at two deviations."""
        drawn = nn.init.trunc_normal_(as_drawn(self.weight))
        with torch.no_grad():
            self.weight.copy_(drawn)


def as_drawn(weight: Tensor) -> Tensor:
    """An empty tensor of that shape, laid out by (column of the pose, parent, column of the vote): the order in which a
    seed's numbers have filled maps from the start."""
    offsets, children, parents, *_ = weight.shape
    return weight.new_empty(offsets, children, SIDE, parents, SIDE).permute(0, 1, 3, 4, 2)


MATRIX = PoseType(name="matrix", rows=SIDE, columns=SIDE, maps=MatrixMaps)
MATRIX_XAVIER = PoseType(name="matrix-xavier", rows=SIDE, columns=SIDE, maps=XavierMatrixMaps)
MATRIX_DRAWN = PoseType(name="matrix-drawn", rows=SIDE, columns=SIDE, maps=DrawnMatrixMaps)
MATRIX_NORMAL = PoseType(name="matrix-normal", rows=SIDE, columns=SIDE, maps=NormalMatrixMaps)

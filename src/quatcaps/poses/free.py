"""Poses of 3 numbers, turned into votes by free 3×3 weights: the quaternion pose without its constraint.

What it is worth that a map is a rotation is measured against it.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatcaps import quaternion
from quatcaps.poses.pose import PoseType


class FreeMaps(nn.Module):
    """One free 3×3 matrix per (offset, child, parent): 9 numbers a map."""

    def __init__(self, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(offsets, children, parents, 3, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The rotations that `RotorMaps` begins with: the two differ in what they can learn alone."""
        with torch.no_grad():
            angle = self.weight.new_empty(self.weight.shape[:3]).uniform_(-math.pi, math.pi)
            axis = self.weight.new_empty(*self.weight.shape[:3], 3).uniform_(-1.0, 1.0)
            self.weight.copy_(quaternion.rotor_to_matrix(quaternion.rotor(angle, axis)))

    def forward(self) -> Float[Tensor, "offsets children parents 3 3"]:
        return self.weight


FREE = PoseType(name="free", rows=1, columns=3, maps=FreeMaps)

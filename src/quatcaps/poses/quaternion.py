"""Quaternion poses: pure quaternions, 3 numbers, turned into votes by learned rotors."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatcaps import quaternion
from quatcaps.poses import fused, native
from quatcaps.poses.pose import PoseType


class RotorMaps(nn.Module):
    """One rotor per (offset, child, parent), unit by construction, as 3×3 rotation matrices.

    Equation 12: w = (cos θ, sin θ · n), n the axis divided by its norm. The vote w u w* (equation 11) is u
    rotated about n by 2θ. Angle and axis are both learned: 4 numbers a rotor.
    """

    def __init__(self, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.angle = nn.Parameter(torch.empty(offsets, children, parents))
        self.axis = nn.Parameter(torch.empty(offsets, children, parents, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Angles from U(−π, π), axis components from U(−1, 1)."""
        nn.init.uniform_(self.angle, -math.pi, math.pi)
        nn.init.uniform_(self.axis, -1.0, 1.0)

    def forward(self, by: str = "reference") -> Float[Tensor, "offsets children parents 3 3"]:
        if by == "triton" and self.angle.dtype == torch.float32:
            return fused.rotor_matrix(self.angle, self.axis, False)
        if by == "native" and self.angle.dtype in (torch.float32, torch.float64):
            return native.rotor_matrix(self.angle, self.axis, False)
        return quaternion.rotor_to_matrix(quaternion.rotor(self.angle, self.axis))


QUATERNION = PoseType(name="quaternion", rows=1, columns=3, maps=RotorMaps, fused=True, bounded=True)

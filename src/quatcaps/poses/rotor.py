"""Rotor poses: quaternions, 4 numbers, scalar first, turned into votes by learned rotors from the right."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatcaps import quaternion
from quatcaps.poses import fused, native
from quatcaps.poses.pose import PoseType


class RightRotorMaps(nn.Module):
    """One rotor per (offset, child, parent), to multiply from the right.

    The vote of a pose q is the product q w, with w = (cos θ, sin θ · n) as in `RotorMaps` (equation 12). Poses that are
    all turned by Q from the left have votes that are turned by Q: (Q q) w = Q (q w). Angle and axis are both learned: 4
    numbers a rotor.
    """

    def __init__(self, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.angle = nn.Parameter(torch.empty(offsets, children, parents))
        self.axis = nn.Parameter(torch.empty(offsets, children, parents, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Angles from U(−π, π), axis components from U(−1, 1), as those of `RotorMaps`."""
        nn.init.uniform_(self.angle, -math.pi, math.pi)
        nn.init.uniform_(self.axis, -1.0, 1.0)

    def forward(self, by: str = "reference") -> Float[Tensor, "offsets children parents 4"]:
        if by == "triton" and self.angle.dtype == torch.float32:
            return fused.rotor_matrix(self.angle, self.axis, True)
        if by == "native" and self.angle.dtype in (torch.float32, torch.float64):
            return native.rotor_matrix(self.angle, self.axis, True)
        return quaternion.rotor(self.angle, self.axis)


ROTOR = PoseType(name="rotor", rows=1, columns=4, maps=RightRotorMaps, fused=True, bounded=True)

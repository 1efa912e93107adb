"""Quaternion poses whose rotors share one fixed axis: only angles are learned, as in earlier quaternion networks.

The axis is (1, 1, 1)/√3, the grey axis of Zhu et al. 2018. What the paper's learned axes are worth is measured against
it.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatcaps.poses.learned import maps_of
from quatcaps.poses.pose import PoseType


class FixedAxisMaps(nn.Module):
    """One rotor per (offset, child, parent) about (1, 1, 1)/√3, by 2θ: 1 number a rotor."""

    axis: Tensor

    def __init__(self, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.angle = nn.Parameter(torch.empty(offsets, children, parents))
        self.register_buffer("axis", torch.ones(3), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Angles from U(−π, π)."""
        nn.init.uniform_(self.angle, -math.pi, math.pi)

    def forward(self, by: str = "reference") -> Float[Tensor, "offsets children parents 3 3"]:
        axis = self.axis.to(self.angle.dtype).expand(*self.angle.shape, 3)
        return maps_of(self.angle, axis, by, right=False)


FIXED_AXIS = PoseType(name="fixed-axis", rows=1, columns=3, maps=FixedAxisMaps, fused=True, bounded=True)

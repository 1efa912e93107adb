"""Rotors of learned angles and axes, by formula or by a fast backend's kernel."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from quatcaps import quaternion
from quatcaps.poses import fused, native


class LearnedRotors(nn.Module):
    """The angle θ and the axis of one rotor per (offset, child, parent); equation 12 divides the axis by its norm."""

    def __init__(self, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.angle = nn.Parameter(torch.empty(offsets, children, parents))
        self.axis = nn.Parameter(torch.empty(offsets, children, parents, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Angles from U(−π, π), axis components from U(−1, 1)."""
        nn.init.uniform_(self.angle, -math.pi, math.pi)
        nn.init.uniform_(self.axis, -1.0, 1.0)


def maps_of(angle: Tensor, axis: Tensor, by: str, *, right: bool) -> Tensor:
    """Rotations v → w v w*, (…, 3, 3), or, if they are to multiply from the `right`, rotors w, (…, 4). by: the backend
    that routes."""
    if by == "triton" and angle.dtype == torch.float32:
        return cast(Tensor, fused.rotor_matrix(angle, axis, right))
    if by == "native" and angle.dtype in (torch.float32, torch.float64):
        return cast(Tensor, native.rotor_matrix(angle, axis, right))
    rotor = quaternion.rotor(angle, axis)
    return rotor if right else quaternion.rotor_to_matrix(rotor)

"""Quaternion poses: pure quaternions, 3 numbers, turned into votes by learned rotors."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from quatcaps.poses.learned import LearnedRotors, maps_of
from quatcaps.poses.pose import PoseType


class RotorMaps(LearnedRotors):
    """One rotor per (offset, child, parent), unit by construction, as 3×3 rotation matrices.

    Equation 12: w = (cos θ, sin θ · n), n the axis divided by its norm. The vote w u w* (equation 11) is u
    rotated about n by 2θ. Angle and axis are both learned: 4 numbers a rotor.
    """

    def forward(self, by: str = "reference") -> Float[Tensor, "offsets children parents 3 3"]:
        return maps_of(self.angle, self.axis, by, right=False)


QUATERNION = PoseType(name="quaternion", rows=1, columns=3, maps=RotorMaps, fused=True, bounded=True)

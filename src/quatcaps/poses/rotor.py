"""Rotor poses: quaternions, 4 numbers, scalar first, turned into votes by learned rotors from the right."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from quatcaps.poses.learned import LearnedRotors, maps_of
from quatcaps.poses.pose import PoseType


class RightRotorMaps(LearnedRotors):
    """One rotor per (offset, child, parent), to multiply from the right.

    The vote of a pose q is the product q w, with w = (cos θ, sin θ · n) as in `RotorMaps` (equation 12). Poses that are
    all turned by Q from the left have votes that are turned by Q: (Q q) w = Q (q w). Angle and axis are both learned: 4
    numbers a rotor.
    """

    def forward(self, by: str = "reference") -> Float[Tensor, "offsets children parents 4"]:
        return maps_of(self.angle, self.axis, by, right=True)


ROTOR = PoseType(name="rotor", rows=1, columns=4, maps=RightRotorMaps, fused=True, bounded=True)

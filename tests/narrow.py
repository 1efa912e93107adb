"""A network that trains in moments."""

from __future__ import annotations

NARROW = {
    "primary": 2,
    "pose_blocks": ((4, 2), (4, 2)),
    "activation_blocks": ((4, 4),),
    "joint_blocks": ((4, 2), (4, 2)),
    "capsules": ((3, 3, 2), (3, 3, 1)),
}
"""Settings of `qcn-small`."""

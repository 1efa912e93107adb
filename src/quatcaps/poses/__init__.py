"""What a pose is, and the learned maps that turn a child's pose into a vote for a parent's.

A pose is rows × columns numbers, flattened row by row into `dims`; a map is a columns × columns matrix A, and
the vote of child i for parent j is v_ij = A_ij u_i, applied to each row. A new kind of pose is one new file
with a `PoseType`, and one entry here.
"""

from quatcaps.errors import unknown_name
from quatcaps.poses.fixed_axis import FIXED_AXIS
from quatcaps.poses.free import FREE
from quatcaps.poses.matrix import MATRIX, MATRIX_XAVIER
from quatcaps.poses.quaternion import QUATERNION
from quatcaps.poses.type import PoseType

POSES: dict[str, PoseType] = {pose.name: pose for pose in (QUATERNION, FIXED_AXIS, FREE, MATRIX, MATRIX_XAVIER)}


def pose_type(pose: str | PoseType) -> PoseType:
    """The pose type of that name; a `PoseType` of one's own passes through."""
    if isinstance(pose, PoseType):
        return pose
    if pose not in POSES:
        raise unknown_name("pose", pose, POSES)
    return POSES[pose]


__all__ = ["POSES", "PoseType", "pose_type"]

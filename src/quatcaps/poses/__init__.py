"""What a pose is, and the learned maps that turn a child's pose into a vote for a parent's.

A pose is rows × columns numbers, flattened row by row into `dims`; a map is a columns × columns matrix A, and the vote
of child i for parent j is v_ij = A_ij u_i, applied to each row. A new kind of pose is one new file with a `PoseType`,
and one entry here, or in another package `register_pose`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quatcaps import settings
from quatcaps.errors import QuatcapsError
from quatcaps.poses.fixed_axis import FIXED_AXIS
from quatcaps.poses.free import FREE
from quatcaps.poses.matrix import MATRIX, MATRIX_DRAWN, MATRIX_NORMAL, MATRIX_XAVIER
from quatcaps.poses.pose import PoseType
from quatcaps.poses.quaternion import QUATERNION
from quatcaps.poses.rotor import ROTOR
from quatcaps.registry import Registry

MATRICES = (MATRIX, MATRIX_XAVIER, MATRIX_DRAWN, MATRIX_NORMAL)
POSES: Registry[PoseType] = Registry(
    "pose", {pose.name: pose for pose in (QUATERNION, FIXED_AXIS, FREE, *MATRICES, ROTOR)}
)
"""The poses by name."""


def register_pose(pose: PoseType) -> None:
    """Makes a pose known by its name, for `build`, files and the command line."""
    POSES.register(pose.name, pose)


def list_poses() -> list[str]:
    """The names that `pose` can have."""
    return list(POSES)


def pose_type(pose: str | PoseType) -> PoseType:
    """The pose type of that name; a `PoseType` of one's own passes through."""
    return pose if isinstance(pose, PoseType) else POSES.find(pose)


class PosePart:
    """A field that holds a pose, by its name or as an object."""

    def read(self, value: Any, changes: Mapping[str, Any], current: Any, what: str) -> str | PoseType:
        if changes:
            raise QuatcapsError(f"{what}{next(iter(changes))}: a pose has no settings; give a name or an object")
        if not isinstance(value, str | PoseType):
            raise QuatcapsError(f"{what[:-1]} = {value!r}: give a name ({', '.join(POSES)}) or a PoseType")
        pose_type(value)
        return value

    def fields(self, value: Any) -> tuple[str, ...]:
        return ()

    def write(self, value: str | PoseType) -> str:
        if isinstance(value, str):
            return value
        if POSES.get(value.name) != value:
            raise QuatcapsError(
                f"the pose {value.name!r} is not registered, and a file can hold its name alone: make it known with "
                "quatcaps.register_pose"
            )
        return value.name


def pose_setting(default: str | PoseType) -> Any:
    """A field of a network's settings that holds a pose."""
    return settings.part(default, PosePart())


__all__ = ["POSES", "PoseType", "list_poses", "pose_setting", "pose_type", "register_pose"]

"""How a rotation acts on a pose: from the left, on a rotor as Q q, on a direction or a matrix as R M."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from quatcaps import quaternion
from quatcaps.errors import QuatcapsError
from quatcaps.poses import PoseType
from quatcaps.training.poses import CHANCE


@runtime_checkable
class Action(Protocol):
    """Rotations of poses (N, D) from the left. `name` says what a pose is."""

    @property
    def name(self) -> str: ...

    @property
    def chance(self) -> float:
        """The median angle, in degrees, between two poses drawn at random."""
        ...

    def fit(self, before: Tensor, after: Tensor) -> Tensor:
        """The rotation that takes the poses `before` nearest to those `after`, in the sense of least squares."""
        ...

    def apply(self, rotation: Tensor, poses: Tensor) -> Tensor:
        """The poses, turned."""
        ...

    def degrees(self, one: Tensor, other: Tensor) -> Tensor:
        """(N,) the angle between poses."""
        ...

    def identity(self, like: Tensor) -> Tensor: ...

    def compose(self, one: Tensor, other: Tensor) -> Tensor:
        """First `other`, then `one`."""
        ...


class Rotors:
    """Unit quaternions (N, 4), q and −q the same; a rotation is one too."""

    name = "orientation"
    chance = CHANCE
    """The solution of θ − sin θ = π/2: angles of random rotations have the density (1 − cos θ)/π."""

    def fit(self, before: Tensor, after: Tensor) -> Tensor:
        """The average of q′ q*: the eigenvector of the largest eigenvalue of Σ (q′ q*)(q′ q*)ᵀ."""
        turns = quaternion.product(quaternion.normalise(after), quaternion.conjugate(quaternion.normalise(before)))
        return torch.linalg.eigh(turns.T @ turns).eigenvectors[:, -1]

    def apply(self, rotation: Tensor, poses: Tensor) -> Tensor:
        return quaternion.product(rotation.expand_as(poses), poses)

    def degrees(self, one: Tensor, other: Tensor) -> Tensor:
        return quaternion.geodesic_distance(quaternion.normalise(one), quaternion.normalise(other)).rad2deg()

    def identity(self, like: Tensor) -> Tensor:
        return like.new_tensor([1.0, 0.0, 0.0, 0.0])

    def compose(self, one: Tensor, other: Tensor) -> Tensor:
        return quaternion.product(one, other)


class Frames:
    """Poses of `rows` × `columns` numbers (N, rows · columns), their lengths left aside; a rotation is an orthogonal
    matrix of `rows`."""

    chance = 90.0

    def __init__(self, rows: int, columns: int, name: str) -> None:
        self.rows, self.columns, self.name = rows, columns, name

    def fit(self, before: Tensor, after: Tensor) -> Tensor:
        """Kabsch: U diag(1, …, 1, ±1) Vᵀ of Σ M′ Mᵀ = U S Vᵀ."""
        one, other = (self._unit(poses).unflatten(1, (self.rows, self.columns)) for poses in (before, after))
        u, _, vh = torch.linalg.svd(torch.einsum("nrc,nsc->rs", other, one))
        signs = torch.ones(self.rows, dtype=u.dtype)
        signs[-1] = torch.sign(torch.linalg.det(u @ vh))
        return (u * signs) @ vh

    def apply(self, rotation: Tensor, poses: Tensor) -> Tensor:
        return torch.einsum("rs,nsc->nrc", rotation, poses.unflatten(1, (self.rows, self.columns))).flatten(1)

    def degrees(self, one: Tensor, other: Tensor) -> Tensor:
        return (self._unit(one) * self._unit(other)).sum(1).clamp(-1, 1).acos().rad2deg()

    def identity(self, like: Tensor) -> Tensor:
        return torch.eye(self.rows, dtype=like.dtype)

    def compose(self, one: Tensor, other: Tensor) -> Tensor:
        return one @ other

    def _unit(self, poses: Tensor) -> Tensor:
        return quaternion.safe_unit(poses, 1)


def action_on(pose: PoseType) -> Action:
    """How a rotation acts on poses of a type."""
    if (pose.rows, pose.columns) == (1, 4):
        return Rotors()
    if (pose.rows, pose.columns) == (1, 3):
        return Frames(3, 1, "direction")
    if pose.rows > 1:
        return Frames(pose.rows, pose.columns, "matrix")
    raise QuatcapsError(f"poses of 1×{pose.columns} have no rotation that everyone means: nothing to inspect")

"""Convex solids and where straight lines enter them.

A solid is described by affine *features* of a point, the rows of a matrix: feature_k(p) = rows[k, :3] · p + rows[k, 3].
Along a line p(t) = o + t d a feature is `base + t * rate` with base = feature(o) and rate = rows[:, :3] · d, and each
solid needs only these numbers. They may have any shapes that broadcast: cameras have one origin and many directions,
lights one direction and many origins, and whatever is shared is computed once.

There is no branch and no `where` in `entry`: on CPUs they cost ten times an addition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import torch
from torch import Tensor

MISS = 1.0e6
"""A line that misses a solid enters it beyond this distance."""

_PENALTY = 1.0e20
_TINY = 1.0e-9
_SMALLEST = 1.0e-20  # lost in any speed but zero, which it keeps from dividing


@dataclass(frozen=True, eq=False)
class Solid(ABC):
    """A convex solid: affine features, and points whose convex hull just about contains it."""

    rows: Tensor  # (features, 4) float64
    outline: Tensor  # (points, 3) float64

    @abstractmethod
    def entry(self, base: Sequence[Tensor], rate: Sequence[Tensor]) -> Tensor:
        """The distance t at which each line enters, over the whole line (t may be negative); MISS or more if never.

        base, rate: one tensor per feature, of shapes that broadcast; the result has the common shape.
        """

    @abstractmethod
    def gradient(self, features: Tensor) -> Tensor:
        """For points on the surface, what the outward normal is in features: (features, n) → (features, n)."""

    @abstractmethod
    def excess(self, features: Tensor) -> Tensor:
        """Negative inside, zero on the surface, positive outside: (features, n) → (n,)."""

    def features(self, points: Tensor) -> Tensor:
        """(3, n) points → (features, n), in the points' dtype."""
        rows = self.rows.to(points.dtype)
        return rows[:, 0:1] * points[0] + rows[:, 1:2] * points[1] + rows[:, 2:3] * points[2] + rows[:, 3:4]

    def normals(self, points: Tensor) -> Tensor:
        """Unit outward normals (3, n) at points (3, n) on the surface."""
        gradient = self.gradient(self.features(points))
        rows = self.rows.to(points.dtype)
        normal = gradient[0] * rows[0, :3, None]
        for k in range(1, len(rows)):
            normal = normal + gradient[k] * rows[k, :3, None]
        x, y, z = normal
        return normal / (x * x + y * y + z * z).sqrt().clamp(min=_TINY)

    @cached_property
    def sphere(self) -> tuple[Tensor, float]:
        """The centre (3,) float64 and radius of a sphere around the solid."""
        center = self.outline.mean(0)
        return center, float((self.outline - center).norm(dim=1).max())

    def moved(self, shift: Tensor, scale: float) -> Solid:
        """The solid after p → scale · (p + shift); shift (3,) float64."""
        linear = self.rows[:, :3] / scale
        constant = self.rows[:, 3] - (self.rows[:, :3] * shift).sum(1)
        return replace(self, rows=torch.cat((linear, constant[:, None]), dim=1), outline=(self.outline + shift) * scale)


def _missed(entry: Tensor, lack: Tensor) -> Tensor:
    """`entry`, sent beyond MISS where `lack` is positive."""
    return entry + (lack.clamp(min=0.0) * _PENALTY)


def _within(nears: list[Tensor], fars: list[Tensor]) -> Tensor:
    """Where a line enters the intersection of intervals that run from each of `nears` to its `fars`."""
    near, far = reduce(torch.maximum, nears), reduce(torch.minimum, fars)
    return _missed(near, near - far)


@dataclass(frozen=True, eq=False)
class Ellipsoid(Solid):
    """Features x, y, z with x² + y² + z² ≤ 1."""

    def entry(self, base: Sequence[Tensor], rate: Sequence[Tensor]) -> Tensor:
        a = rate[0].square() + rate[1].square() + rate[2].square()
        half_b = base[0] * rate[0] + base[1] * rate[1] + base[2] * rate[2]
        c = base[0].square() + base[1].square() + base[2].square() - 1.0
        discriminant = half_b.square() - a * c
        root = discriminant.clamp(min=0.0).sqrt()
        return _missed((half_b + root) / -a, -discriminant)

    def gradient(self, features: Tensor) -> Tensor:
        return features

    def excess(self, features: Tensor) -> Tensor:
        return features.square().sum(0) - 1.0


@dataclass(frozen=True, eq=False)
class Cone(Solid):
    """Features x, y, z, r with x² + y² ≤ r² and |z| ≤ 1; r > 0 is linear in z, or constant: a cylinder."""

    straight: bool

    def entry(self, base: Sequence[Tensor], rate: Sequence[Tensor]) -> Tensor:
        a = rate[0].square() + rate[1].square()
        half_b = base[0] * rate[0] + base[1] * rate[1]
        c = base[0].square() + base[1].square()
        if self.straight:
            a = a.clamp(min=_TINY)
            c = c - base[3].square()
        else:
            a = a - rate[3].square()
            a = torch.copysign(a.abs().clamp(min=_TINY), a)
            half_b = half_b - base[3] * rate[3]
            c = c - base[3].square()
        discriminant = half_b.square() - a * c
        root = discriminant.clamp(min=0.0).sqrt()
        inverse = a.reciprocal()
        near, far = (-half_b - root) * inverse, (root - half_b) * inverse
        if not self.straight:
            # A line steeper than the cone (a < 0) is inside from the one root on, or up to the other one.
            steep = (inverse * -_PENALTY).clamp(0.0, 1.0) * MISS
            widening = (rate[3] * _PENALTY).clamp(-1.0, 1.0)
            near = near - steep * (1.0 - widening)
            far = far + steep * (1.0 + widening)
        slope = (rate[2] + _SMALLEST).reciprocal()
        middle, reach = -base[2] * slope, slope.abs()
        near, far = torch.maximum(near, middle - reach), torch.minimum(far, middle + reach)
        return _missed(_missed(near, near - far), -discriminant)

    def gradient(self, features: Tensor) -> Tensor:
        x, y, z, r = features
        on_cap = (z.abs() - 1.0 >= (x.square() + y.square()).sqrt() / r - 1.0).to(z.dtype)
        on_side = 1.0 - on_cap
        return torch.stack((x * on_side, y * on_side, z.sign() * on_cap, -r * on_side))

    def excess(self, features: Tensor) -> Tensor:
        x, y, z, r = features
        return torch.maximum(x.square() + y.square() - r.square() * r.sign(), z.abs() - 1.0)


@dataclass(frozen=True, eq=False)
class Box(Solid):
    """Features x, y, z, each between -1 and 1."""

    def entry(self, base: Sequence[Tensor], rate: Sequence[Tensor]) -> Tensor:
        nears, fars = [], []
        for start, speed in zip(base, rate, strict=True):
            slope = (speed + _SMALLEST).reciprocal()
            middle, reach = -start * slope, slope.abs()
            nears.append(middle - reach)
            fars.append(middle + reach)
        return _within(nears, fars)

    def gradient(self, features: Tensor) -> Tensor:
        size = features.abs()
        return features.sign() * (size >= size.amax(0)).to(features.dtype)

    def excess(self, features: Tensor) -> Tensor:
        return features.abs().amax(0) - 1.0


@dataclass(frozen=True, eq=False)
class Hull(Solid):
    """Signed distances to planes, all ≤ 0 inside: any convex solid with flat faces."""

    def entry(self, base: Sequence[Tensor], rate: Sequence[Tensor]) -> Tensor:
        nears, fars = [], []
        for start, speed in zip(base, rate, strict=True):
            slope = (speed + _SMALLEST).reciprocal()
            crossing = -start * slope
            # A plane crossed against its normal bounds the entry, one crossed along it the exit.
            nears.append(crossing - slope.clamp(min=0.0) * _PENALTY)
            fars.append(crossing - slope.clamp(max=0.0) * _PENALTY)
        return _within(nears, fars)

    def gradient(self, features: Tensor) -> Tensor:
        return (features >= features.amax(0)).to(features.dtype)

    def excess(self, features: Tensor) -> Tensor:
        return features.amax(0)

"""The parts that toys are built of, in the toy's own axes: x forward, y to its left, z up, the ground at z = 0."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quatcaps.data.toys.shapes import Box, Cone, Ellipsoid, Hull, Solid

Vector = tuple[float, float, float]
Rectangle = tuple[float, float, float, float]

SIDES = (1.0, -1.0)
"""Left and right: what parts that come in pairs multiply y with."""


def turned(pitch: float = 0.0, yaw: float = 0.0, roll: float = 0.0) -> Tensor:
    """A frame (3, 3) whose columns are the part's axes, turned by degrees.

    Positive pitch raises the nose, positive yaw turns it left, positive roll raises the left side.
    """
    p, y, r = (math.radians(angle) for angle in (-pitch, yaw, roll))
    about_x = [[1, 0, 0], [0, math.cos(r), -math.sin(r)], [0, math.sin(r), math.cos(r)]]
    about_y = [[math.cos(p), 0, math.sin(p)], [0, 1, 0], [-math.sin(p), 0, math.cos(p)]]
    about_z = [[math.cos(y), -math.sin(y), 0], [math.sin(y), math.cos(y), 0], [0, 0, 1]]
    matrices = [torch.tensor(matrix, dtype=torch.float64) for matrix in (about_z, about_y, about_x)]
    return matrices[0] @ matrices[1] @ matrices[2]


def _rows(linear: Tensor, center: Tensor) -> Tensor:
    """Features linear · (p - center) as rows (k, 4)."""
    return torch.cat((linear, -(linear @ center)[:, None]), dim=1)


def _vector(values: Vector) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _circle(count: int) -> Tensor:
    angles = torch.arange(count, dtype=torch.float64) * (2 * math.pi / count)
    return torch.stack((angles.cos(), angles.sin()), dim=1)


def _corners() -> Tensor:
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    return torch.cartesian_prod(signs, signs, signs)


def ball(center: Vector, radii: Vector, pitch: float = 0.0, yaw: float = 0.0, roll: float = 0.0) -> Solid:
    """An ellipsoid with the given radii along its own x, y and z."""
    frame, middle, size = turned(pitch, yaw, roll), _vector(center), _vector(radii)
    circle = _circle(12)
    zero = torch.zeros(12, dtype=torch.float64)
    rings = [torch.stack((circle[:, 0], circle[:, 1], zero), dim=1).roll(k, dims=1) for k in range(3)]
    surface = torch.cat((*rings, _corners() / math.sqrt(3.0)))
    return Ellipsoid(_rows(frame.T / size[:, None], middle), (surface * size) @ frame.T + middle)


def block(center: Vector, size: Vector, pitch: float = 0.0, yaw: float = 0.0, roll: float = 0.0) -> Solid:
    """A box with the given full lengths along its own x, y and z."""
    frame, middle, half = turned(pitch, yaw, roll), _vector(center), _vector(size) / 2
    return Box(_rows(frame.T / half[:, None], middle), (_corners() * half) @ frame.T + middle)


def rod(start: Vector, end: Vector, radius: float, end_radius: float | None = None, flatten: float = 1.0) -> Solid:
    """A cylinder or, with an `end_radius`, a capped cone; `flatten` scales it across its axis, front to back."""
    other = radius if end_radius is None else end_radius
    first, last = _vector(start), _vector(end)
    middle, axis = (first + last) / 2, last - first
    length = axis.norm()
    along = axis / length
    across = _vector((0.0, 1.0, 0.0)) if abs(float(along[1])) < 0.9 else _vector((0.0, 0.0, 1.0))
    across = across - along * (across @ along)
    across = across / across.norm()
    third = torch.linalg.cross(along, across)
    rows = _rows(torch.stack((across, third / flatten, along * 2 / length)), middle)
    width = rows[2] * (other - radius) / 2
    width[3] += (other + radius) / 2
    circle = _circle(12)
    rim = circle[:, :1] * across + circle[:, 1:] * third * flatten
    outline = torch.cat((first + rim * radius, last + rim * other))
    return Cone(torch.cat((rows, width[None])), outline, straight=other == radius)


def taper(origin: Vector, frame: Tensor, height: float, bottom: Rectangle, top: Rectangle) -> Solid:
    """The solid between two parallel rectangles (x0, x1, y0, y1), at z = 0 and z = height of a frame.

    `frame` (3, 3) has the axes as columns, left- or right-handed. Cabins, bonnets and wings are tapers.
    """
    planes, corners = [], []
    for side in range(4):
        axis, outward = side // 2, (-1.0, 1.0)[side % 2]
        normal = torch.zeros(3, dtype=torch.float64)
        normal[axis] = outward * height
        normal[2] = -outward * (top[side] - bottom[side])
        normal = normal / normal.norm()
        planes.append(torch.cat((normal, -normal[axis : axis + 1] * bottom[side])))
    planes.append(_plane((0.0, 0.0, -1.0), 0.0))
    planes.append(_plane((0.0, 0.0, 1.0), -height))
    for rectangle, level in ((bottom, 0.0), (top, height)):
        corners += [(x, y, level) for x in rectangle[:2] for y in rectangle[2:]]
    local, start = torch.stack(planes), _vector(origin)
    linear = local[:, :3] @ frame.T
    constant = local[:, 3] - linear @ start
    outline = torch.tensor(corners, dtype=torch.float64) @ frame.T + start
    return Hull(torch.cat((linear, constant[:, None]), dim=1), outline)


def _plane(normal: Vector, offset: float) -> Tensor:
    return torch.tensor((*normal, offset), dtype=torch.float64)


def cabin(
    x: tuple[float, float], top: tuple[float, float], z: tuple[float, float], width: float, narrow: float
) -> Solid:
    """A block from x[0] to x[1] whose top runs from top[0] to top[1]; `narrow` is the top's share of the width."""
    half = width / 2
    return taper(
        (0.0, 0.0, z[0]),
        torch.eye(3, dtype=torch.float64),
        z[1] - z[0],
        (x[0], x[1], -half, half),
        (top[0], top[1], -half * narrow, half * narrow),
    )


def windows(
    x: tuple[float, float],
    top: tuple[float, float],
    z: tuple[float, float],
    width: float,
    narrow: float,
    post: float = 0.045,
    middle: bool = True,
) -> list[Solid]:
    """A cabin of the same outline as `cabin`, but only its roof and posts, so that the windows look dark."""
    roof = 0.075
    share = (z[1] - roof - z[0]) / (z[1] - z[0])
    ends = tuple(x[k] + (top[k] - x[k]) * share for k in range(2))
    wide = width * (1 + (narrow - 1) * share)
    solids = [cabin((ends[0], ends[1]), top, (z[1] - roof, z[1]), wide, narrow * width / wide)]
    corners = [(x[0] + post, ends[0] + post), (x[1] - post, ends[1] - post)]
    if middle:
        between = (x[0] + x[1] + top[0] + top[1]) / 4
        corners.append((between, between))
    for foot, head in corners:
        solids += [
            rod((foot, side * (width / 2 - post), z[0]), (head, side * (wide / 2 - post), z[1] - roof / 2), post)
            for side in SIDES
        ]
    return solids


def wing(
    root: Vector,
    span: float,
    chord: tuple[float, float],
    sweep: float,
    thick: float,
    lift: float = 0.0,
    side: float = 1.0,
) -> Solid:
    """Half a wing to one side (+1 left, -1 right), from the middle of its root chord.

    span along the wing, chord at root and tip, sweep: how far the middle of the tip lies behind that of the root,
    thick at the root, lift: degrees by which the tip rises (90 for a fin).
    """
    angle = math.radians(lift)
    frame = torch.tensor(
        [
            [1.0, 0.0, 0.0],
            [0.0, -side * math.sin(angle), side * math.cos(angle)],
            [0.0, math.cos(angle), math.sin(angle)],
        ],
        dtype=torch.float64,
    )
    half, tip, deep = chord[0] / 2, chord[1] / 2, thick / 2
    return taper(root, frame, span, (-half, half, -deep, deep), (-sweep - tip, -sweep + tip, -deep * 0.5, deep * 0.5))


def wheels(x: float, track: float, radius: float, width: float) -> list[Solid]:
    """Two wheels that stand on the ground, their outer faces `track` apart."""
    return [rod((x, side * (track / 2 - width), radius), (x, side * track / 2, radius), radius) for side in SIDES]

"""Lines against solids, checked by marching along the line with an inside test that shares no code with the library."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quatcaps.data.toys import parts
from quatcaps.data.toys.shapes import MISS, Solid

STEPS = 4001
HALF = 4.0
KINDS = ("ball", "block", "cylinder", "cone", "taper", "fin")


@dataclass(frozen=True)
class Case:
    solid: Solid
    inside: Callable[[np.ndarray], np.ndarray]  # (n, 3) points → (n,) bool


def rotation(random: np.random.Generator) -> tuple[float, float, float, np.ndarray]:
    """Pitch, yaw and roll in degrees and, from Rodrigues' formula, the frame that they should give."""
    pitch, yaw, roll = random.uniform(-180, 180, 3)

    def about(axis: int, angle: float) -> np.ndarray:
        k = np.zeros((3, 3))
        i, j = (axis + 1) % 3, (axis + 2) % 3
        k[j, i], k[i, j] = 1.0, -1.0
        return np.eye(3) + math.sin(angle) * k + (1 - math.cos(angle)) * k @ k

    frame = about(2, math.radians(yaw)) @ about(1, -math.radians(pitch)) @ about(0, math.radians(roll))
    return float(pitch), float(yaw), float(roll), frame


def make(kind: str, random: np.random.Generator) -> Case:
    center = random.uniform(-0.5, 0.5, 3)
    size = random.uniform(0.2, 1.2, 3)
    pitch, yaw, roll, frame = rotation(random)
    place = tuple(float(c) for c in center)
    lengths = tuple(float(s) for s in size)
    if kind == "ball":
        solid = parts.ball(place, lengths, pitch, yaw, roll)
        return Case(solid, lambda p: ((((p - center) @ frame) / size) ** 2).sum(1) <= 1)
    if kind == "block":
        solid = parts.block(place, lengths, pitch, yaw, roll)
        return Case(solid, lambda p: (np.abs((p - center) @ frame) <= size / 2).all(1))
    if kind in ("cylinder", "cone"):
        end = center + frame[:, 0] * random.uniform(0.4, 1.5)
        first = float(random.uniform(0.1, 0.8))
        last = first if kind == "cylinder" else float(random.uniform(0.02, 0.8))
        solid = parts.rod(place, tuple(float(e) for e in end), first, None if kind == "cylinder" else last)

        def in_rod(p: np.ndarray) -> np.ndarray:
            axis = end - center
            along = (p - center) @ axis / (axis @ axis)
            away = np.linalg.norm(p - center - along[:, None] * axis, axis=1)
            return (along >= 0) & (along <= 1) & (away <= first + (last - first) * along)

        return Case(solid, in_rod)
    if kind == "taper":
        height = float(size[2])
        widen = np.array([-0.1, 0.1])
        low, high = (widen + np.sort(random.uniform(-0.8, 0.8, (2, 2)), axis=1) for _ in range(2))
        bottom, top = (tuple(float(v) for v in edges.reshape(-1)) for edges in (low, high))
        solid = parts.taper(place, torch.from_numpy(frame), height, bottom, top)

        def in_taper(p: np.ndarray) -> np.ndarray:
            local = (p - center) @ frame
            share = local[:, 2:] / height
            edges = np.asarray(bottom) + share * (np.asarray(top) - np.asarray(bottom))
            within = (local[:, 0] >= edges[:, 0]) & (local[:, 0] <= edges[:, 1])
            within &= (local[:, 1] >= edges[:, 2]) & (local[:, 1] <= edges[:, 3])
            return within & (share[:, 0] >= 0) & (share[:, 0] <= 1)

        return Case(solid, in_taper)
    # A fin: straight up from its root, leaning back, thinner at the tip.
    span, root, tip, sweep, thick = (float(v) for v in random.uniform(0.2, 0.9, 5))
    solid = parts.wing(place, span, (root, tip), sweep, thick, lift=90.0)

    def in_fin(p: np.ndarray) -> np.ndarray:
        x, y, share = p[:, 0] - center[0], p[:, 1] - center[1], (p[:, 2] - center[2]) / span
        half = (root + (tip - root) * share) / 2
        deep = thick * (1 - 0.5 * share) / 2
        return (np.abs(x + sweep * share) <= half) & (np.abs(y) <= deep) & (share >= 0) & (share <= 1)

    return Case(solid, in_fin)


def lines(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Origins and unit directions of lines that pass near the middle; t = 0 is their nearest point to it."""
    direction = random.normal(size=(count, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    origin = random.uniform(-1.2, 1.2, (count, 3))
    return origin - (origin * direction).sum(1, keepdims=True) * direction, direction


def entries(solid: Solid, origin: np.ndarray, direction: np.ndarray, dtype: torch.dtype) -> Tensor:
    rows = solid.rows
    base = torch.from_numpy(origin) @ rows[:, :3].T + rows[:, 3]
    rate = torch.from_numpy(direction) @ rows[:, :3].T
    return solid.entry(list(base.T.to(dtype)), list(rate.T.to(dtype))).double()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_entry_is_where_marching_first_finds_the_inside(kind: str, dtype: torch.dtype, seed: int) -> None:
    random = np.random.default_rng(seed)
    case = make(kind, random)
    origin, direction = lines(random, 24)
    entry = entries(case.solid, origin, direction, dtype).numpy()
    times = np.linspace(-HALF, HALF, STEPS)
    step = times[1] - times[0]
    for k in range(len(entry)):
        found = case.inside(origin[k] + times[:, None] * direction[k])
        if not found.any():
            # Nothing found: a miss, or a chord that fits between two steps.
            middle = origin[k] + (entry[k] + step) * direction[k]
            assert entry[k] >= MISS or not case.inside(middle[None])[0]
            continue
        first = times[int(found.argmax())]
        # A line that grazes may be in for a moment before; then its chord is shorter than a step.
        assert entry[k] <= first + 1e-4
        if entry[k] < first - step - 1e-4:
            assert not case.inside((origin[k] + (entry[k] + step) * direction[k])[None])[0]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_normals_are_unit_and_point_outward(kind: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    case = make(kind, random)
    origin, direction = lines(random, 200)
    entry = entries(case.solid, origin, direction, torch.float64).numpy()
    hit = entry < MISS
    points = (origin + entry[:, None] * direction)[hit]
    normals = case.solid.normals(torch.from_numpy(points.T)).T.numpy()
    assert np.allclose(np.linalg.norm(normals, axis=1), 1.0, atol=1e-9)
    # The line comes from outside, so it goes in against the normal.
    assert ((normals * direction[hit]).sum(1) <= 1e-9).all()
    assert not case.inside(points + 1e-6 * normals).any()
    # Near an edge even a small step along the normal may leave by the other face.
    assert case.inside(points - 1e-6 * normals).sum() >= 0.95 * len(points)
    excess = case.solid.excess(case.solid.features(torch.from_numpy(points.T)))
    assert (excess.abs() < 1e-6).all()


@pytest.mark.parametrize("kind", KINDS)
def test_excess_agrees_with_the_inside(kind: str) -> None:
    random = np.random.default_rng(1)
    case = make(kind, random)
    points = random.uniform(-1.5, 1.5, (4000, 3))
    inside = case.inside(points)
    assert inside.any()
    excess = case.solid.excess(case.solid.features(torch.from_numpy(points.T)))
    assert ((excess <= 0).numpy() == inside).all()


@pytest.mark.parametrize("kind", KINDS)
def test_moved_solids_and_their_spheres_go_along(kind: str) -> None:
    random = np.random.default_rng(2)
    case = make(kind, random)
    shift, scale = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64), 1.7
    moved = case.solid.moved(shift, scale)
    points = random.uniform(-4, 4, (40000, 3))
    excess = moved.excess(moved.features(torch.from_numpy(points.T)))
    inside = case.inside(points / scale - shift.numpy())
    assert inside.any()
    assert ((excess <= 0).numpy() == inside).all()
    center, radius = moved.sphere
    assert np.linalg.norm(points[inside] - center.numpy(), axis=1).max() <= radius


def test_lines_along_an_axis_or_a_face_are_exact() -> None:
    """The cases in which a formula would divide by zero."""
    down = np.array([[0.0, 0.0, -1.0]])
    upright = parts.rod((0.0, 0.0, 0.0), (0.0, 0.0, 1.0), 0.5)
    pointed = parts.rod((0.0, 0.0, 0.0), (0.0, 0.0, 1.0), 0.5, 0.1)
    cube = parts.block((0.0, 0.0, 0.5), (1.0, 1.0, 1.0))
    slope = parts.cabin((-0.5, 0.5), (-0.2, 0.2), (0.0, 1.0), 1.0, 0.5)
    for solid in (upright, pointed, cube, slope):
        middle = entries(solid, np.array([[0.0, 0.0, 3.0]]), down, torch.float32)
        assert middle.item() == pytest.approx(2.0, abs=1e-5)
        assert entries(solid, np.array([[0.6, 0.0, 3.0]]), down, torch.float32).item() >= MISS
    # Down onto the flank of the cone, halfway between its two radii.
    assert entries(pointed, np.array([[0.3, 0.0, 3.0]]), down, torch.float32).item() == pytest.approx(2.5, abs=1e-5)
    # Up into the cone from below, where it is widest.
    assert entries(pointed, np.array([[0.3, 0.0, -3.0]]), -down, torch.float32).item() == pytest.approx(3.0, abs=1e-5)

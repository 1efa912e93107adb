"""EM routing as Procedure 1 of Hinton et al. 2018 writes it: float64, one loop per symbol, nothing from quatcaps.

A child i is (type, row, column) on its grid, a parent j is (type, row, column) on its own. The only additions to
the procedure are those the project names: windows, the floor added to every variance, the `normalized` activation,
the two scopes of competition, and two changes of Gritzman 2019: what a parent receives counts in proportion to what
there is to receive (`mass`), and a small number stands beside it wherever it divides (`one_child`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np

Array = np.ndarray
Capsule = tuple[int, int, int]
Vote = Callable[[int, int, int, Array], Array]
"""(place in the window, child type, parent type, child's pose) → vote."""


class Box(NamedTuple):
    """Parents (N, J, D, H, W) and (N, J, H, W), and the assignments R_ij that made them, one dictionary per image."""

    poses: Array
    activations: Array
    assignments: list[dict[tuple[Capsule, Capsule], float]]


def quaternion_product(q: Array, p: Array) -> Array:
    """Equations 3 and 4, term by term."""
    return np.array(
        [
            q[0] * p[0] - q[1] * p[1] - q[2] * p[2] - q[3] * p[3],
            q[0] * p[1] + q[1] * p[0] + q[2] * p[3] - q[3] * p[2],
            q[0] * p[2] - q[1] * p[3] + q[2] * p[0] + q[3] * p[1],
            q[0] * p[3] + q[1] * p[2] - q[2] * p[1] + q[3] * p[0],
        ]
    )


def rotor_votes(angle: Array, axis: Array) -> Vote:
    """Equations 11 and 12: v = w u w*, w = (cos θ, sin θ · n)."""

    def vote(place: int, child: int, parent: int, pose: Array) -> Array:
        theta, direction = angle[place, child, parent], axis[place, child, parent]
        vector = math.sin(theta) * direction / math.sqrt((direction**2).sum())
        rotor, conjugate = np.array([math.cos(theta), *vector]), np.array([math.cos(theta), *-vector])
        turned = quaternion_product(quaternion_product(rotor, np.array([0.0, *pose])), conjugate)
        return turned[1:]

    return vote


def matrix_votes(weight: Array) -> Vote:
    """A pose lies row after row; each of its rows is multiplied by the weight."""

    def vote(place: int, child: int, parent: int, pose: Array) -> Array:
        matrix = weight[place, child, parent]
        columns = len(matrix)
        rows = [pose[start : start + columns] for start in range(0, len(pose), columns)]
        return np.concatenate([[(line * row).sum() for line in matrix] for row in rows])

    return vote


def place_in(window: tuple[int, int], down: int, right: int, rule: str, dims: int) -> Array:
    """What coordinates add to a vote: to the last column of the first two rows of a 4×4 pose."""
    added = np.zeros(dims)
    if rule == "middles":
        added[3], added[7] = (down + 0.5) / window[0], (right + 0.5) / window[1]
    if rule == "tenths":
        added[3], added[7] = (down + 1) / window[0] / 10, (right + 1) / window[1] / 10
    if rule == "constant":
        added[3] = added[7] = 0.1
    return added


def em_routing(
    poses: Array,
    activations: Array,
    vote: Vote,
    beta_u: Array,
    beta_a: Array,
    window: tuple[int, int],
    **options: object,
) -> Box:
    """All images, one after the other; `options` are those of `route_image`."""
    parents = [
        route_image(pose, activation, vote, beta_u, beta_a, window, **options)  # type: ignore[arg-type]
        for pose, activation in zip(poses, activations, strict=True)
    ]
    return Box(np.stack([p[0] for p in parents]), np.stack([p[1] for p in parents]), [p[2] for p in parents])


def route_image(
    poses: Array,
    child_activations: Array,
    vote: Vote,
    beta_u: Array,
    beta_a: Array,
    window: tuple[int, int],
    *,
    stride: int = 1,
    shared: bool = False,
    iterations: int = 2,
    activation: str = "logistic",
    competition: str = "position",
    variance_floor: float = 1e-4,
    mass: str = "summed",
    one_child: str = "floored",
    contrast: float = 1.0,
    variance: str = "diagonal",
    coordinates: str = "",
) -> tuple[Array, Array, dict[tuple[Capsule, Capsule], float]]:
    child_types, dims, height, width = poses.shape
    grid = ((height - window[0]) // stride + 1, (width - window[1]) // stride + 1)
    all_parents = list(product(range(len(beta_u)), range(grid[0]), range(grid[1])))

    votes: dict[tuple[Capsule, Capsule], Array] = {}
    children_of: dict[Capsule, list[Capsule]] = {j: [] for j in all_parents}
    parents_of: dict[Capsule, list[Capsule]] = {}
    for j in all_parents:
        for child_type, down, right in product(range(child_types), range(window[0]), range(window[1])):
            row, column = j[1] * stride + down, j[2] * stride + right
            i = (child_type, row, column)
            place = 0 if shared else down * window[1] + right
            votes[i, j] = vote(place, child_type, j[0], poses[child_type, :, row, column])
            votes[i, j] = votes[i, j] + place_in(window, down, right, coordinates, dims)
            children_of[j].append(i)
            parents_of.setdefault(i, []).append(j)

    def rivals(i: Capsule, j: Capsule, at_first: bool = False) -> list[Capsule]:
        """The parents among which child i is divided, j one of them."""
        everywhere = competition == "all" or (competition == "all-later" and not at_first)
        return [k for k in parents_of[i] if everywhere or k[1:] == j[1:]]

    epsilon = 1e-9 if one_child == "damped" else 0.0
    assignments = {(i, j): 1 / len(rivals(i, j, at_first=True)) for i, j in votes}
    mean: dict[Capsule, Array] = {}
    variances: dict[Capsule, Array] = {}
    parent_activations: dict[Capsule, float] = {}
    for iteration in range(1, iterations + 1):
        temperature = 0.01 * (1 - 0.95**iteration)

        if iteration > 1:  # E-step
            logs = {}
            for (i, j), v in votes.items():
                density = 0.0
                for h in range(dims):
                    density -= (v[h] - mean[j][h]) ** 2 / (2 * variances[j][h])
                    density -= 0.5 * math.log(2 * math.pi * variances[j][h])
                logs[i, j] = math.log(parent_activations[j] + epsilon) + density
            for i, j in votes:
                largest = max(logs[i, k] for k in rivals(i, j))
                total = sum(math.exp(logs[i, k] - largest) for k in rivals(i, j))
                assignments[i, j] = math.exp(logs[i, j] - largest) / total

        logits = {}
        for j in all_parents:  # M-step
            given = {i: assignments[i, j] * child_activations[i] for i in children_of[j]}
            received = sum(given.values())
            divisor = received + epsilon
            mean[j] = sum(given[i] * votes[i, j] for i in given) / divisor
            spread = sum(given[i] * (votes[i, j] - mean[j]) ** 2 for i in given) / divisor
            if variance == "isotropic":
                spread = np.full(dims, spread.mean())
            variances[j] = spread + variance_floor
            if mass == "normalised":
                children_per_parent = len(given) / len(beta_u)
                received *= 100 / children_per_parent
            cost = sum((beta_u[j[0]] + math.log(math.sqrt(variances[j][h]))) * received for h in range(dims))
            logits[j] = temperature * (beta_a[j[0]] - cost)
        for j in all_parents:
            logit = logits[j]
            beside = [logits[k] for k in all_parents if k[1:] == j[1:]]
            if activation == "normalized":
                logit *= contrast / math.sqrt(sum(other**2 for other in beside))
            elif activation == "standardized":
                centre = sum(beside) / len(beside)
                squares = sum((other - centre) ** 2 for other in beside) / len(beside)
                logit = contrast * (logit - centre) / math.sqrt(squares + 1e-8)
            parent_activations[j] = 1 / (1 + math.exp(-logit))

    parent_poses = np.empty((len(beta_u), dims, *grid))
    for j in all_parents:
        parent_poses[j[0], :, j[1], j[2]] = mean[j]
    gates = np.array([parent_activations[j] for j in all_parents]).reshape(len(beta_u), *grid)
    return parent_poses, gates, assignments

"""Routing via variational Bayes as De Sousa Ribeiro et al. 2020 write it: float64, one loop per symbol, nothing from
quatcaps.

The updates are those of Bishop 2006, section 10.2 (his equation numbers below), with the statistics of the votes about
their own mean and each child counted as often as it is active. The additions are those the project names: windows, the
scopes of competition, two activations, batch normalisation.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from algorithm_box import Array, Capsule, Vote, place_in
from scipy.special import digamma

BATCH_NORM_EPSILON = 1e-5


def vb_routing(
    poses: Array,
    activations: Array,
    vote: Vote,
    beta_u: Array,
    beta_a: Array,
    window: tuple[int, int],
    *,
    batch_norm: bool = True,
    **options: object,
) -> tuple[Array, Array]:
    """Parents (N, J, D, H, W) and (N, J, H, W) of all images; `options` are those of `route_image`."""
    routed = [
        route_image(pose, activation, vote, beta_u, beta_a, window, **options)  # type: ignore[arg-type]
        for pose, activation in zip(poses, activations, strict=True)
    ]
    parents, logits = np.stack([image[0] for image in routed]), np.stack([image[1] for image in routed])
    if batch_norm:
        for j in range(len(beta_u)):
            for values in (parents, logits):
                values[:, j] = (values[:, j] - values[:, j].mean()) / np.sqrt(values[:, j].var() + BATCH_NORM_EPSILON)
    return parents, 1 / (1 + np.exp(-logits))


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
    iterations: int = 3,
    activation: str = "mixing",
    competition: str = "position",
    coordinates: str = "",
    prior_concentration: float = 1.0,
    prior_mean: float = 0.0,
    prior_mean_weight: float = 1.0,
    prior_scale: float = 1.0,
    prior_freedom: float = 2.0,
    least_density: float = 0.0,
) -> tuple[Array, Array]:
    """The means (J, D, H, W) and the activations' logits (J, H, W) of one image's parents."""
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

    alpha0, m0, kappa0 = prior_concentration, np.full(dims, prior_mean), prior_mean_weight
    inverse_scale0, nu0 = np.full(dims, prior_scale), dims - 1 + prior_freedom
    mass: dict[Capsule, float] = {}
    alpha: dict[Capsule, float] = {}
    kappa: dict[Capsule, float] = {}
    nu: dict[Capsule, float] = {}
    m: dict[Capsule, Array] = {}
    scale: dict[Capsule, Array] = {}
    log_share: dict[Capsule, float] = {}
    log_determinant: dict[Capsule, float] = {}

    assignments = {(i, j): 1 / len(rivals(i, j, at_first=True)) for i, j in votes}
    for iteration in range(1, iterations + 1):
        for j in all_parents:
            given = {i: assignments[i, j] * child_activations[i] for i in children_of[j]}
            mass[j] = sum(given.values())  # 10.51
            mean = sum(given[i] * votes[i, j] for i in given) / mass[j]  # 10.52
            spread = sum(given[i] * (votes[i, j] - mean) ** 2 for i in given) / mass[j]  # 10.53, its diagonal
            alpha[j] = alpha0 + mass[j]  # 10.58
            kappa[j] = kappa0 + mass[j]  # 10.60
            m[j] = (kappa0 * m0 + mass[j] * mean) / kappa[j]  # 10.61
            pulled = kappa0 * mass[j] / (kappa0 + mass[j]) * (mean - m0) ** 2
            scale[j] = 1 / (inverse_scale0 + mass[j] * spread + pulled)  # 10.62
            nu[j] = nu0 + mass[j]  # 10.63
        for j in all_parents:
            total = sum(alpha[k] for k in all_parents if k[1:] == j[1:])
            log_share[j] = digamma(alpha[j]) - digamma(total)  # 10.66
            log_determinant[j] = dims * math.log(2)  # 10.65
            for d in range(1, dims + 1):
                log_determinant[j] += digamma((nu[j] + 1 - d) / 2) + math.log(scale[j][d - 1])
        if iteration == iterations:
            break

        logs = {}
        for (i, j), v in votes.items():
            distance = dims / kappa[j] + nu[j] * (scale[j] * (v - m[j]) ** 2).sum()  # 10.64
            logs[i, j] = log_share[j] + 0.5 * log_determinant[j] - 0.5 * dims * math.log(2 * math.pi) - 0.5 * distance
        for i, j in votes:  # 10.49
            largest = max(logs[i, k] for k in rivals(i, j))
            total = sum(math.exp(logs[i, k] - largest) for k in rivals(i, j))
            log_total = largest + math.log(total)
            if least_density:
                log_total = max(log_total, math.log(least_density))
            assignments[i, j] = math.exp(logs[i, j] - log_total)

    parent_poses, logits = np.empty((len(beta_u), dims, *grid)), np.empty((len(beta_u), *grid))
    for j in all_parents:
        parent_poses[j[0], :, j[1], j[2]] = m[j]
        entropy = dims / 2 * math.log(2 * math.pi * math.e) - log_determinant[j] / 2
        if activation == "mixing":
            cost = beta_u[j[0]] + math.exp(log_share[j]) * entropy
        else:
            cost = (beta_u[j[0]] + entropy) * mass[j]
        logits[j] = beta_a[j[0]] - cost
    return parent_poses, logits

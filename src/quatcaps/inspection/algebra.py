"""Do class poses turn with primary poses? Rotates all primary poses of real images by one rotation and looks at what
becomes of the classes. 0 by construction, or not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quatcaps.capsules import Capsules
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.testing import random_turn, routed

TURNS = 8


@dataclass(frozen=True)
class Residual:
    """Over all turns and images: |Q μ − μ′| / |μ| of class poses, and the largest change of a class's activation.
    `chance` is the residual of poses that have nothing to do with each other: √2."""

    poses: float
    activations: float
    chance: float = 2**0.5


@torch.no_grad()
def algebraic_residual(network: CapsuleNetwork, images: Tensor, turns: int = TURNS, seed: int = 0) -> Residual:
    """images (N, channels, height, width), as the network takes them. The network is evaluated as it is."""
    primary = network.primary(images)
    plain = routed(network, primary)[-1]
    residuals, changes = [], []
    for number in range(turns):
        turn = random_turn(network.classify.pose, seed + number).to(primary.poses)
        turned = Capsules(torch.einsum("de,nie...->nid...", turn, primary.poses), primary.activations)
        found = routed(network, turned)[-1]
        wanted = torch.einsum("de,nie->nid", turn, plain.poses)
        residuals.append(((found.poses - wanted).norm(dim=2) / wanted.norm(dim=2).clamp(min=1e-30)).mean())
        changes.append((found.activations - plain.activations).abs().max())
    return Residual(torch.stack(residuals).mean().item(), torch.stack(changes).max().item())

"""Spread loss with its margin schedule, and cross-entropy as the alternative."""

from __future__ import annotations

import math

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

MARGIN_LIMIT = 0.9


def spread_loss(
    activations: Float[Tensor, "N classes"], labels: Int[Tensor, " N"], margin: float | Tensor
) -> Float[Tensor, ""]:
    """Equation 13, averaged over the images: Σ_{i ≠ t} max(0, m − (a_t − a_i))², t the true class."""
    labels = labels.long()
    true = activations.gather(1, labels[:, None])
    shortfall = (margin - (true - activations)).clamp(min=0).square()
    others = shortfall.scatter(1, labels[:, None], 0.0)
    return others.sum(1).mean()


def margin(step: int, scale: float = 50_000) -> float:
    """Equation 16: m = 0.2 + 0.79 · σ(min(10, step/scale − 4)), frozen once it reaches 0.9.

    >>> round(margin(0), 4), round(margin(200_000), 4), margin(10**9)
    (0.2142, 0.595, 0.9)
    """
    value = 0.2 + 0.79 / (1 + math.exp(-min(10.0, step / scale - 4)))
    return min(value, MARGIN_LIMIT)


def cross_entropy(
    scores: Float[Tensor, "N classes"], labels: Int[Tensor, " N"], scale: float = 1.0, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """−log softmax(scale · scores) of the true class, averaged over the images.

    Capsule activations lie in [0, 1]: without a scale of 10 or so their softmax is nearly flat. smoothing: the part of
    the wanted probability that is spread evenly over all classes.
    """
    return F.cross_entropy(scale * scores, labels.long(), label_smoothing=smoothing)

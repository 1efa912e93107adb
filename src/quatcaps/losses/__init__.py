"""Losses of the classes: spread loss with its margin schedule, and cross-entropy as the alternative, also of images
that were mixed. Losses of poses: the orientation itself, and that of two views of one toy relative to each other."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from quatcaps import quaternion
from quatcaps.accelerator import runs_kernels

MARGIN_LIMIT = 0.9


def spread_loss(
    activations: Float[Tensor, "N classes"],
    labels: Int[Tensor, " N"],
    margin: float | Tensor,
    class_weights: Float[Tensor, " classes"] | None = None,
) -> Float[Tensor, ""]:
    """Equation 13, averaged over the images: Σ_{i ≠ t} max(0, m − (a_t − a_i))², t the true class. class_weights: what
    an image's loss is multiplied by before the mean, by its class."""
    labels = labels.long()
    true = activations.gather(1, labels[:, None])
    shortfall = (margin - (true - activations)).clamp(min=0).square()
    others = shortfall.scatter(1, labels[:, None], 0.0)
    losses = others.sum(1)
    return losses.mean() if class_weights is None else (class_weights[labels] * losses).mean()


def quick_spread_loss(
    activations: Float[Tensor, "N classes"],
    labels: Int[Tensor, " N"],
    margin: float | Tensor,
    class_weights: Float[Tensor, " classes"] | None = None,
) -> Float[Tensor, ""]:
    """`spread_loss` for training: on a GPU by one kernel, which has a first derivative alone."""
    from quatcaps.losses.fused import MOST_CLASSES, spread_and_gradient

    images, classes = activations.shape
    if not activations.is_cuda or not runs_kernels(activations) or not images or classes > MOST_CLASSES:
        return spread_loss(activations, labels, margin, class_weights)
    wanted = margin.to(activations) if isinstance(margin, Tensor) else activations.new_full((), margin)
    loss: Tensor = spread_and_gradient(activations, labels.long(), wanted, class_weights)[0]
    return loss


def margin(step: int, scale: float = 50_000) -> float:
    """Equation 16: m = 0.2 + 0.79 · σ(min(10, step/scale − 4)), frozen once it reaches 0.9.

    >>> round(margin(0), 4), round(margin(200_000), 4), margin(10**9)
    (0.2142, 0.595, 0.9)
    """
    value = 0.2 + 0.79 / (1 + math.exp(-min(10.0, step / scale - 4)))
    return min(value, MARGIN_LIMIT)


def cross_entropy(
    scores: Float[Tensor, "N classes"],
    labels: Int[Tensor, " N"],
    scale: float = 1.0,
    smoothing: float = 0.0,
    class_weights: Float[Tensor, " classes"] | None = None,
) -> Float[Tensor, ""]:
    """−log softmax(scale · scores) of the true class, averaged over the images.

    Capsule activations lie in [0, 1]: without a scale of 10 or so their softmax is nearly flat. smoothing: the part of
    the wanted probability that is spread evenly over all classes. class_weights: what an image's loss is multiplied by
    before the mean, by its class; the mean is over images, not over their weights, so that parts of a batch add up.
    """
    labels = labels.long()
    if class_weights is None:
        return F.cross_entropy(scale * scores, labels, label_smoothing=smoothing)
    losses = F.cross_entropy(scale * scores, labels, label_smoothing=smoothing, reduction="none")
    return (class_weights[labels] * losses).mean()


def mixed_cross_entropy(
    scores: Float[Tensor, "N classes"],
    labels: Int[Tensor, " N"],
    others: Int[Tensor, " N"],
    parts: Float[Tensor, " N"],
    scale: float = 1.0,
    smoothing: float = 0.0,
    class_weights: Float[Tensor, " classes"] | None = None,
) -> Float[Tensor, ""]:
    """(1 − p) · loss of the image's class + p · loss of the other's, averaged over the images: the cross-entropy of
    images that were mixed with others, which have a part p in them (Zhang et al. 2018)."""
    weights = scores.new_ones(scores.shape[1]) if class_weights is None else class_weights

    def losses(wanted: Tensor) -> Tensor:
        wanted = wanted.long()
        found = F.cross_entropy(scale * scores, wanted, label_smoothing=smoothing, reduction="none")
        return weights[wanted] * found

    return torch.lerp(losses(labels), losses(others), parts.to(scores)).mean()


def balanced_weights(labels: Int[Tensor, " N"], classes: int) -> Float[Tensor, " classes"]:
    """N / (K n_c) for the n_c of N images that class c has, K classes having any: the images of every class weigh as
    much together, and an image 1 on average. A class without images has weight 1.

    >>> import torch
    >>> balanced_weights(torch.tensor([0, 0, 0, 2]), 3).tolist()
    [0.6666666865348816, 1.0, 2.0]
    """
    counts = labels.long().cpu().bincount(minlength=classes).float()
    shown = counts > 0
    return (counts.sum() / (shown.sum() * counts)).where(shown, counts.new_ones(()))


def own_part(poses: Float[Tensor, "N 4"], orientations: Float[Tensor, "N 4"]) -> Float[Tensor, "N 4"]:
    """c = q* p̂ for a pose p and the orientation q that it should have: what is left of the pose when the viewpoint is
    taken away. It is ±1 where the pose is the orientation, and the same for all views of a toy where the pose turns
    with it, whatever the toy's own zero is."""
    return quaternion.product(quaternion.conjugate(orientations), quaternion.normalise(poses))


def orientation_loss(poses: Float[Tensor, "N 4"], orientations: Float[Tensor, "N 4"]) -> Float[Tensor, ""]:
    """1 − ⟨p̂, q⟩², averaged over the images: sin² of half the angle between them; p and −p are the same."""
    return (1 - own_part(poses, orientations)[:, 0].square()).mean()


def relative_orientation_loss(
    poses: Float[Tensor, "N 4"], orientations: Float[Tensor, "N 4"], toys: Int[Tensor, " N"]
) -> Float[Tensor, ""]:
    """1 − ⟨p̂ᵢ p̂ⱼ*, qᵢ qⱼ*⟩², averaged over the pairs of images that show one toy; 0 where there is none.

    Products by rotors leave ⟨·, ·⟩ as it is, so that this is 1 − ⟨cᵢ, cⱼ⟩² with c = q* p̂: every toy may have a zero of
    its own.
    """
    own = own_part(poses, orientations)
    pairs = (toys[:, None] == toys).to(own).fill_diagonal_(0)
    return (pairs * (1 - (own @ own.T).square())).sum() / pairs.sum().clamp(min=1)

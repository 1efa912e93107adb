"""What attackers raise: losses of single images, and the gradients of their pixels."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from quatcaps.errors import QuatcapsError

Classifier = Callable[[Tensor], Tensor]
"""(N, channels, height, width) pixels in [0, 1] → scores (N, classes); the largest names the class."""
Loss = Callable[[Tensor, Tensor], Tensor]
"""Scores (N, classes) and labels (N,) → a loss for each image, (N,): the larger, the worse for the classifier."""
TargetedLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Scores (N, classes), labels (N,) and the class to go to (N,) → a loss for each image, (N,)."""
LEAST_SPREAD = 1e-12
MOST_TARGETS = 9
"""Targeted attacks go to the classes of the largest scores, so many."""


class Values(NamedTuple):
    """Of N images."""

    losses: Tensor  # (N,)
    scores: Tensor  # (N, classes): the largest names the class


Objective = Callable[[Tensor, Tensor], Values]
"""Images and labels → what to raise, and the scores that tell whether the attack has succeeded."""


def cross_entropy(scores: Float[Tensor, "N classes"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """−log softmax of the true class."""
    return functional.cross_entropy(scores, labels, reduction="none")


def margin(scores: Float[Tensor, "N classes"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The largest score of another class less that of the true class: above 0 the image is misclassified."""
    true = scores.gather(1, labels[:, None])[:, 0]
    return scores.scatter(1, labels[:, None], -torch.inf).amax(1) - true


def dlr(scores: Float[Tensor, "N classes"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The difference-of-logits ratio (Croce and Hein 2020): the margin divided by the distance between the largest and
    the third-largest score. A factor on all scores does not change it, nor does a number added to them."""
    if scores.shape[1] < 3:
        raise QuatcapsError(f"the DLR loss of {scores.shape[1]} classes: it needs at least 3; use cross-entropy")
    largest = scores.topk(3, 1).values
    return margin(scores, labels) / (largest[:, 0] - largest[:, 2] + LEAST_SPREAD)


def lead(
    scores: Float[Tensor, "N classes"], labels: Int[Tensor, " N"], targets: Int[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """The score of one other class less that of the true class."""
    return (scores.gather(1, targets[:, None]) - scores.gather(1, labels[:, None]))[:, 0]


def targeted_dlr(
    scores: Float[Tensor, "N classes"], labels: Int[Tensor, " N"], targets: Int[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """The targeted difference-of-logits ratio (Croce and Hein 2020): the lead of one other class divided by the
    distance from the largest score to the mean of the third- and the fourth-largest."""
    if scores.shape[1] < 4:
        raise QuatcapsError(
            f"the targeted DLR loss of {scores.shape[1]} classes: it needs at least 4; use cross-entropy"
        )
    largest = scores.topk(4, 1).values
    spread = largest[:, 0] - (largest[:, 2] + largest[:, 3]) / 2
    return lead(scores, labels, targets) / (spread + LEAST_SPREAD)


def other_classes(
    scores: Float[Tensor, "N classes"], labels: Int[Tensor, " N"], most: int = MOST_TARGETS
) -> Int[Tensor, "N K"]:
    """All classes but the true one, in the order of their scores, the largest first; at most so many."""
    count = min(most, scores.shape[1] - 1)
    return scores.scatter(1, labels[:, None], -torch.inf).topk(count, 1).indices


def of_scores(classifier: Classifier, loss: Loss = cross_entropy) -> Objective:
    """A loss of the classifier's scores."""

    def objective(images: Tensor, labels: Tensor) -> Values:
        scores = classifier(images)
        return Values(loss(scores, labels), scores)

    return objective


def towards(classifier: Classifier, loss: TargetedLoss, targets: Tensor) -> Objective:
    """A loss of the classifier's scores that has a class to go to for each image."""
    return of_scores(classifier, lambda scores, labels: loss(scores, labels, targets))


def with_gradient(objective: Objective, images: Tensor, labels: Tensor) -> tuple[Values, Tensor]:
    """Losses and scores, without a graph, and the gradient of each image's loss by its pixels. What is not finite, as
    the deviation of a flat image has it, counts as no gradient."""
    with torch.enable_grad():
        pixels = images.detach().clone().requires_grad_()
        losses, scores = objective(pixels, labels)
        (gradient,) = torch.autograd.grad(losses.sum(), pixels)
    return Values(losses.detach(), scores.detach()), gradient.nan_to_num(0.0, 0.0, 0.0)


def misclassified(scores: Tensor, labels: Tensor) -> Tensor:
    """(N,) bool."""
    return scores.argmax(1) != labels

"""Attacks that follow the sign of the gradient, within ε in the maximum norm.

Each returns adversarial images (N, C, H, W) in [0, 1]: the first misclassified image that the attack came across, and
where it came across none the last one that it tried.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from quatcaps.errors import at_least_one
from quatcaps.robustness.balls import Ball, Radius
from quatcaps.robustness.chance import Chance, Randomness
from quatcaps.robustness.objectives import (
    Classifier,
    Loss,
    Objective,
    cross_entropy,
    misclassified,
    of_scores,
    with_gradient,
)

OVERSHOT = 2.5
"""Steps of PGD together are so many times ε (Madry et al. 2018), so that every corner of the ball can be reached from
every start, and left again."""


def fgsm(classifier: Classifier, images: Tensor, labels: Tensor, epsilon: Radius, loss: Loss = cross_entropy) -> Tensor:
    """The fast gradient sign method (Goodfellow et al. 2015): one step of ε.

    >>> def dark(images):  # class 1 where the image is bright
    ...     brightness = images.mean((1, 2, 3))
    ...     return torch.stack([0.5 - brightness, brightness - 0.5], 1)
    >>> fgsm(dark, torch.full((1, 1, 1, 2), 0.45), torch.tensor([0]), 0.1).flatten().tolist()
    [0.550000011920929, 0.550000011920929]
    """
    ball = Ball.around(images, epsilon)
    _, gradient = with_gradient(of_scores(classifier, loss), images, labels)
    return ball.project(images + ball.radius * gradient.sign())


def bim(
    classifier: Classifier,
    images: Tensor,
    labels: Tensor,
    epsilon: Radius,
    steps: int = 10,
    loss: Loss = cross_entropy,
) -> Tensor:
    """The basic iterative method (Kurakin et al. 2017): from the image itself, `steps` steps of ε / `steps`."""
    ball = Ball.around(images, epsilon)
    return ascend(of_scores(classifier, loss), labels, ball, images, steps, 1.0)


def pgd(
    classifier: Classifier,
    images: Tensor,
    labels: Tensor,
    epsilon: Radius,
    steps: int = 20,
    restarts: int = 1,
    generator: Randomness | None = None,
    loss: Loss = cross_entropy,
    *,
    stop: bool = True,
) -> Tensor:
    """Projected gradient descent (Madry et al. 2018): from random starts, steps of 2.5 ε / `steps`.

    Restarts after the first are for images that are still classified correctly. stop: a misclassified image is taken
    as it is; without, the attack goes on to the last step, for examples that are to deceive other networks too.
    """
    return projected_ascent(of_scores(classifier, loss), images, labels, epsilon, steps, restarts, generator, stop=stop)


def projected_ascent(
    objective: Objective,
    images: Tensor,
    labels: Tensor,
    epsilon: Radius,
    steps: int = 20,
    restarts: int = 1,
    generator: Randomness | None = None,
    *,
    stop: bool = True,
) -> Tensor:
    """`pgd` of any objective, such as `Victim.votes`."""
    at_least_one("restarts", restarts)
    chance, ball = Chance.of(generator, len(images)), Ball.around(images, epsilon)

    def one(left: Tensor, _: int) -> Tensor:
        start = ball.random(chance)[left]  # drawn for all images, whichever are left
        return ascend(objective, labels[left], ball.at(left), start, steps, OVERSHOT, stop=stop)

    return repeated(objective, images, labels, one, restarts)


def repeated(
    objective: Objective, images: Tensor, labels: Tensor, one: Callable[[Tensor, int], Tensor], times: int
) -> Tensor:
    """Calls an attack with the numbers of the images that withstood it so far, and with how often it was called before;
    at most so many times."""
    found, left = images.clone(), torch.arange(len(images), device=images.device)
    for number in range(times):
        found[left] = one(left, number)
        if number + 1 < times:
            with torch.no_grad():
                left = left[~misclassified(objective(found[left], labels[left]).scores, labels[left])]
            if not len(left):
                break
    return found


def ascend(
    objective: Objective,
    labels: Tensor,
    ball: Ball,
    start: Tensor,
    steps: int,
    length: float,
    *,
    stop: bool = True,
) -> Tensor:
    """`steps` steps along the sign of the gradient, each back into the ball, together `length` · ε."""
    at_least_one("steps", steps)
    step = length / steps
    found, current = start.clone(), start
    left = torch.arange(len(start), device=start.device)
    for _ in range(steps):
        values, gradient = with_gradient(objective, current, labels[left])
        if stop:
            kept = ~misclassified(values.scores, labels[left])
            left, current, gradient = left[kept], current[kept], gradient[kept]
            if not len(left):
                return found
        inside = ball.at(left)
        current = inside.project(current + step * inside.radius * gradient.sign())
        found[left] = current
    return found

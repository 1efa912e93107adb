"""Auto-PGD (Croce and Hein 2020): gradient ascent with momentum whose step size follows from its own progress."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from quatcaps.errors import at_least_one
from quatcaps.robustness.balls import Ball, Radius
from quatcaps.robustness.chance import Chance, Randomness
from quatcaps.robustness.gradient import repeated
from quatcaps.robustness.objectives import (
    Classifier,
    Loss,
    Objective,
    cross_entropy,
    misclassified,
    of_scores,
    other_classes,
    targeted_dlr,
    towards,
    with_gradient,
)

MOMENTUM = 0.75
ENOUGH = 0.75
"""The share of steps since the last checkpoint that must have raised the loss for the step size to stay."""
FIRST, SHORTER, SHORTEST = 22, 3, 6
"""In % of all steps: where the first checkpoint lies, by how much the next distance is less, and the least distance."""


def checkpoints(steps: int) -> list[int]:
    """After which steps the step size may change.

    >>> checkpoints(100)
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    found, before, now = [], 0, FIRST
    while now <= 100:
        found.append(-(-now * steps // 100))
        before, now = now, now + max(now - before - SHORTER, SHORTEST)
    return found


def apgd(
    classifier: Classifier,
    images: Tensor,
    labels: Tensor,
    epsilon: Radius,
    steps: int = 100,
    restarts: int = 1,
    generator: Randomness | None = None,
    loss: Loss = cross_entropy,
) -> Tensor:
    """Auto-PGD within ε in the maximum norm, from random starts; the only thing to choose is how long it may take.

    loss: `cross_entropy` or `dlr`. Returns the first misclassified image that it came across, or the one of the largest
    loss.
    """
    at_least_one("steps", steps)
    at_least_one("restarts", restarts)
    chance, ball = Chance.of(generator, len(images)), Ball.around(images, epsilon)
    objective = of_scores(classifier, loss)

    def one(left: Tensor, _: int) -> Tensor:
        start = ball.random(chance)[left]  # drawn for all images, whichever are left
        return ascend_adaptively(lambda _: objective, labels[left], ball.at(left), start, steps)

    return repeated(objective, images, labels, one, restarts)


def targeted_apgd(
    classifier: Classifier,
    images: Tensor,
    labels: Tensor,
    epsilon: Radius,
    steps: int = 100,
    restarts: int = 1,
    generator: Randomness | None = None,
) -> Tensor:
    """Auto-PGD on `targeted_dlr` (Croce and Hein 2020): one run, or `restarts`, to each of up to nine other classes, in
    the order of their scores on the image as it is, on the images that withstood those before.

    Returns what `apgd` returns, of the last class that was tried.
    """
    at_least_one("steps", steps)
    at_least_one("restarts", restarts)
    chance, ball = Chance.of(generator, len(images)), Ball.around(images, epsilon)
    with torch.no_grad():
        targets = other_classes(classifier(images), labels)

    def one(left: Tensor, number: int) -> Tensor:
        to, start = targets[left, number // restarts], ball.random(chance)[left]

        def objective_of(chosen: Tensor) -> Objective:
            return towards(classifier, targeted_dlr, to[chosen])

        return ascend_adaptively(objective_of, labels[left], ball.at(left), start, steps)

    return repeated(of_scores(classifier), images, labels, one, restarts * targets.shape[1])


def ascend_adaptively(
    objective_of: Callable[[Tensor], Objective], labels: Tensor, ball: Ball, start: Tensor, steps: int
) -> Tensor:
    """One run of Auto-PGD; images leave it as soon as they are misclassified. objective_of: what is raised for some of
    the images, by their numbers."""
    found, left = start.clone(), torch.arange(len(start), device=start.device)
    values, gradient = with_gradient(objective_of(left), start, labels)
    now, before, best, best_gradient = start, start, start, gradient
    losses, best_losses, kept_losses = values.losses, values.losses, values.losses
    step = torch.full((len(start), 1, 1, 1), 2.0, dtype=start.dtype, device=start.device)  # in units of ε
    raised = torch.zeros(len(start), device=start.device)
    halved = torch.ones(len(start), dtype=torch.bool, device=start.device)  # at the checkpoint before
    marks, last = set(checkpoints(steps)), 0
    state = [now, before, best, gradient, best_gradient, losses, best_losses, kept_losses, step, raised, halved]
    for number in range(1, steps + 1):
        stay = ~misclassified(values.scores, labels[left])
        left, state = left[stay], [each[stay] for each in state]
        if not len(left):
            break
        now, before, best, gradient, best_gradient, losses, best_losses, kept_losses, step, raised, halved = state
        inside, momentum = ball.at(left), 1.0 if number == 1 else MOMENTUM
        ahead = inside.project(now + step * inside.radius * gradient.sign())
        following = inside.project(now + momentum * (ahead - now) + (1 - momentum) * (now - before))
        before, now, losses_before = now, following, losses
        values, gradient = with_gradient(objective_of(left), now, labels[left])
        losses = values.losses
        raised = raised + (losses > losses_before)
        better = losses > best_losses
        best_losses = torch.where(better, losses, best_losses)
        best, best_gradient = (
            torch.where(better[:, None, None, None], new, old) for new, old in ((now, best), (gradient, best_gradient))
        )
        wrong = misclassified(values.scores, labels[left])
        found[left] = torch.where(wrong[:, None, None, None], now, best)
        if number in marks:
            stuck = ~halved & (best_losses <= kept_losses)
            halved = (raised < ENOUGH * (number - last)) | stuck
            mask = halved[:, None, None, None]
            step = torch.where(mask, step / 2, step)
            now, gradient = torch.where(mask, best, now), torch.where(mask, best_gradient, gradient)
            losses = torch.where(halved, best_losses, losses)
            kept_losses, raised, last = best_losses, torch.zeros_like(raised), number
        state = [now, before, best, gradient, best_gradient, losses, best_losses, kept_losses, step, raised, halved]
    return found

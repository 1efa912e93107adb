"""FAB (Croce and Hein 2020, "Minimally distorted adversarial examples with a fast adaptive boundary attack"), targeted,
in the maximum norm: it looks for the nearest misclassified image, and walks along the boundary of the true class."""

from __future__ import annotations

import torch
from torch import Tensor

from quatcaps.errors import at_least_one
from quatcaps.robustness.balls import Ball, Radius
from quatcaps.robustness.minimal import drawn_back
from quatcaps.robustness.objectives import Classifier, lead, misclassified, other_classes, towards, with_gradient

BIAS = 0.1
"""α_max: the largest share that the projection of the original image has in a step."""
OVERSHOT = 1.05
"""η: steps go so far beyond the boundary of the classifier made linear."""
KEPT = 0.9
"""β: the share of its distance from the original image that a misclassified image keeps."""
LEAST_LENGTH = 1e-12


@torch.no_grad()
def targeted_fab(classifier: Classifier, images: Tensor, labels: Tensor, epsilon: Radius, steps: int = 100) -> Tensor:
    """The nearest misclassified images in the maximum norm, where they are within ε; other images as they are.

    Walks along the boundary between the true class and each of up to nine others, in the order of their scores on the
    image as it is. Images leave as soon as they are misclassified within ε. Nothing is left to chance. Where ε
    differs by channel, distances are in units of it.
    """
    at_least_one("steps", steps)
    ball = Ball.around(images, epsilon)
    scores, found = classifier(images), images.clone()
    targets, left = other_classes(scores, labels), (~misclassified(scores, labels)).nonzero().flatten()
    for number in range(targets.shape[1]):
        if not len(left):
            break
        own, inside = labels[left], ball.at(left)
        near = nearest(classifier, own, targets[left, number], inside, steps)
        broken = inside.holds(near) & misclassified(classifier(near), own)
        found[left[broken]], left = near[broken], left[~broken]
    return found


def nearest(classifier: Classifier, labels: Tensor, targets: Tensor, ball: Ball, steps: int) -> Tensor:
    """The nearest misclassified images that a walk along the boundary to one other class each came across; those of the
    ball where it came across none. Of images beyond the ball, the nearest on the line to it."""
    found, least = ball.images.clone(), ball.images.new_full((len(labels),), torch.inf)
    now, left = ball.images, torch.arange(len(labels), device=labels.device)
    for _ in range(steps):
        inside = ball.at(left)
        tried = step(classifier, now, labels[left], targets[left], inside)
        wrong, length = misclassified(classifier(tried), labels[left]), lengths(tried - inside.images, inside.radius)
        nearer = wrong & (length < least[left])
        least[left] = torch.where(nearer, length, least[left])
        found[left] = torch.where(as_images(nearer), tried, found[left])
        now = torch.where(as_images(wrong), inside.images + KEPT * (tried - inside.images), tried)
        stay = ~(wrong & inside.holds(tried))
        left, now = left[stay], now[stay]
        if not len(left):
            return found
    found[left] = drawn_back(classifier, ball.images[left], found[left], labels[left])
    return found


def step(classifier: Classifier, now: Tensor, labels: Tensor, targets: Tensor, ball: Ball) -> Tensor:
    """Where the classifier made linear at x has its boundary, x and the original x₀ go there and a little beyond:
    (1 − α) (x + η δ) + α (x₀ + η δ₀), with the projections δ and δ₀, and α = min(‖δ‖ / (‖δ‖ + ‖δ₀‖), α_max)."""
    original, radius = ball.images, ball.radius
    (here, _), gradient = with_gradient(towards(classifier, lead, targets), now, labels)
    scale = gradient.flatten(1).abs().amax(1)
    scale = torch.where(scale > 0, scale, 1)  # large gradients have no finite products
    here, gradient = here / scale, gradient / as_images(scale)
    there = here + (gradient * (original - now)).sum((1, 2, 3))
    change, first = projection(now, gradient, -here, radius), projection(original, gradient, -there, radius)
    length, first_length = lengths(change, radius), lengths(first, radius)
    share = as_images((length / (length + first_length).clamp(min=LEAST_LENGTH)).clamp(max=BIAS))
    return ((1 - share) * (now + OVERSHOT * change) + share * (original + OVERSHOT * first)).clamp(0, 1)


def projection(points: Tensor, weights: Tensor, rise: Tensor, radius: Tensor) -> Tensor:
    """The smallest change δ (N, C, H, W), by the largest |δⱼ| / rⱼ, that makes w · δ = `rise` (N,) and keeps points in
    [0, 1]; where none does, the one that comes nearest to it.

    All pixels move by λ rⱼ, or as far as there is room, in the direction of ± wⱼ. So w · δ is Σ |wⱼ| min(λ rⱼ, roomⱼ):
    of all lines in λ that have roomⱼ for some pixels and λ rⱼ for the others, the lowest. λ is the largest of those at
    which they come to `rise`. The lines that count have room for the pixels that stop first.
    """
    direction = weights.sign() * as_images(rise.sign())
    room = torch.where(direction > 0, 1 - points, points).flatten(1)
    slopes, limits = (weights.abs() * radius).flatten(1), weights.abs().flatten(1) * room
    order = (room / radius.expand_as(points).flatten(1)).nan_to_num(torch.inf).argsort(1)
    slopes, limits = slopes.gather(1, order), limits.gather(1, order)
    stopped = limits.cumsum(1) - limits
    moving = slopes.flip(1).cumsum(1).flip(1)
    largest = torch.finfo(points.dtype).max
    times = torch.where(moving > 0, (rise.abs()[:, None] - stopped) / moving, 0).amax(1).clamp(0, largest)
    return direction * torch.minimum(as_images(times) * radius, room.view_as(points))


def lengths(changes: Tensor, radius: Tensor) -> Tensor:
    """(N,) the largest |δⱼ| / rⱼ of each image; pixels with r = 0 do not move."""
    return (changes.abs() / radius).nan_to_num(0.0).flatten(1).amax(1)


def as_images(values: Tensor) -> Tensor:
    """(N,) → (N, 1, 1, 1)."""
    return values[:, None, None, None]

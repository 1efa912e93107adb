"""Attacks that look for the nearest misclassified image, in the Euclidean norm."""

from __future__ import annotations

import torch
from torch import Tensor

from quatcaps.errors import at_least_one
from quatcaps.robustness.balls import check_pixels
from quatcaps.robustness.objectives import Classifier, lead, margin, misclassified, other_classes

MOST_CLASSES = 10
"""DeepFool looks at the classes of the largest scores, so many."""
LEAST_NORM = 1e-12
HALVINGS = 10
LEAST_RISE = 1e-5
"""Added to what a score must rise by, so that images on a boundary move too."""


def deepfool(
    classifier: Classifier, images: Tensor, labels: Tensor, steps: int = 50, overshoot: float = 0.02
) -> Tensor:
    """DeepFool (Moosavi-Dezfooli et al. 2016): steps to the nearest boundary of the classifier made linear where it
    stands, a little beyond it, each clipped to [0, 1].

    Where scores saturate, such steps go too far. So the image that is found is drawn back towards the first one as far
    as it stays misclassified. Images that are misclassified come back as they are, and so do those for which no
    misclassified one was found.
    """
    at_least_one("steps", steps)
    check_pixels(images)
    found, current = images.clone(), images.clone()
    moved = torch.zeros_like(images)
    left = torch.arange(len(images), device=images.device)
    for _ in range(steps + 1):
        scores, gradients, others = differences(classifier, current[left], labels[left])
        wrong = misclassified(scores, labels[left])
        found[left[wrong]] = current[left[wrong]]
        left, gradients = left[~wrong], gradients[~wrong]
        if not len(left):
            break
        rise, norm = others[~wrong] + LEAST_RISE, gradients.flatten(2).norm(dim=2).clamp(min=LEAST_NORM)  # (n, others)
        distance = rise / norm
        nearest = distance.argmin(1)
        rows = torch.arange(len(left), device=left.device)
        scale = (distance / norm)[rows, nearest]
        moved[left] += scale[:, None, None, None] * gradients[rows, nearest]
        current[left] = (images[left] + (1 + overshoot) * moved[left]).clamp(0, 1)
    return drawn_back(classifier, images, found, labels)


@torch.no_grad()
def drawn_back(classifier: Classifier, images: Tensor, found: Tensor, labels: Tensor) -> Tensor:
    """The misclassified images between two, as near the first as halving finds them."""
    near, far = torch.zeros(len(images), 1, 1, 1).to(images), torch.ones(len(images), 1, 1, 1).to(images)
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        wrong = misclassified(classifier(images + middle * (found - images)), labels)[:, None, None, None]
        near, far = torch.where(wrong, near, middle), torch.where(wrong, middle, far)
    return torch.where(far < 1, images + far * (found - images), found)


def differences(classifier: Classifier, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (N, classes); of every other class that is looked at, the gradient of its score less the true one's, (N,
    K, C, H, W), and by how much it must rise to be the largest, (N, K)."""
    with torch.enable_grad():
        pixels = images.detach().clone().requires_grad_()
        scores = classifier(pixels)
        others = other_classes(scores.detach(), labels, MOST_CLASSES - 1)
        leads = [lead(scores, labels, other) for other in others.unbind(1)]
        gradients = [torch.autograd.grad(each.sum(), pixels, retain_graph=True)[0] for each in leads]
    return scores.detach(), torch.stack(gradients, 1).nan_to_num(0.0, 0.0, 0.0), -torch.stack(leads, 1).detach()


def carlini_wagner(
    classifier: Classifier,
    images: Tensor,
    labels: Tensor,
    steps: int = 100,
    searches: int = 6,
    rate: float = 0.01,
    first: float = 1.0,
) -> Tensor:
    """The L2 attack of Carlini and Wagner (2017): Adam on ‖x' − x‖² + c · max(0, true score − largest other), and a
    search for the smallest c that succeeds.

    They keep x' in [0, 1] as (1 + tanh w) / 2. Where a pixel of x is 0 or 1 that is flat, so that a black ground moves
    only after thousands of steps; here x' is clipped after each step instead, and steps grow smaller towards the end.
    What is found is drawn back towards x as far as it stays misclassified. Returns what `deepfool` returns. It takes
    `searches` · `steps` gradients.
    """
    at_least_one("steps", steps)
    check_pixels(images)
    at_least_one("searches", searches)
    found, nearest = images.clone(), images.new_full((len(images),), torch.inf)
    low, high = torch.zeros_like(nearest), torch.full_like(nearest, torch.inf)
    weight = torch.full_like(nearest, first)
    for _ in range(searches):
        tried = images.clone().requires_grad_()
        optimiser = torch.optim.Adam([tried], lr=rate)
        falling = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
        succeeded = torch.zeros_like(nearest, dtype=torch.bool)
        for _ in range(steps):
            with torch.enable_grad():
                squares = (tried - images).square().sum((1, 2, 3))
                beyond = margin(classifier(tried), labels)
                (gradient,) = torch.autograd.grad((squares + weight * (-beyond).clamp(min=0)).sum(), tried)
            tried.grad = gradient.nan_to_num(0.0, 0.0, 0.0)
            wrong = beyond.detach() > 0
            succeeded |= wrong
            closer = wrong & (squares.detach() < nearest)
            found[closer], nearest[closer] = tried.detach()[closer], squares.detach()[closer]
            optimiser.step()
            falling.step()
            with torch.no_grad():
                tried.clamp_(0, 1)
        high, low = torch.where(succeeded, weight, high), torch.where(succeeded, low, weight)
        weight = torch.where(high.isinf(), 10 * weight, (low + high) / 2)
    return drawn_back(classifier, images, found, labels)


def distances(images: Tensor, others: Tensor) -> Tensor:
    """(N,) ‖x' − x‖ over the pixels and channels of each image."""
    return (others - images).flatten(1).norm(dim=1)

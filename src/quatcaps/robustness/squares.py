"""The Square attack (Andriushchenko et al. 2020): a random search that reads scores and no gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from quatcaps.errors import at_least_one
from quatcaps.robustness.balls import Ball, Radius
from quatcaps.robustness.chance import Chance, Randomness
from quatcaps.robustness.objectives import Classifier, margin

LARGEST = 0.8
"""The share of the image that the first squares cover."""
HALVED_AT = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""After so many of 10,000 queries the share is halved."""


def share_at(query: int, queries: int) -> float:
    """Which share of the image a square covers."""
    return LARGEST / 2 ** sum(query * 10_000 > mark * queries for mark in HALVED_AT)


@torch.no_grad()
def square(
    classifier: Classifier,
    images: Tensor,
    labels: Tensor,
    epsilon: Radius,
    queries: int = 1000,
    generator: Randomness | None = None,
) -> Tensor:
    """Sets squares of the image to +ε or −ε, by channel, and keeps what lowers the margin of the true class.

    A black box: where it does better than attacks that follow the gradient, gradients are masked.
    """
    at_least_one("queries", queries)
    chance, ball = Chance.of(generator, len(images)), Ball.around(images, epsilon)
    channels, height, width = images.shape[1:]
    best = ball.project(images + ball.radius * chance.signs(channels, 1, width).to(images))
    losses = margin(classifier(best), labels)
    for query in range(1, queries):
        side = max(1, min(round((share_at(query, queries) * height * width) ** 0.5), height, width))
        colours = chance.signs(channels, 1, 1).to(images)
        places = chance.drawn(place, 1).to(images.device)
        left = (losses <= 0).nonzero().flatten()
        if not len(left):
            break
        window = squares(places[:, left], side, height, width)
        inside = ball.at(left)
        tried = torch.where(window, inside.project(inside.images + inside.radius * colours[left]), best[left])
        found = margin(classifier(tried), labels[left])
        better = found > losses[left]
        best[left[better]], losses[left[better]] = tried[better], found[better]
    return best


def place(count: int, generator: torch.Generator) -> Tensor:
    """(2, count) in [0, 1): where squares lie."""
    return torch.rand(2, count, generator=generator)


def squares(places: Tensor, side: int, height: int, width: int) -> Tensor:
    """(N, 1, height, width) bool: a square for each image, placed as `places` (2, N) in [0, 1) say."""
    top = (places[0] * (height - side + 1)).long()[:, None]
    left = (places[1] * (width - side + 1)).long()[:, None]
    rows = torch.arange(height, device=places.device) - top
    columns = torch.arange(width, device=places.device) - left
    return (((rows >= 0) & (rows < side))[:, :, None] & ((columns >= 0) & (columns < side))[:, None])[:, None]

"""Which images an attacker may show: near an image, and images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from quatcaps.errors import QuatcapsError
from quatcaps.robustness.chance import Chance, Randomness

Radius = int | float | Tensor
"""ε: one number, or a tensor that broadcasts to (N, channels, 1, 1) with one for each image and channel."""


@dataclass(frozen=True)
class Ball:
    """The images within ε of N others, in the maximum norm, whose pixels lie in [0, 1].

    >>> ball = Ball.around(torch.tensor([[[[0.02, 0.5]]]]), 0.1)
    >>> ball.project(torch.tensor([[[[-1.0, 1.0]]]])).flatten().tolist()
    [0.0, 0.6000000238418579]
    """

    images: Tensor  # (N, C, H, W)
    radius: Tensor  # (N, 1 or C, 1, 1)

    @staticmethod
    def around(images: Tensor, epsilon: Radius) -> Ball:
        check_epsilon(epsilon)
        check_pixels(images)
        radius = torch.as_tensor(epsilon, dtype=images.dtype, device=images.device)
        radius = radius.view(1, 1, 1, 1) if radius.ndim == 0 else radius
        return Ball(images, radius.expand(len(images), *radius.shape[1:]))

    @property
    def low(self) -> Tensor:
        return (self.images - self.radius).clamp(min=0)

    @property
    def high(self) -> Tensor:
        return (self.images + self.radius).clamp(max=1)

    def project(self, images: Tensor) -> Tensor:
        """The nearest images of the ball."""
        return images.clamp(self.low, self.high)

    def holds(self, images: Tensor) -> Tensor:
        """(N,) bool: whether images lie in the ball."""
        return ((images >= self.low) & (images <= self.high)).flatten(1).all(1)

    def random(self, source: Randomness) -> Tensor:
        """Images drawn uniformly from |x' − x| ≤ ε, then clipped to [0, 1]; the same on every device."""
        share = Chance.of(source, len(self.images)).uniform(*self.images.shape[1:]).to(self.images)
        return self.project(self.images + (2 * share - 1) * self.radius)

    def at(self, chosen: Tensor) -> Ball:
        """Those of some of the images."""
        return Ball(self.images[chosen], self.radius[chosen])


def check_pixels(images: Tensor) -> None:
    """Raises unless images are floats in [0, 1]: others would be clipped, far from what was given."""
    if not images.is_floating_point():
        raise QuatcapsError(f"images of {images.dtype}: attacks take floats in [0, 1]; divide bytes by 255")
    if images.numel() and not (float(images.min()) >= 0 and float(images.max()) <= 1):
        raise QuatcapsError(
            f"images from {float(images.min()):g} to {float(images.max()):g}: attacks take pixels in [0, 1], before "
            "anything is standardised; divide bytes by 255, and let the classifier standardise"
        )


def check_epsilon(epsilon: Radius, *, normalised: bool = False) -> None:
    """Raises unless ε is above 0 and finite; of pixels it is at most 1.

    >>> check_epsilon(8)
    Traceback (most recent call last):
    quatcaps.errors.QuatcapsError: ε = 8: pixels lie in [0, 1], it must be above 0 and at most 1; for 8/255 give 0.0314
    """
    if isinstance(epsilon, Tensor):
        if not (bool(epsilon.isfinite().all()) and bool((epsilon >= 0).all())):
            raise QuatcapsError("ε has numbers below 0, or not finite: give one above 0 for every image and channel")
        return
    if normalised:
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise QuatcapsError(f"ε = {epsilon:g}: it must be above 0 and finite")
    elif not (math.isfinite(epsilon) and 0 < epsilon <= 1):
        hint = f"; for {epsilon:g}/255 give {epsilon / 255:.3g}" if 1 < epsilon <= 255 else ""
        raise QuatcapsError(f"ε = {epsilon:g}: pixels lie in [0, 1], it must be above 0 and at most 1{hint}")

"""A trained network as attackers see it: pixels in [0, 1] in, scores out, gradients through its preprocessing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from quatcaps.accelerator import current, rounding
from quatcaps.data.standardising import SMALLEST_DEVIATION, standardised
from quatcaps.data.windows import centre_crop
from quatcaps.errors import QuatcapsError
from quatcaps.layers.capsules import without_autocast
from quatcaps.layers.explanation import stopped_early
from quatcaps.layers.residual import by_modules
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.pipelines import Pipeline
from quatcaps.robustness.objectives import Loss, Objective, Values, cross_entropy
from quatcaps.training.trained import Trained

LEAST_BATCH = 16
"""Kernels are compiled apart for numbers that 16 does not divide."""


@dataclass(frozen=True)
class Victim:
    """A trained network, called with pixels (N, channels, height, width) in [0, 1]: scores (N, classes).

    The network sees the middle of the image, standardised as when it is evaluated; gradients go through both. Scores
    are what its cross-entropy reads in training: those of the network times `score_scale`. Of several windows of a test
    image, or mirror images, only the middle is attacked.
    """

    trained: Trained

    @property
    def pipeline(self) -> Pipeline:
        return self.trained.config

    @property
    def scale(self) -> float:
        return self.trained.config.score_scale

    @property
    def has_votes(self) -> bool:
        """Whether there are class capsules whose votes can be attacked."""
        return isinstance(self.trained.network, CapsuleNetwork)

    def __call__(self, pixels: Tensor) -> Tensor:
        with current(pixels.device):
            return self.scale * self.trained.network(self.seen(filled_up(pixels))).scores.float()[: len(pixels)]

    def seen(self, pixels: Tensor) -> Tensor:
        """What the network sees of pixels in [0, 1]: the middle, standardised."""
        side, shown = self.pipeline.crop, 255 * pixels
        cropped = centre_crop(shown, side) if side and pixels.shape[2:] != (side, side) else shown
        return standardised(self.pipeline, cropped, shown)

    def votes(self, loss: Loss = cross_entropy) -> Objective:
        """The objective of the vote attack (Gu et al. 2021): a loss on what the votes of the class capsules say before
        routing has weighed them.

        Theirs is the length of the mean vote. Votes of Gaussian routing have no length that counts; what counts is how
        well they agree. So the loss reads the class activations that the votes come to in equal shares, that is after
        one iteration. Whether an image is misclassified is told by the network as it is.
        """
        network = self.trained.network
        if not isinstance(network, CapsuleNetwork):
            raise QuatcapsError(
                f"{self.trained.name} is a {type(network).__name__} without class capsules, so that there are no votes "
                "to attack: give a capsule network, or other --attacks"
            )

        def objective(images: Tensor, labels: Tensor) -> Values:
            with current(images.device):
                scores = agreement(network, self.seen(filled_up(images)))
            unrouted, routed = (self.scale * each.float()[: len(images)] for each in scores)
            return Values(loss(unrouted, labels), routed)

        return objective

    def deviations(self, pixels: Tensor) -> Tensor:
        """(N or 1, channels or 1, 1, 1): by how much a pixel in [0, 1] must change for the network's input to change
        by 1. Of images that are standardised one by one it is the deviation of the image as it is."""
        if self.pipeline.standardise == "none":
            return pixels.new_ones(1, 1, 1, 1)
        if self.pipeline.standardise == "channel":
            return pixels.new_tensor(self.pipeline.deviation).view(1, -1, 1, 1)
        side = self.pipeline.reads
        middle = centre_crop(pixels, side) if side and pixels.shape[2:] != (side, side) else pixels
        over = (1, 2, 3) if self.pipeline.standardise == "image" else (2, 3)
        return middle.std(over, correction=0, keepdim=True).clamp(min=SMALLEST_DEVIATION / 255)


def filled_up(images: Tensor) -> Tensor:
    """On a GPU, followed by copies of the first image up to a power of two. Images leave an attack one by one, and
    kernels would be compiled for most of the numbers that are left."""
    wanted = whole_batch(len(images), images.device)
    if wanted <= len(images):
        return images
    copies = images[:1].detach().expand(wanted - len(images), -1, -1, -1)
    return torch.cat([images, copies])


def whole_batch(count: int, device: torch.device) -> int:
    """How many images are shown instead of `count`."""
    return max(LEAST_BATCH, 1 << (count - 1).bit_length()) if device.type == "cuda" and count else count


def agreement(network: CapsuleNetwork, images: Tensor) -> tuple[Tensor, Tensor]:
    """Class activations (N, classes) by the votes in equal shares, and by the votes as they are routed."""
    poses, activations = network.primary(images)
    for layer in network.layers:
        poses, activations = layer(poses, activations)
    with without_autocast(poses.device):
        votes = network.classify.votes_of(poses, activations)
        first = next(stopped_early(network.classify.routing))
        return first(votes).activations.flatten(1), network.classify.routing(votes).activations.flatten(1)


@contextmanager
def under_attack(*victims: Victim) -> Iterator[None]:
    """In evaluation mode, without gradients of weights, and by one arithmetic; all of it is put back at the end.

    Attacks end next to the boundary between two classes, and a gradient leads there. So who judges must compute as the
    gradient does: residual blocks as modules, which otherwise run by kernels or in C where nobody wants gradients, and
    convolutions without TF32, which rounds in the fourth digit.
    """
    networks = [victim.trained.network for victim in victims]
    modes = [network.training for network in networks]
    learned = [weight for network in networks for weight in network.parameters() if weight.requires_grad]
    try:
        for network in networks:
            network.eval()
        for weight in learned:
            weight.requires_grad_(False)
        with torch.no_grad(), by_modules(*networks), rounding("ieee"):
            yield
    finally:
        for weight in learned:
            weight.requires_grad_(True)
        for network, mode in zip(networks, modes, strict=True):
            network.train(mode)

"""One evaluation loop: what a network says of many images.

On a GPU a batch is one graph from the second of its shape on: a forward pass is a hundred kernels, each over before
Python has launched the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from quatcaps.accelerator import current
from quatcaps.data.imageset import ImageSet
from quatcaps.data.preprocessing import views_for_evaluation
from quatcaps.layers import holds_votes
from quatcaps.layers.as_made import watched
from quatcaps.models import Network
from quatcaps.pipelines import Pipeline

MEMORY = 2**30
"""Bytes that one evaluation batch may spend on features, or on votes and what is computed from them."""
BYTES_PER_VOTE = 3 * 4 * 6
BYTES_PER_PIXEL = 64 * 4 * 4
"""Some features of 64 channels, as large as the image."""
LARGEST_BATCH = 512


def evaluation_batch(network: Network, size: tuple[int, int]) -> int:
    """How many images of height and width `size` fit in `MEMORY` at once."""
    needed = BYTES_PER_PIXEL * size[0] * size[1]
    if holds_votes(network):
        needed += BYTES_PER_VOTE * network.votes(*size)
    return max(1, min(LARGEST_BATCH, MEMORY // needed))


class Predictions(NamedTuple):
    """What a network says of N images, float32; of whole sets on the CPU."""

    activations: Tensor  # (N, classes), averaged over the views that the pipeline has of an image
    poses: Tensor | None  # (N, classes, dims) of the first view, where classes have poses


class Predictor:
    """Asks one network about images, again and again. Its weights may change between two times, in their place."""

    def __init__(self, network: Network, pipeline: Pipeline, device: torch.device, *, capture: bool = True) -> None:
        """capture: use graphs on a GPU, as long as nobody watches the modules."""
        self.network, self.pipeline, self.device = network, pipeline, device
        self.may_capture = capture and device.type == "cuda"
        self.graphs: dict[torch.Size, Graph | None] = {}  # none yet, by the shapes that came once

    @torch.no_grad()
    def __call__(self, images: ImageSet, progress: Callable[[int, int], None] | None = None) -> Predictions:
        """The activation and the pose of every class for every image; restores the training mode."""
        self.pipeline.check(images.channels, images.size)
        training = self.network.training
        self.network.eval()
        found: list[Predictions] = []
        try:
            batch = evaluation_batch(self.network, self.pipeline.seen(images.size))
            for start in range(0, len(images), batch):
                pixels = images.at(slice(start, start + batch)).to(self.device)
                found.append(self.of_batch(pixels))
                if progress is not None:
                    progress(start + len(pixels), len(images))
        finally:
            self.network.train(training)
        poses = [each.poses for each in found if each.poses is not None]
        return Predictions(
            torch.cat([each.activations for each in found]).cpu(), torch.cat(poses).cpu() if poses else None
        )

    @torch.no_grad()
    def of_batch(self, pixels: Tensor) -> Predictions:
        """Of (n, C, H, W) uint8 images on the device, which all stays there; the network is to be in evaluation."""
        with current(self.device):
            return self.forward_or_replay(pixels)

    def forward_or_replay(self, pixels: Tensor) -> Predictions:
        if not self.may_capture or seen_by_others(self.network):
            return self.forward(pixels)
        graph = self.graphs.get(pixels.shape)
        if graph is None and pixels.shape in self.graphs:
            try:
                graph = Graph(self.forward, pixels)
            except RuntimeError:  # it waits for the GPU, or memory is short
                self.may_capture = False
                return self.forward(pixels)
        self.graphs[pixels.shape] = graph
        return self.forward(pixels) if graph is None else graph(pixels)

    def forward(self, pixels: Tensor) -> Predictions:
        outputs = [self.network(view) for view in views_for_evaluation(self.pipeline, pixels)]
        poses = getattr(outputs[0], "poses", None)
        activations = torch.stack([output.activations.float() for output in outputs]).mean(0)
        return Predictions(activations, None if poses is None else poses.float())


def seen_by_others(network: Network) -> bool:
    """Whether somebody is to be told what its modules do, which a graph does not tell."""
    return bool(nn.modules.module._has_any_global_hook()) or any(map(watched, network.modules()))


class Graph:
    """A forward pass of images of one shape."""

    def __init__(self, forward: Callable[[Tensor], Predictions], pixels: Tensor) -> None:
        self.pixels = pixels.clone()
        self.graph = torch.cuda.CUDAGraph()
        # Without a stream it would be one that belongs to the GPU on which this process captured first.
        side = torch.cuda.Stream(pixels.device)
        with torch.cuda.graph(self.graph, stream=side, capture_error_mode="thread_local"):
            self.found = forward(self.pixels)

    def __call__(self, pixels: Tensor) -> Predictions:
        self.pixels.copy_(pixels)
        self.graph.replay()
        activations, poses = self.found
        return Predictions(activations.clone(), None if poses is None else poses.clone())


def predictions_of(
    network: Network,
    images: ImageSet,
    pipeline: Pipeline,
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """The activation and the pose of every class for every image; restores the training mode."""
    return Predictor(network, pipeline, device)(images, progress)


def activations_of(
    network: Network,
    images: ImageSet,
    pipeline: Pipeline,
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """(N, classes): the activations alone."""
    return predictions_of(network, images, pipeline, device, progress).activations

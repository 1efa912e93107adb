"""A network as other programs take it: named outputs, plain operators, preprocessing inside where asked for."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from quatcaps.data.standardising import standardise_channels, standardise_images, standardise_views
from quatcaps.data.windows import centre_crop
from quatcaps.layers import CapsuleLayer, use_backend
from quatcaps.models import Network
from quatcaps.pipelines import Pipeline
from quatcaps.training.preprocess import Preprocessing

INPUT = "images"


class Portable(nn.Module):
    """(N, channels, height, width) → `activations` (N, classes) and, where there are poses, `poses` (N, classes, dims).

    With preprocessing, images are bytes of the size that was stored for training; without, they are float32 as
    `network.preprocess` gives them.
    """

    def __init__(self, network: Network, size: tuple[int, int], before: nn.Module | None) -> None:
        super().__init__()
        self.network, self.before = network, before
        self.shape = (network.channels, *size)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        output = self.network(images if self.before is None else self.before(images))
        found = {"activations": output.activations}
        poses = getattr(output, "poses", None)
        return found if poses is None else {**found, "poses": poses}

    def example(self, count: int) -> Tensor:
        """So many random images of the kind it takes; the same ones each time."""
        generator = torch.Generator().manual_seed(count)
        if self.before is None:
            return torch.randn(count, *self.shape, generator=generator)
        return torch.randint(256, (count, *self.shape), generator=generator, dtype=torch.uint8)


class Standardised(nn.Module):
    """(N, C, H, W) bytes → the middle window, standardised: `for_evaluation` with its constants as buffers, so that
    they become part of the exported file."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self.crop, self.kind, self.whole = pipeline.crop, pipeline.standardise, pipeline.standardise_from == "whole"
        self.register_buffer("mean", torch.tensor(pipeline.mean))
        self.register_buffer("deviation", torch.tensor(pipeline.deviation))

    def forward(self, images: Tensor) -> Tensor:
        seen = centre_crop(images, self.crop) if self.crop else images
        source = images if self.whole else seen
        if self.kind == "view":
            return standardise_views(seen, source)
        if self.kind == "image":
            return standardise_images(seen, source)
        if self.kind == "none":
            return seen.float() / 255
        return standardise_channels(seen, self.mean, self.deviation)


class FixedMaps(nn.Module):
    """The maps of a trained layer as the numbers that they are: nobody learns their angles and axes any more."""

    values: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values.detach().clone())

    def forward(self) -> Tensor:
        return self.values


def portable(network: Network, size: tuple[int, int], preprocessing: Preprocessing | None) -> Portable:
    """A copy of the network in float32 on the CPU, in evaluation mode, routed by the reference: its operators are
    PyTorch's own, and those of the other backends are known to quatcaps alone.

    size: height and width of the images that it takes.
    """
    copied = use_backend(copy.deepcopy(network).cpu().float().eval().requires_grad_(False), "reference")
    for layer in copied.modules():
        if isinstance(layer, CapsuleLayer):
            layer.maps = FixedMaps(layer.maps())
    before = None if preprocessing is None else Standardised(preprocessing.config)
    return Portable(copied, size, before).eval()

"""What a network saw in a few images: the capsules of every layer, and the part–whole tree below each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from quatcaps.errors import QuatcapsError
from quatcaps.layers.convolution import margins
from quatcaps.layers.explanation import ExplainedLayer, Scale, memory_needed, on_a_grid

if TYPE_CHECKING:
    from quatcaps.models.capsule_network import CapsuleNetwork

MEMORY = 4 * 2**30
"""Bytes of votes that an explanation may form."""


class Part(NamedTuple):
    """A capsule, and what it gives to a capsule of the layer above it."""

    level: int  # 0: primary capsules
    capsule: int  # its type
    row: int
    column: int
    activation: float  # a_i
    assignment: float  # r_ij: the share of it that the parent takes
    share: float  # a_i r_ij / Σ a r: the share of the parent that comes from it
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """The layers of capsules for N images: primary capsules first, classes last.

    >>> import quatcaps
    >>> network = quatcaps.build("qcn-small", channels=2, classes=5)
    >>> explanation = network.explain(torch.rand(1, 2, 32, 32))
    >>> [layer.name for layer in explanation.layers]
    ['primary', 'capsules 1', 'capsules 2', 'classes']
    >>> explanation.layers[-1].assignments.shape  # images, rows, columns, children, classes, and a grid of 1×1
    torch.Size([1, 1, 1, 12, 5, 1, 1])
    """

    layers: tuple[ExplainedLayer, ...]

    def parts(
        self, image: int, level: int, capsule: int, row: int = 0, column: int = 0, most: int = 5
    ) -> tuple[Part, ...]:
        """The children that give most to a capsule, largest first; those outside the grid give nothing."""
        layer = self.layers[level]
        if layer.reach is None:
            return ()
        below, reach = self.layers[level - 1], layer.reach
        height, width = below.grid
        rows = torch.arange(reach.rows) + row * reach.stride - reach.padding[0]
        columns = torch.arange(reach.columns) + column * reach.stride - reach.padding[1]
        inside = ((rows >= 0) & (rows < height))[:, None] & ((columns >= 0) & (columns < width))
        activations = below.capsules.activations[image].cpu()
        seen = activations[:, rows.clamp(0, height - 1)][:, :, columns.clamp(0, width - 1)].permute(1, 2, 0)
        taken = layer.assignments[image, ..., capsule, row, column].cpu()  # (rows, columns, I)
        given = seen * taken * inside[..., None]
        total = given.sum().clamp(min=torch.finfo(given.dtype).tiny)
        values, order = given.flatten().topk(min(most, given.numel()))
        found = []
        for value, index in zip(values.tolist(), order.tolist(), strict=True):
            if value <= 0:
                break
            place, kind = divmod(index, given.shape[2])
            down, across = divmod(place, reach.columns)
            at = (down, across, kind)
            found.append(
                Part(
                    level=level - 1,
                    capsule=kind,
                    row=int(rows[down]),
                    column=int(columns[across]),
                    activation=float(seen[at]),
                    assignment=float(taken[at]),
                    share=value / float(total),
                )
            )
        return tuple(found)

    def tree(self, image: int, capsule: int | None = None, most: int = 3) -> tuple[Part, ...]:
        """The parts of a class, each with its own parts, down to the primary capsules; without a class, of the one that
        is named."""
        level = len(self.layers) - 1
        if capsule is None:
            capsule = int(self.layers[level].capsules.activations[image].flatten().argmax())

        def below(part: Part) -> Part:
            parts = self.parts(image, part.level, part.capsule, part.row, part.column, most)
            return part._replace(parts=tuple(below(child) for child in parts))

        return tuple(below(part) for part in self.parts(image, level, capsule, most=most))


@torch.no_grad()
def explain(network: CapsuleNetwork, images: Tensor) -> Explanation:
    """Capsules and assignments of every layer, as evaluation has them."""
    check_memory(network, images)
    training = network.training
    network.eval()
    try:
        capsules = network.primary(images)
        places = primary_places(network, *images.shape[-2:])
        layers = [ExplainedLayer("primary", capsules, places)]
        for number, layer in enumerate((*network.convolutional, network.classify), 1):
            reach = layer.reach(*capsules.activations.shape[-2:])
            iterations = layer.explain(*capsules)
            capsules = on_a_grid(iterations[-1].capsules)
            sides = zip(places, (reach.rows, reach.columns), reach.padding, strict=True)
            down, across = (scale.over(side, reach.stride, padding) for scale, side, padding in sides)
            places = (down, across)
            name = "classes" if layer is network.classify else f"capsules {number}"
            layers.append(ExplainedLayer(name, capsules, places, reach, iterations))
    finally:
        network.train(training)
    return Explanation(tuple(layers))


def primary_places(network: CapsuleNetwork, height: int, width: int) -> tuple[Scale, Scale]:
    """Where primary capsules stand on an image: convolutions with padding begin at pixel 0, a stem in the middle of its
    kernel, less what it is padded with."""
    stem = network.primary.stem
    if stem is None:
        scale = Scale(0.0, float(network.primary.stride))
        return scale, scale
    _, kernel, stride = stem
    before = [margins(side, kernel, stride)[0] if network.primary.stem_padded else 0 for side in (height, width)]
    down, across = (Scale((kernel - 1) / 2 - zeros, float(stride)) for zeros in before)
    return down, across


def check_memory(network: CapsuleNetwork, images: Tensor) -> None:
    height, width = images.shape[-2:]
    weight = next(network.parameters())
    dims = network.classify.pose.dims
    each = max(memory_needed(votes, dims, weight.dtype) for votes in network.votes_by_layer(height, width))
    if len(images) * each > MEMORY:
        raise QuatcapsError(
            f"{len(images)} images: to explain them takes {len(images) * each / 2**30:.1f} GiB of votes; give at most "
            f"{max(1, MEMORY // each)} at a time"
        )

"""The paper's own way to form votes, equations 14 and 15, for comparison.

Poses are padded to four numbers, every vote is two products with 4×4 embeddings of the rotor, and the real part goes
through the routing as a fourth dimension. The layers, weights and everything else are those of the network given.
"""

from __future__ import annotations

import copy

import torch.nn.functional as F
from torch import Tensor, nn

from quatcaps import quaternion
from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError
from quatcaps.layers import ClassCapsules, ConvolutionalCapsules
from quatcaps.models import CapsuleNetwork, Network
from quatcaps.poses.quaternion import RotorMaps
from quatcaps.routing import Window
from quatcaps.routing.reference import FormedVotes, windows


class PaperCapsules(nn.Module):
    """A capsule layer with the weights of `layer`, its votes formed by equation 15."""

    def __init__(self, layer: ConvolutionalCapsules | ClassCapsules) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, poses: Tensor, activations: Tensor) -> Capsules:
        layer, maps = self.layer, self.layer.maps
        assert isinstance(maps, RotorMaps)
        whole_grid = isinstance(layer, ClassCapsules)
        height, width = poses.shape[-2:]
        window = Window(height, width, shared=True) if isinstance(layer, ClassCapsules) else layer.window
        capsules = layer.routing(paper_votes(poses, activations, maps.angle, maps.axis, window))
        pure = Capsules(capsules.poses[:, :, 1:], capsules.activations)
        return Capsules(pure.poses.flatten(2), pure.activations.flatten(1)) if whole_grid else pure


def paper_votes(poses: Tensor, activations: Tensor, angle: Tensor, axis: Tensor, window: Window) -> FormedVotes:
    """v = ᴸW* ᴿW u for every vote, as (B, J, 4, 1, N·P)."""
    images, children, _, height, width = poses.shape
    parents, grid = angle.shape[2], window.positions(height, width)
    points = images * grid[0] * grid[1]
    padded = F.pad(poses, (0, 0, 0, 0, 1, 0))
    seen = windows(padded.flatten(1, 2), window).view(images, children, 4, window.places, -1)
    seen = seen.permute(3, 1, 2, 0, 4).reshape(-1, 4, points)
    rotor = quaternion.rotor(angle, axis).expand(window.places, -1, -1, -1).reshape(-1, parents, 4)
    first, second = quaternion.left_embedding(rotor), quaternion.right_embedding(quaternion.conjugate(rotor))
    votes = second @ (first @ seen[:, None])
    present = windows(activations, window).view(images, children, window.places, -1)
    return FormedVotes(votes[:, :, :, None], present.permute(2, 1, 0, 3).reshape(-1, points), images, grid)


def as_in_the_paper(network: Network) -> CapsuleNetwork:
    """A copy of `network` that forms its votes as the paper does; an error unless its poses are quaternions, turned."""
    if not isinstance(network, CapsuleNetwork):
        raise QuatcapsError(f"turns the poses of capsule networks, not a {type(network).__name__}")
    for layer in (*network.convolutional, network.classify):
        if not isinstance(layer.maps, RotorMaps):
            raise QuatcapsError(f"turns quaternions, not poses of the kind {layer.pose.name!r}")
    network = copy.deepcopy(network)
    network.layers = nn.ModuleList([PaperCapsules(layer) for layer in network.convolutional])
    network.register_module("classify", PaperCapsules(network.classify))
    return network

"""Capsule layers: `(poses, activations) → (poses, activations)`, whatever the pose and the routing."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError, at_least_one
from quatcaps.poses import PoseType, pose_type
from quatcaps.routing import EM, Window, soft_moments


@runtime_checkable
class Routing(Protocol):
    """Settings of a routing that a layer can hold, such as `EM`."""

    @property
    def competition(self) -> str: ...

    def module(self, parents: int) -> nn.Module:
        """A module that turns `SoftMoments` into `Capsules` of that many parent types."""
        ...


class ConvolutionalCapsules(nn.Module):
    """Every parent position sees a `kernel` × `kernel` window of children, without padding.

    poses (N, children, dims, H, W), activations (N, children, H, W)
    → poses (N, parents, dims, H', W'), activations (N, parents, H', W'), with H' = ⌊(H − kernel)/stride⌋ + 1.

    >>> layer = ConvolutionalCapsules(children=32, parents=16, kernel=5)
    >>> poses, activations = layer(torch.randn(2, 32, 3, 9, 9), torch.rand(2, 32, 9, 9))
    >>> poses.shape, activations.shape
    (torch.Size([2, 16, 3, 5, 5]), torch.Size([2, 16, 5, 5]))
    """

    def __init__(
        self,
        children: int,
        parents: int,
        kernel: int = 5,
        stride: int = 1,
        *,
        pose: str | PoseType = "quaternion",
        routing: Routing = EM(),
        backend: str = soft_moments.AUTO,
    ) -> None:
        super().__init__()
        at_least_one("child capsules", children)
        at_least_one("parent capsules", parents)
        self.capsules_in, self.capsules_out = children, parents
        self.pose = pose_type(pose)
        self.window = Window(kernel, kernel, stride)
        self.competition, self.backend = routing.competition, backend
        soft_moments.check(backend)
        self.maps = self.pose.maps(self.window.offsets, children, parents)
        self.routing = routing.module(parents)

    def forward(self, poses: Tensor, activations: Tensor) -> Capsules:
        check_children(poses, activations, self.capsules_in, self.pose.dims)
        return route(poses, activations, self.maps, self.window, self.competition, self.routing, self.backend)

    def votes(self, height: int, width: int) -> int:
        """How many votes an image's children on a `height` × `width` grid cast."""
        rows, columns = self.window.positions(height, width)
        return rows * columns * self.window.places * self.capsules_in * self.capsules_out

    def extra_repr(self) -> str:
        return f"{self.capsules_in} → {self.capsules_out}, {self.window}"


class ClassCapsules(nn.Module):
    """One parent per class sees all children; a child type uses the same map at every position.

    `coordinates`: where a child stands, (row, column) as parts of the grid, is added to the first two numbers of the
    last column of its votes (Hinton et al. 2018), so that sharing the maps does not lose it. It needs a pose of two
    rows or more.

    poses (N, children, dims, H, W), activations (N, children, H, W)
    → poses (N, classes, dims), activations (N, classes).
    """

    def __init__(
        self,
        children: int,
        classes: int,
        *,
        pose: str | PoseType = "quaternion",
        routing: Routing = EM(),
        backend: str = soft_moments.AUTO,
        coordinates: bool = False,
    ) -> None:
        super().__init__()
        at_least_one("child capsules", children)
        at_least_one("classes", classes)
        self.capsules_in, self.capsules_out = children, classes
        self.pose, self.coordinates = pose_type(pose), coordinates
        if coordinates:
            soft_moments.check_coordinates(self.pose.dims, self.pose.columns)
        self.competition, self.backend = routing.competition, backend
        soft_moments.check(backend)
        self.maps = self.pose.maps(1, children, classes)
        self.routing = routing.module(classes)

    def forward(self, poses: Tensor, activations: Tensor) -> Capsules:
        check_children(poses, activations, self.capsules_in, self.pose.dims)
        window = Window(poses.shape[-2], poses.shape[-1], shared=True, coordinates=self.coordinates)
        capsules = route(poses, activations, self.maps, window, self.competition, self.routing, self.backend)
        return Capsules(capsules.poses.flatten(2), capsules.activations.flatten(1))

    def votes(self, height: int, width: int) -> int:
        """How many votes an image's children on a `height` × `width` grid cast."""
        return height * width * self.capsules_in * self.capsules_out

    def extra_repr(self) -> str:
        return f"{self.capsules_in} → {self.capsules_out} classes"


def route(
    poses: Tensor,
    activations: Tensor,
    maps: nn.Module,
    window: Window,
    competition: str,
    routing: nn.Module,
    backend: str,
) -> Capsules:
    """Votes, then parents, in float32 or better whatever autocast says."""
    with torch.autocast(poses.device.type, enabled=False):
        votes = soft_moments.bind(poses, activations, maps(), window, competition=competition, backend=backend)
        return routing(votes)


def holds_votes(network: nn.Module) -> bool:
    """Whether a capsule layer of `network` has all its votes in memory at once: the reference does, and whoever else
    competes over all positions, as only the reference can."""
    return any(
        module.backend == "reference" or module.competition != "position"
        for module in network.modules()
        if isinstance(module, ConvolutionalCapsules | ClassCapsules)
    )


def use_backend(network: nn.Module, backend: str) -> nn.Module:
    """Has all capsule layers of `network` compute by that backend; returns the network."""
    soft_moments.check(backend)
    for module in network.modules():
        if isinstance(module, ConvolutionalCapsules | ClassCapsules):
            module.backend = backend
    return network


def check_children(poses: Tensor, activations: Tensor, children: int, dims: int) -> None:
    """Raises unless the two tensors are `children` capsules of `dims` numbers on one grid."""
    if poses.ndim != 5 or poses.shape[1:3] != (children, dims):
        raise QuatcapsError(
            f"poses have shape {tuple(poses.shape)}: this layer takes (N, {children} capsules, {dims} numbers, "
            "height, width)"
        )
    expected = (poses.shape[0], children, *poses.shape[3:])
    if activations.shape != expected:
        raise QuatcapsError(
            f"activations have shape {tuple(activations.shape)}: with these poses they must be {expected}"
        )
    if not (poses.is_floating_point() and activations.is_floating_point()):
        raise QuatcapsError(f"poses are {poses.dtype} and activations {activations.dtype}: give floating-point tensors")

"""Capsule layers: `(poses, activations) → (poses, activations)`, whatever the pose and the routing."""

from __future__ import annotations

import contextlib
import math
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError, at_least_one, unknown_name
from quatcaps.layers.explanation import Iteration, Reach, iterations_of
from quatcaps.layers.residual import ResidualTrunk
from quatcaps.poses import PoseType, pose_type
from quatcaps.routing import EM, Routing, Votes, Window
from quatcaps.routing.backends import AUTO, REFERENCE, check, choose
from quatcaps.routing.shapes import Shapes
from quatcaps.routing.votes import check_coordinates
from quatcaps.routing.window import COORDINATE_RULES

Module = TypeVar("Module", bound=nn.Module)


class CapsuleLayer(nn.Module):
    """What all layers of routed capsules are: maps that make votes of children, and a routing."""

    def __init__(
        self, children: int, parents: int, offsets: int, pose: str | PoseType, routing: Routing, backend: str
    ) -> None:
        super().__init__()
        check(backend)
        self.capsules_in, self.capsules_out = children, parents
        self.pose = pose_type(pose)
        self.competition, self.iterations, self.backend = routing.competition, routing.iterations, backend
        floor = getattr(routing, "log_floor", None)
        self.log_floor: float = -math.inf if floor is None else floor(self.pose.dims)
        self.maps = self.pose.maps(offsets, children, parents)
        self.routing = routing.module(parents)

    def window_of(self, height: int, width: int) -> Window:
        """What a parent sees of children on a grid of that size."""
        raise NotImplementedError

    def votes_of(self, poses: Tensor, activations: Tensor, backend: str | None = None) -> Votes:
        """The votes of these children, summed by the layer's backend or by the one that is given."""
        backend = backend or self.backend
        check_children(poses, activations, self.capsules_in, self.pose.dims)
        window = self.window_of(*poses.shape[-2:])
        by = self.computed_by(poses, backend) if self.pose.fused else REFERENCE
        maps = self.maps() if by == REFERENCE else self.maps(by=by)
        return Votes(
            poses,
            activations,
            maps,
            window,
            competition=self.competition,
            backend=backend,
            iterations=self.iterations,
            bounded=self.pose.bounded,
            log_floor=self.log_floor,
        )

    def computed_by(self, poses: Tensor, backend: str | None = None) -> str:
        """The backend that routes such poses here."""
        images, children, dims, height, width = poses.shape
        shapes = Shapes(
            *(images, children, dims, height, width, self.capsules_out, self.pose.columns),
            self.window_of(height, width),
            self.competition,
            self.log_floor,
        )
        dtype = torch.float32 if poses.dtype in (torch.float16, torch.bfloat16) else poses.dtype
        return choose(backend or self.backend, shapes, dtype, poses.device).name

    def route(self, poses: Tensor, activations: Tensor) -> Capsules:
        """Votes, then parents, in float32 or better whatever autocast says."""
        if poses.device.type == "meta":
            return self.shapes_alone(poses, activations)
        with without_autocast(poses.device):
            return self.routing(self.votes_of(poses, activations))

    def shapes_alone(self, poses: Tensor, activations: Tensor) -> Capsules:
        """Parents without numbers, as `meta` has them; routing would take hundreds of operations to the same end."""
        check_children(poses, activations, self.capsules_in, self.pose.dims)
        height, width = poses.shape[-2:]
        grid = (len(poses), self.capsules_out, *self.window_of(height, width).positions(height, width))
        dtype = torch.float32 if poses.dtype in (torch.float16, torch.bfloat16) else poses.dtype
        return Capsules(
            poses.new_empty(*grid[:2], self.pose.dims, *grid[2:], dtype=dtype), poses.new_empty(grid, dtype=dtype)
        )

    def reach(self, height: int, width: int) -> Reach:
        """Which children on a grid of that size a parent sees."""
        window = self.window_of(height, width)
        return Reach(window.height, window.width, window.stride, (0, 0))

    def explain(self, poses: Tensor, activations: Tensor) -> tuple[Iteration, ...]:
        """What each iteration of routing makes of these children, and who votes for whom. All votes are formed, on the
        reference backend: give a few images."""
        reach = self.reach(*poses.shape[-2:])
        with without_autocast(poses.device):
            votes = self.votes_of(*self.padded(poses, activations), backend=REFERENCE)
            return tuple(iterations_of(votes, self.routing, reach.rows, reach.columns))

    def padded(self, poses: Tensor, activations: Tensor) -> Capsules:
        """The children that votes come from."""
        return Capsules(poses, activations)


class ConvolutionalCapsules(CapsuleLayer):
    """Every parent position sees a window of children: `kernel` × `kernel`, or (height, width).

    `padding` adds rows and columns of inactive children around the grid, as many on all sides, or (above and below,
    left and right).

    poses (N, children, dims, H, W), activations (N, children, H, W)
    → poses (N, parents, dims, H', W'), activations (N, parents, H', W'),
    with H' = ⌊(H + 2·padding − kernel)/stride⌋ + 1.

    >>> layer = ConvolutionalCapsules(children=32, parents=16, kernel=5)
    >>> poses, activations = layer(torch.randn(2, 32, 3, 9, 9), torch.rand(2, 32, 9, 9))
    >>> poses.shape, activations.shape
    (torch.Size([2, 16, 3, 5, 5]), torch.Size([2, 16, 5, 5]))
    """

    def __init__(
        self,
        children: int,
        parents: int,
        kernel: int | tuple[int, int] = 5,
        stride: int = 1,
        *,
        padding: int | tuple[int, int] = 0,
        pose: str | PoseType = "quaternion",
        routing: Routing = EM(),
        backend: str = AUTO,
    ) -> None:
        at_least_one("child capsules", children)
        at_least_one("parent capsules", parents)
        window = Window(*two("kernel", kernel), whole("stride", stride))
        super().__init__(children, parents, window.offsets, pose, routing, backend)
        self.window, self.padding = window, two("padding", padding)
        if min(self.padding) < 0:
            raise QuatcapsError(f"a padding of {padding}: it must be 0 or more")

    def window_of(self, height: int, width: int) -> Window:
        return self.window

    def reach(self, height: int, width: int) -> Reach:
        return super().reach(height, width)._replace(padding=self.padding)

    def padded(self, poses: Tensor, activations: Tensor) -> Capsules:
        if not any(self.padding):
            return Capsules(poses, activations)
        down, across = self.padding
        return Capsules(*(F.pad(values, (across, across, down, down)) for values in (poses, activations)))

    def forward(self, poses: Tensor, activations: Tensor) -> Capsules:
        return self.route(*self.padded(poses, activations))

    def positions(self, height: int, width: int) -> tuple[int, int]:
        """The grid of parents over a `height` × `width` grid of children."""
        return self.window.positions(height + 2 * self.padding[0], width + 2 * self.padding[1])

    def votes(self, height: int, width: int) -> int:
        """How many votes an image's children on a `height` × `width` grid cast."""
        rows, columns = self.positions(height, width)
        return rows * columns * self.window.places * self.capsules_in * self.capsules_out

    def extra_repr(self) -> str:
        return f"{self.capsules_in} → {self.capsules_out}, {self.window}"


class ClassCapsules(CapsuleLayer):
    """One parent per class sees all children; a child type uses the same map at every position.

    `coordinates`: where a child stands, (row, column) as parts of the grid, is added to the first two numbers of the
    last column of its votes (Hinton et al. 2018), so that sharing the maps does not lose it. It needs a pose of two
    rows or more. `coordinate_rule`: of n rows the k-th, counted from 0, is at (k + ½)/n (`middles`); or at (k + 1)/10n
    (`tenths`), as the public code of routing via variational Bayes means to have it; or all are at 1/10 (`constant`),
    which is what that code does.

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
        backend: str = AUTO,
        coordinates: bool = False,
        coordinate_rule: str = "middles",
    ) -> None:
        at_least_one("child capsules", children)
        at_least_one("classes", classes)
        super().__init__(children, classes, 1, pose, routing, backend)
        self.coordinates, self.coordinate_rule = coordinates, coordinate_rule
        if coordinate_rule not in COORDINATE_RULES:
            raise unknown_name("coordinate rule", coordinate_rule, COORDINATE_RULES)
        if coordinates:
            check_coordinates(self.pose.dims, self.pose.columns)

    def window_of(self, height: int, width: int) -> Window:
        rule = self.coordinate_rule
        return Window(height, width, shared=True, coordinates=self.coordinates, coordinate_rule=rule)

    def forward(self, poses: Tensor, activations: Tensor) -> Capsules:
        capsules = self.route(poses, activations)
        return Capsules(capsules.poses.flatten(2), capsules.activations.flatten(1))

    def votes(self, height: int, width: int) -> int:
        """How many votes an image's children on a `height` × `width` grid cast."""
        return height * width * self.capsules_in * self.capsules_out

    def extra_repr(self) -> str:
        return f"{self.capsules_in} → {self.capsules_out} classes"


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Full precision; some devices, such as `meta`, have no other. A program that `torch.export` makes without autocast
    has no need of a region without it, which other runtimes would have to know."""
    if torch.compiler.is_exporting() and not torch.is_autocast_enabled(device.type):
        return contextlib.nullcontext()
    if torch.compiler.is_compiling() or torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return contextlib.nullcontext()


def whole(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise QuatcapsError(f"a {what} of {value!r}: give one whole number, for both directions")
    return value


def two(what: str, value: object) -> tuple[int, int]:
    """One whole number for both directions, or one for each."""
    both = value if isinstance(value, tuple | list) else (value, value)
    if len(both) != 2 or any(isinstance(one, bool) or not isinstance(one, int) for one in both):
        raise QuatcapsError(f"a {what} of {value!r}: give a whole number, or two: for rows and for columns")
    return both[0], both[1]


def holds_votes(network: nn.Module) -> bool:
    """Whether a capsule layer of `network` has all its votes in memory at once, as the reference alone does, if it was
    asked for: where it stands in, it forms them a few images at a time."""
    return any(module.backend == REFERENCE for module in network.modules() if isinstance(module, CapsuleLayer))


def use_backend(network: Module, backend: str) -> Module:
    """Has all capsule layers and residual blocks of `network` compute by that backend; returns the network."""
    check(backend)
    for module in network.modules():
        if isinstance(module, CapsuleLayer | ResidualTrunk):
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

"""The votes of one layer: the one heavy thing of every Gaussian routing.

A routing never sees a vote. It asks for sums over children, `uniform()` at first and `under(parents)` then, and makes
parents of them; how the votes are held, or whether they are ever formed, is the backend's business.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.routing import reference
from quatcaps.routing.backends import AUTO, REFERENCE, choose
from quatcaps.routing.moments import Moments, Parents
from quatcaps.routing.shapes import COMPETITIONS, Shapes, matrices
from quatcaps.routing.window import Window

POSE_LIMIT = 1e6
"""Poses beyond ±this are taken as this: their squares, summed and divided by the variance floor, stay finite in
float32, forward and backward. Poses after batch normalisation lie within ±20."""
MAP_LIMIT = 1e2
"""Numbers of a map beyond ±this are taken as this, for the same reason. Those of a rotation lie within ±1."""
SLACK = 1e-5
"""Rounding that an activation may have beyond 0 and 1."""


class Votes:
    """The votes v = A u of children u in all windows, ready to be summed.

    poses (N, I, D, height, width), any finite numbers; activations (N, I, height, width) in [0, 1]; maps (offsets, I,
    J, C, C), any finite numbers, or quaternions (offsets, I, J, 4) that multiply poses of 4 columns from the
    right. `competition` says who shares a child: the parent types at one `position`, or `all`
    parents at all positions that see it; under `all-later` the parent types at each position while the assignments are
    uniform, and all parents after that. `backend` is one of `BACKENDS`, or `auto` for the fastest of the device.
    `iterations`: how often the routing means to ask for sums; any number is right, this one is fast. `bounded`: no
    number of a map exceeds 1. `log_floor`: a child for which the log of Σ_j exp(logit_j) is less is given out in part,
    as if it were this; not on the native backend.
    Half-precision input is computed in float32.

    Gradients reach children and maps if the votes were made where gradients are recorded. Then it does not matter in
    which gradient mode, in what order and how often sums are asked for: gradients are those of the reference.

    >>> window = Window(3, 3)
    >>> votes = Votes(torch.randn(2, 4, 3, 5, 5), torch.rand(2, 4, 5, 5), torch.randn(9, 4, 6, 3, 3), window)
    >>> votes.uniform().mean.shape
    torch.Size([2, 6, 3, 3, 3])
    """

    def __init__(
        self,
        poses: Float[Tensor, "N I D height width"],
        activations: Float[Tensor, "N I height width"],
        maps: Float[Tensor, "offsets I J *C"],
        window: Window,
        *,
        competition: str = "position",
        backend: str = AUTO,
        iterations: int = 2,
        bounded: bool = False,
        log_floor: float = -math.inf,
    ) -> None:
        if competition not in COMPETITIONS:
            raise unknown_name("competition", competition, COMPETITIONS)
        if maps.shape[0] != window.offsets:
            raise QuatcapsError(f"maps for {maps.shape[0]} offsets: the window {window} needs {window.offsets}")
        if poses.dtype in (torch.float16, torch.bfloat16):
            poses = poses.float()
        activations, maps = activations.to(poses.dtype), maps.to(poses.dtype)
        check_children(poses, activations, maps)
        check_activations(activations)
        self.shapes = Shapes.of(poses, maps, window, competition, log_floor)
        if window.coordinates:
            check_coordinates(self.shapes.dims, self.shapes.columns)
        maps = maps if bounded else F.hardtanh(maps, -MAP_LIMIT, MAP_LIMIT)
        self.backend, chosen = choose(backend, self.shapes, poses.dtype, poses.device)
        if self.backend != REFERENCE:
            check_transforms(self.backend, poses, activations, maps)
        self._children = (*chosen.within(poses, activations, POSE_LIMIT), maps)
        given = maps if self.backend == "triton" else matrices(maps)
        self.sums = chosen.bind(*self._children[:2], given, self.shapes, iterations)

    @property
    def inside(self) -> int:
        """How many children each parent sees: the places of its window times the child types."""
        return self.shapes.inside

    def uniform(self) -> Moments:
        """Moments under uniform assignments: every parent that competes for a child gets the same share of it."""
        return self.sums.uniform()

    def under(self, parents: Parents) -> Moments:
        """Moments under the assignments that these parents make."""
        return self.sums.under(self._fitting(parents))

    def formed(self) -> Float[Tensor, "N B J D H W"]:
        """The votes themselves, on the reference: of the B children in each window, places outermost, for each parent.

        This takes the memory that the other methods do without.
        """
        return self._formed().votes_by_image()

    def assignments(self, parents: Parents | None = None) -> Float[Tensor, "N B J H W"]:
        """r_ij, on the reference: which share of each child each parent explains; without parents, uniform shares."""
        return self._formed().assignments_by_image(None if parents is None else self._fitting(parents))

    def _fitting(self, parents: Parents) -> Parents:
        """The parents in the votes' precision; an error where they are not of their sizes, as the C library and the
        kernels would read and write beside them."""
        shapes, like = self.shapes, self._children[0]
        grid = (shapes.images, shapes.parents, *shapes.grid)
        pose = (*grid[:2], shapes.dims, *grid[2:])
        for name, values, wanted in zip(Parents._fields, parents, (pose, pose, grid), strict=True):
            if tuple(values.shape) != wanted:
                raise QuatcapsError(f"{name} of the parents has shape {tuple(values.shape)}: these votes need {wanted}")
            if values.device != like.device:
                raise QuatcapsError(f"{name} of the parents is on {values.device}, the votes on {like.device}")
        return Parents(*(values.to(like.dtype) for values in parents))

    def _formed(self) -> reference.FormedVotes:
        poses, activations, maps = self._children
        return reference.bind(poses, activations, matrices(maps), self.shapes)


def check_children(poses: Tensor, activations: Tensor, maps: Tensor) -> None:
    """Raises where poses (N, I, D, height, width), activations and maps are not of the same children."""
    if poses.ndim != 5:
        raise QuatcapsError(f"poses have shape {tuple(poses.shape)}: (images, children, dims, height, width) is needed")
    wanted = (*poses.shape[:2], *poses.shape[3:])
    if tuple(activations.shape) != wanted:
        raise QuatcapsError(f"activations have shape {tuple(activations.shape)}: these poses need {wanted}")
    if maps.ndim not in (4, 5) or maps.shape[1] != poses.shape[1]:
        raise QuatcapsError(
            f"maps have shape {tuple(maps.shape)}: (offsets, {poses.shape[1]} children, parents, columns, columns), or "
            "quaternions (…, 4), are needed"
        )
    if poses.shape[2] % maps.shape[-1] or maps.shape[-1] != maps.shape[-2 if maps.ndim == 5 else -1]:
        raise QuatcapsError(
            f"maps have shape {tuple(maps.shape)}: poses of {poses.shape[2]} numbers need square ones of a side that "
            "divides it"
        )


def check_activations(activations: Tensor) -> None:
    """Raises where an activation lies outside [0, 1], if that can be seen without waiting for a device.

    NaN passes: where it came from is for others to say.
    """
    if torch.compiler.is_compiling() or type(activations) not in (Tensor, torch.nn.Parameter):
        return
    if activations.device.type != "cpu" or torch._C._functorch.is_functorch_wrapped_tensor(activations):
        return
    if not activations.numel():
        return
    low, high = (bound.item() for bound in torch.aminmax(activations.detach()))
    if low >= -SLACK and high <= 1 + SLACK:  # one pass, where neither is NaN
        return
    outside = (activations < -SLACK) | (activations > 1 + SLACK)
    if outside.any():
        worst = activations.detach()[outside].flatten()[0].item()
        raise QuatcapsError(f"an activation of {worst:g}: activations lie between 0 and 1; take the sigmoid of logits")


def check_transforms(backend: str, *children: Tensor) -> None:
    """Raises under what the fast backends do not do: torch.func's transforms, and forward-mode differentiation."""
    if torch.compiler.is_compiling():
        return
    transformed = any(torch._C._functorch.is_functorch_wrapped_tensor(values) for values in children)
    if transformed or any(forward_ad.unpack_dual(values).tangent is not None for values in children):
        what = "torch.func" if transformed else "forward-mode differentiation"
        raise QuatcapsError(
            f"{what} through the {backend} backend: use backend='reference', which has every derivative"
        )


def check_coordinates(dims: int, columns: int) -> None:
    """Raises unless a pose has the two rows that coordinates are added to."""
    if dims < 2 * columns:
        raise QuatcapsError(
            f"coordinates with poses of {dims // columns} row: at least 2 are needed, as matrix poses have"
        )

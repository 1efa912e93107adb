"""`soft_moments`: the one heavy operation of every Gaussian routing.

`bind` takes a layer's children and maps and returns a function from what the parents look like to the moments
of the votes that each of them receives. A routing calls it once per iteration; how the votes are held, or
whether they are ever formed, is the backend's business.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.routing.soft_moments.backends import AUTO, BACKENDS, check, choose
from quatcaps.routing.soft_moments.moments import Moments, Parents, SoftMoments
from quatcaps.routing.window import Window

COMPETITIONS = ("position", "all")

POSE_LIMIT = 1e6
"""Poses beyond ±this are taken as this: their squares, summed and divided by the variance floor, stay finite in
float32, forward and backward. Poses after batch normalisation lie within ±20."""


def bind(
    poses: Float[Tensor, "N I D height width"],
    activations: Float[Tensor, "N I height width"],
    maps: Float[Tensor, "offsets I J C C"],
    window: Window,
    *,
    competition: str = "position",
    backend: str = AUTO,
) -> SoftMoments:
    """The votes v = A u of children in all windows, ready to be summed.

    `competition` says who shares a child: the parent types at one `position`, or `all` parents at all positions
    that see it. `backend` is one of `BACKENDS`, or `auto` for the fastest of the device; for the coordinates of a
    window, the reference stands in where a backend has none. Half-precision input is computed in float32.
    """
    check(backend)
    if competition not in COMPETITIONS:
        raise unknown_name("competition", competition, COMPETITIONS)
    if maps.shape[0] != window.offsets:
        raise QuatcapsError(f"maps for {maps.shape[0]} offsets: the window {window} needs {window.offsets}")
    if poses.dtype in (torch.float16, torch.bfloat16):
        poses = poses.float()
    activations, maps = activations.to(poses.dtype), maps.to(poses.dtype)
    poses = poses.clamp(-POSE_LIMIT, POSE_LIMIT)
    if window.coordinates:
        check_coordinates(poses.shape[2], maps.shape[-1])
    chosen = choose(backend, poses, maps, competition)
    if window.coordinates and not BACKENDS[chosen].coordinates:
        chosen = "reference"
    return BACKENDS[chosen].bind(poses, activations, maps, window, competition=competition)


def check_coordinates(dims: int, columns: int) -> None:
    """Raises unless a pose has the two rows that coordinates are added to."""
    if dims < 2 * columns:
        raise QuatcapsError(
            f"coordinates with poses of {dims // columns} row: at least 2 are needed, as matrix poses have"
        )


__all__ = [
    "AUTO",
    "BACKENDS",
    "COMPETITIONS",
    "POSE_LIMIT",
    "Moments",
    "Parents",
    "SoftMoments",
    "bind",
    "check",
    "check_coordinates",
    "choose",
]

"""The orientation in which an image shows its toy, as a rotor.

The viewer's axes: x towards the camera, y to the right, z up. A toy's own: x forward, y left, z up, so that at azimuth
0° and elevation 0°, where the toy faces the camera, its forward is the viewer's x. The rotor takes the toy's axes to
the viewer's and acts from the left; a turn of the toy seen by the viewer multiplies it from the left, too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatcaps import quaternion
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError

X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
MIRRORED = (1.0, -1.0, 1.0, -1.0)
"""Seen in a mirror that swaps left and right, turns about x and z go the other way."""


class Views(NamedTuple):
    """From where images show their toys."""

    orientations: Tensor  # (N, 4) rotors, float32
    toys: Tensor  # (N,) int64: images of one number show one toy


def about(axis: tuple[float, float, float], degrees: Tensor) -> Float[Tensor, "... 4"]:
    """The rotor of a turn by so many degrees about an axis."""
    return quaternion.rotor(degrees.deg2rad() / 2, degrees.new_tensor(axis).expand(*degrees.shape, 3))


def orientation(azimuth: Tensor, elevation: Tensor) -> Float[Tensor, "... 4"]:
    """The rotor that a viewpoint in degrees shows a toy in: q_y(elevation) q_z(−azimuth).

    >>> orientation(torch.tensor(0.0), torch.tensor(0.0)).tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    return quaternion.product(about(Y, elevation), about(Z, -azimuth))


def views_of(images: ImageSet) -> Views:
    """From where each image shows its toy; an error where that is not known."""
    missing = [name for name in ("azimuth", "elevation") if name not in images.info]
    if missing:
        raise QuatcapsError(
            f"{images.name} has no {' and no '.join(missing)}, so no orientations: use a dataset of viewpoints such as "
            "smallnorb or toys, or leave out --pose-weight"
        )
    if not images.aligned and "instance" not in images.info:
        raise QuatcapsError(
            f"{images.name} does not say which images show one toy (instance), nor that azimuth 0 is the same side of "
            "every toy: the orientation of its toys cannot be learned; leave out --pose-weight"
        )
    azimuth, elevation = (images.info[name].double() for name in ("azimuth", "elevation"))
    instance = images.info.get("instance", torch.zeros_like(images.labels))
    toys = images.labels * (int(instance.max()) + 1 if len(instance) else 1) + instance
    return Views(orientation(10 * azimuth, 30 + 5 * elevation).float(), toys)


def as_seen(views: Views, angle: Tensor, mirrored: Tensor) -> Views:
    """The same views after the image was turned by `angle` (N,) radians, counter-clockwise, and then mirrored where
    `mirrored` (N,) says so. A mirrored toy is another toy."""
    turned = quaternion.product(about(X, angle.rad2deg()), views.orientations)
    flipped = torch.where(mirrored[:, None], turned * turned.new_tensor(MIRRORED), turned)
    return Views(flipped, 2 * views.toys + mirrored.long())

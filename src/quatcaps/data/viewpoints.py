"""Viewpoints: smallNORB's codes, familiar and novel ones, and the orientation in which an image shows its toy.

Azimuths are coded in tens of degrees, elevations in steps of 5° from 30°. Two protocols divide them, never mixed in one
column of a table:

strict   Hinton et al. 2018: trained on the training toys from familiar viewpoints; measured on the test toys, from
         familiar viewpoints and from novel ones.
pooled   the public code of the QCN paper: the toys of both files together; trained on familiar viewpoints, measured on
         novel ones, so that the same toys are on both sides.

An orientation is a rotor. The viewer's axes: x towards the camera, y to the right, z up. A toy's own: x forward, y
left, z up, so that at azimuth 0° and elevation 0°, where the toy faces the camera, its forward is the viewer's x. The
rotor takes the toy's axes to the viewer's and acts from the left; a turn of the toy seen by the viewer multiplies it
from the left, too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatcaps import quaternion
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError, unknown_name

FAMILIAR: dict[str, tuple[int, ...]] = {
    "azimuth": (30, 32, 34, 0, 2, 4),  # 300°, 320°, 340°, 0°, 20°, 40°
    "elevation": (0, 1, 2),  # 30°, 35°, 40°
}
"""The viewpoints a network is trained on in each experiment; all others are novel (Hinton et al. 2018)."""

ALL = "all"
X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
MIRRORED = (1.0, -1.0, 1.0, -1.0)
"""Seen in a mirror that swaps left and right, turns about x and z go the other way."""


class Views(NamedTuple):
    """From where images show their toys."""

    orientations: Tensor  # (N, 4) rotors, float32
    toys: Tensor  # (N,) int64: images of one number show one toy


def degrees(field: str, code: int) -> int:
    """An azimuth's or elevation's code in degrees."""
    return {"azimuth": 10 * code, "elevation": 30 + 5 * code}[field]


def familiar_mask(images: ImageSet, experiment: str) -> Tensor:
    """(N,) bool: which images show a familiar viewpoint of the `azimuth` or the `elevation` experiment."""
    if experiment not in FAMILIAR:
        raise unknown_name("viewpoint experiment", experiment, FAMILIAR)
    if experiment not in images.info:
        raise QuatcapsError(
            f"{images.name} has no {experiment} info, so no familiar and novel viewpoints: "
            "use a dataset of viewpoints such as smallnorb or toys, or --viewpoints all"
        )
    return torch.isin(images.info[experiment], torch.tensor(FAMILIAR[experiment]))


def split_viewpoints(images: ImageSet, experiment: str) -> tuple[ImageSet, ImageSet]:
    """The images from familiar viewpoints, and those from novel ones."""
    familiar = familiar_mask(images, experiment)
    return (
        images.select(familiar, f"{images.name}, familiar {experiment}"),
        images.select(~familiar, f"{images.name}, novel {experiment}"),
    )


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

"""Familiar and novel viewpoints, by smallNORB's codes (azimuth in tens of degrees, elevation 30° + 5° each).

Two protocols, never mixed in one column of a table:

strict   Hinton et al. 2018: trained on the training toys from familiar viewpoints; measured on the test toys, from
         familiar viewpoints and from novel ones.
pooled   the public code of the QCN paper: the toys of both files together; trained on familiar viewpoints, measured on
         novel ones, so that the same toys are on both sides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError, unknown_name

FAMILIAR: dict[str, tuple[int, ...]] = {
    "azimuth": (30, 32, 34, 0, 2, 4),  # 300°, 320°, 340°, 0°, 20°, 40°
    "elevation": (0, 1, 2),  # 30°, 35°, 40°
}
"""The viewpoints a network is trained on in each experiment; all others are novel (Hinton et al. 2018)."""

ALL = "all"


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


def degrees(field: str, code: int) -> int:
    """An azimuth's or elevation's code in degrees."""
    return {"azimuth": 10 * code, "elevation": 30 + 5 * code}[field]

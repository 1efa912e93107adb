"""How a function of moments.c is called."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from quatcaps.native.calls import share
from quatcaps.routing.native import libraries
from quatcaps.routing.window import COORDINATE_RULES, Window

WORTH_A_THREAD = 2**14
"""Votes for which waking a thread repays."""
GROUPS = 32
"""Most groups of images in a piece of work: each sums the gradient of the maps by itself."""
PIECES = 16
"""Work by children is cut into that many pieces, or more: the images into groups and, where these are fewer, the child
types into parts. How does not depend on the number of threads, so neither do the sums."""

SIZES = (
    *("images", "children", "parents", "height", "width"),
    *("down", "across", "stride", "shared", "coordinates", "grid_height", "grid_width", "groups", "parts"),
)
TENSORS = (
    *("poses", "activations", "maps"),
    *("centre", "precision", "logit", "grad_mass", "grad_first", "grad_second"),
    *("mass", "first", "second", "mean", "kept", "top", "total"),
    *("grad_poses", "grad_activations", "grad_maps", "grad_centre", "grad_precision", "grad_logit"),
    *("beta_u", "beta_a", "grad_activation", "activation", "grad_mean", "grad_beta_u", "grad_beta_a"),
)
NUMBERS = (
    *("inverse_temperature", "variance_floor", "contrast", "mass_factor"),
    *("least_mass", "least_variance", "damping"),
)
FLAGS = ("kind", "damped", "isotropic")


class Task(ctypes.Structure):
    """`Task` of blocks.h; a tensor that is not given is NULL."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_void_p) for name in TENSORS),
        *((name, ctypes.c_double) for name in NUMBERS),
        *((name, ctypes.c_int64) for name in FLAGS),
        ("inverse_temperatures", ctypes.c_void_p),
        ("iterations", ctypes.c_int64),
        ("next", ctypes.c_int64),
    )


def run(function: str, window: Window, tensors: Mapping[str, Tensor], **settings: Any) -> None:
    """Calls a function of the library; results go into tensors made before. `settings` are those of an M-step."""
    images, children, dims, height, width = tensors["poses"].shape
    parents, columns = tensors["maps"].shape[2:4]
    grid = window.positions(height, width)
    rule = 1 + COORDINATE_RULES.index(window.coordinate_rule)  # 0: no coordinates
    flags = (window.shared, rule if window.coordinates else 0)
    sizes = (
        *(images, children, parents, height, width),
        *(window.height, window.width, window.stride, *flags, *grid, *division(images, children)),
    )
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    task = Task(**dict(zip(SIZES, sizes, strict=True)), **addresses, **settings)
    library = libraries.library(tensors["poses"].dtype, dims // columns, columns)
    votes = images * children * parents * window.places * grid[0] * grid[1]
    share(getattr(library, function), task, tensors, votes // WORTH_A_THREAD)


def division(images: int, children: int) -> tuple[int, int]:
    """Groups of images and parts of the child types."""
    groups = min(images, GROUPS)
    return groups, max(1, min(children, PIECES // max(1, groups)))

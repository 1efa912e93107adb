"""How a function of the library is called: a task that all threads share, and who owns what they write to."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quatcaps.routing.native import build, threads
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
    *("poses", "activations", "maps", "centre", "precision", "logit", "grad_mass", "grad_first", "grad_second"),
    *("mass", "first", "second", "mean", "kept", "top", "total"),
    *("grad_poses", "grad_activations", "grad_maps", "grad_centre", "grad_precision", "grad_logit"),
)


class Task(ctypes.Structure):
    """`Task` of blocks.h; a tensor that is not given is NULL."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_void_p) for name in TENSORS),
        ("next", ctypes.c_int64),
    )


class Call(NamedTuple):
    """A call of the library, for one thread or several.

    It holds all that the function reads and writes. Nothing of it is freed while a thread works on it, whatever
    happens to the frame that asked for it. `done` is told about each thread of the pool, 0 or 1 for a failure.
    """

    function: Any
    task: Task
    tensors: Mapping[str, Tensor]
    done: SimpleQueue[int]

    def run(self) -> int:
        failed: int = self.function(ctypes.byref(self.task))
        return failed

    def run_in_pool(self) -> None:
        failed = 1
        try:
            failed = self.run()
        finally:
            self.done.put(failed)


def run(function: str, window: Window, tensors: Mapping[str, Tensor]) -> None:
    """Calls a function of the library in as many threads as the work is worth; results go into tensors made before.

    All threads are done when this returns, also by an interrupt.
    """
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
    task = Task(**dict(zip(SIZES, sizes, strict=True)), **addresses)
    library = build.library(tensors["poses"].dtype, dims // columns, columns)
    call = Call(getattr(library, function), task, tensors, SimpleQueue())
    votes = images * children * parents * window.places * grid[0] * grid[1]
    count = max(1, min(torch.get_num_threads(), votes // WORTH_A_THREAD))
    others = failures = 0
    try:
        for _ in range(count - 1):
            threads.pool(torch.get_num_threads()).put(call.run_in_pool)
            others += 1
        failures += call.run()
    finally:
        failures += wait(call.done, others)
    if failures:
        raise MemoryError(f"no memory for the scratch of {function}")


def wait(done: SimpleQueue[int], others: int) -> int:
    """Returns when so many threads are done: how many of them failed."""
    return sum(done.get() for _ in range(others))


def division(images: int, children: int) -> tuple[int, int]:
    """Groups of images and parts of the child types."""
    groups = min(images, GROUPS)
    return groups, max(1, min(children, PIECES // max(1, groups)))

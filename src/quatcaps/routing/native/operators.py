"""The library's functions as operators that PyTorch knows: they can be traced, compiled and differentiated.

Four operators, each with a fake kernel (shapes without numbers):

    uniform_moments             children → the mean and the moments about it under uniform assignments
    uniform_moments_backward    gradients of these moments → those of the children
    moments                     children, parents → moments under these parents, and what the backward keeps
    moments_backward            gradients of these moments → those of children and parents

The backward keeps, for each child in each window, the largest of its logits and the sum of its exponentials relative
to that, from which its assignments follow. `window` travels as height, width, stride, shared.

Letters of shapes: N images, I child types, B children in a window (places × child types), J parent types, D pose
dimensions, H × W parent positions. All tensors are contiguous.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from quatcaps.routing.native import build, threads
from quatcaps.routing.shapes import unpack
from quatcaps.routing.window import Window

WORTH_A_THREAD = 2**14
"""Votes for which waking a thread repays."""
GROUPS = 32
"""Most groups of images in a backward: each sums the gradient of the maps by itself."""
PIECES = 16
"""A backward is cut into that many pieces, or more: the images into groups and, where these are fewer, the child types
into parts. How does not depend on the number of threads, so neither do the sums."""

RUN = 32
"""How many positions lie side by side in what the backward keeps, as in moments.c."""

CHILDREN = "Tensor poses, Tensor activations, Tensor maps"
PARENTS = "Tensor centre, Tensor precision, Tensor logit"
GRADS = "Tensor grad_mass, Tensor grad_first, Tensor grad_second"
MOMENTS = ("mass", "first", "second")
SIZES = (
    *("images", "children", "parents", "height", "width"),
    *("down", "across", "stride", "shared", "grid_height", "grid_width", "groups", "parts"),
)
TENSORS = (
    *("poses", "activations", "maps", "centre", "precision", "logit", "grad_mass", "grad_first", "grad_second"),
    *MOMENTS,
    *("mean", "kept"),
    *("grad_poses", "grad_activations", "grad_maps", "grad_centre", "grad_precision", "grad_logit"),
)


class Task(ctypes.Structure):
    """`Task` of moments.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_void_p) for name in TENSORS),
        ("next", ctypes.c_int64),
    )


def run(function: str, window: Window, tensors: Mapping[str, Tensor]) -> None:
    """Calls a function of the library in as many threads as the work is worth; results go into tensors made before."""
    images, children, dims, height, width = tensors["poses"].shape
    parents, columns = tensors["maps"].shape[2:4]
    grid = window.positions(height, width)
    sizes = (
        *(images, children, parents, height, width),
        *(window.height, window.width, window.stride, window.shared, *grid, *division(images, children)),
    )
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    task = Task(**dict(zip(SIZES, sizes, strict=True)), **addresses)
    call = getattr(build.library(tensors["poses"].dtype, dims // columns, columns), function)
    votes = images * children * parents * window.places * grid[0] * grid[1]
    count = max(1, min(torch.get_num_threads(), votes // WORTH_A_THREAD))
    others = [threads.pool(torch.get_num_threads()).submit(call, ctypes.byref(task)) for _ in range(count - 1)]
    failures = [call(ctypes.byref(task)), *(other.result() for other in others)]
    if any(failures):
        raise MemoryError(f"no memory for the scratch of {function}")


def division(images: int, children: int) -> tuple[int, int]:
    """Groups of images and parts of the child types."""
    groups = min(images, GROUPS)
    return groups, max(1, min(children, PIECES // max(1, groups)))


def shapes(poses: Tensor, maps: Tensor, window: Window) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of one number per parent, (N, J, H, W), and of a pose per parent, (N, J, D, H, W)."""
    grid, parents = window.positions(*poses.shape[-2:]), maps.shape[2]
    return (poses.shape[0], parents, *grid), (poses.shape[0], parents, poses.shape[2], *grid)


def empty_uniform(poses: Tensor, activations: Tensor, maps: Tensor, window: list[int]) -> tuple[Tensor, ...]:
    one, pose = shapes(poses, maps, unpack(window)[0])
    return poses.new_empty(pose), poses.new_empty(one), poses.new_empty(pose), poses.new_empty(pose)


def compute_uniform(poses: Tensor, activations: Tensor, maps: Tensor, window: list[int]) -> tuple[Tensor, ...]:
    results = empty_uniform(poses, activations, maps, window)
    given = {"poses": poses, "activations": activations, "maps": maps}
    run("quatcaps_uniform", unpack(window)[0], given | dict(zip(("mean", *MOMENTS), results, strict=True)))
    return results


uniform_moments = torch.library.custom_op(
    "quatcaps::native_uniform_moments",
    compute_uniform,
    mutates_args=(),
    schema=f"({CHILDREN}, int[] window) -> (Tensor, Tensor, Tensor, Tensor)",
)
uniform_moments.register_fake(empty_uniform)


def empty_moments(poses: Tensor, activations: Tensor, maps: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *_, keep, window = rest
    one, pose = shapes(poses, maps, unpack(window)[0])
    runs, children = -(-one[2] * one[3] // RUN), unpack(window)[0].places * poses.shape[1]
    kept = (one[0], runs, children, 2, RUN) if keep else (0,)
    return poses.new_empty(one), poses.new_empty(pose), poses.new_empty(pose), poses.new_empty(kept)


def compute_moments(*arguments: Any) -> tuple[Tensor, ...]:
    poses, activations, maps, centre, precision, logit, keep, window = arguments
    results = empty_moments(*arguments)
    given = {"poses": poses, "activations": activations, "maps": maps}
    parents = {"centre": centre, "precision": precision, "logit": logit}
    made = dict(zip((*MOMENTS, "kept") if keep else MOMENTS, results, strict=keep))
    run("quatcaps_moments", unpack(window)[0], given | parents | made)
    return results


moments = torch.library.custom_op(
    "quatcaps::native_moments",
    compute_moments,
    mutates_args=(),
    schema=f"({CHILDREN}, {PARENTS}, bool keep, int[] window) -> (Tensor, Tensor, Tensor, Tensor)",
)
moments.register_fake(empty_moments)


class GradChildren:
    """Gradients that the library adds to; those of the maps once for each group of images."""

    def __init__(self, poses: Tensor, activations: Tensor, maps: Tensor) -> None:
        self.poses, self.activations = torch.zeros_like(poses), torch.zeros_like(activations)
        self.maps = maps.new_zeros(division(*poses.shape[:2])[0], *maps.shape)

    def tensors(self) -> dict[str, Tensor]:
        return {"grad_poses": self.poses, "grad_activations": self.activations, "grad_maps": self.maps}

    def sums(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.poses, self.activations, self.maps.sum(0)


def compute_uniform_backward(*arguments: Any) -> tuple[Tensor, ...]:
    g0, g1, g2, poses, activations, maps, mean, window = arguments
    grads = GradChildren(poses, activations, maps)
    given = {"poses": poses, "activations": activations, "maps": maps, "mean": mean}
    moments = {"grad_mass": g0, "grad_first": g1, "grad_second": g2}
    run("quatcaps_uniform_backward", unpack(window)[0], given | moments | grads.tensors())
    return grads.sums()


def empty_uniform_backward(*arguments: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(tensor) for tensor in arguments[3:6])


uniform_moments_backward = torch.library.custom_op(
    "quatcaps::native_uniform_moments_backward",
    compute_uniform_backward,
    mutates_args=(),
    schema=f"({GRADS}, {CHILDREN}, Tensor mean, int[] window) -> (Tensor, Tensor, Tensor)",
)
uniform_moments_backward.register_fake(empty_uniform_backward)


def compute_moments_backward(*arguments: Any) -> tuple[Tensor, ...]:
    g0, g1, g2, poses, activations, maps, centre, precision, logit, kept, window = arguments
    grads = GradChildren(poses, activations, maps)
    parts = division(*poses.shape[:2])[1]
    by_part = [tensor.new_empty(parts, *tensor.shape) for tensor in (centre, precision, logit)]
    given = {"poses": poses, "activations": activations, "maps": maps, "kept": kept}
    parents = {"centre": centre, "precision": precision, "logit": logit}
    moments = {"grad_mass": g0, "grad_first": g1, "grad_second": g2}
    grad_parents = dict(zip(("grad_centre", "grad_precision", "grad_logit"), by_part, strict=True))
    run("quatcaps_moments_backward", unpack(window)[0], given | parents | moments | grads.tensors() | grad_parents)
    return *grads.sums(), *(partial.sum(0) for partial in by_part)


def empty_moments_backward(*arguments: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(tensor) for tensor in arguments[3:9])


moments_backward = torch.library.custom_op(
    "quatcaps::native_moments_backward",
    compute_moments_backward,
    mutates_args=(),
    schema=f"({GRADS}, {CHILDREN}, {PARENTS}, Tensor kept, int[] window) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
moments_backward.register_fake(empty_moments_backward)


def filled(grads: tuple[Tensor | None, ...], centre: Tensor) -> list[Tensor]:
    """The gradients of mass, first and second, zeros where nothing depends on one."""
    images, parents, _, *grid = centre.shape
    like = ((images, parents, *grid), centre.shape, centre.shape)
    return [
        centre.new_zeros(shape) if grad is None else grad.contiguous() for grad, shape in zip(grads, like, strict=True)
    ]


def keep_uniform(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *children, ctx.window = inputs
    ctx.mark_non_differentiable(output[0])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*children, output[0])


def differentiate_uniform(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    return *uniform_moments_backward(*filled(grads[1:], saved[3]), *saved, ctx.window), None


def keep_moments(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *children_and_parents, _, ctx.window = inputs
    ctx.mark_non_differentiable(output[3])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*children_and_parents, output[3])


def differentiate_moments(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    return *moments_backward(*filled(grads[:3], saved[3]), *saved, ctx.window), None, None


uniform_moments.register_autograd(differentiate_uniform, setup_context=keep_uniform)
moments.register_autograd(differentiate_moments, setup_context=keep_moments)

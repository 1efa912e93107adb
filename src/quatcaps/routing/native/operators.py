"""The library's functions as operators that PyTorch knows: they can be traced, compiled and differentiated.

Four operators, each with a fake kernel (shapes without numbers):

    uniform_moments             children → a centre and the moments about it under uniform assignments
    uniform_moments_backward    gradients of these moments → those of the children
    moments                     children, parents → moments under these parents, and what the backward keeps
    moments_backward            gradients of these moments → those of children and parents

The backward keeps, for each child in each window, the largest of its logits and 1 over the sum of its exponentials
relative to that, from which its assignments follow; where all positions compete for a child, the largest logit and the
sum itself, for each child. There the moments come in two passes, and the caller has taken one offset away
from all logits of an image. Window and competition travel as the numbers of `pack`; under uniform assignments the
competition does not matter here.

Letters of shapes: N images, I child types, B children in a window (places × child types), J parent types, D pose
dimensions, H × W parent positions. All tensors are contiguous.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quatcaps.operators import operator
from quatcaps.routing.native.calls import division, run
from quatcaps.routing.shapes import unpack
from quatcaps.routing.window import Window

RUN = 32
"""How many positions lie side by side in what the backward keeps, as in blocks.h."""

CHILDREN = "Tensor poses, Tensor activations, Tensor maps"
PARENTS = "Tensor centre, Tensor precision, Tensor logit"
GRADS = "Tensor grad_mass, Tensor grad_first, Tensor grad_second"
MOMENTS = ("mass", "first", "second")


def shapes(poses: Tensor, maps: Tensor, window: Window) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of one number per parent, (N, J, H, W), and of a pose per parent, (N, J, D, H, W)."""
    grid, parents = window.positions(*poses.shape[-2:]), maps.shape[2]
    return (poses.shape[0], parents, *grid), (poses.shape[0], parents, poses.shape[2], *grid)


def everywhere(layer: list[int]) -> bool:
    """Whether all positions that see a child compete for it."""
    return unpack(layer)[1] == "all"


def empty_uniform(poses: Tensor, activations: Tensor, maps: Tensor, layer: list[int]) -> tuple[Tensor, ...]:
    one, pose = shapes(poses, maps, unpack(layer)[0])
    return poses.new_empty(pose), poses.new_empty(one), poses.new_empty(pose), poses.new_empty(pose)


def compute_uniform(poses: Tensor, activations: Tensor, maps: Tensor, layer: list[int]) -> tuple[Tensor, ...]:
    results = empty_uniform(poses, activations, maps, layer)
    given = {"poses": poses, "activations": activations, "maps": maps}
    run("quatcaps_uniform", unpack(layer)[0], given | dict(zip(("mean", *MOMENTS), results, strict=True)))
    return results


def empty_moments(poses: Tensor, activations: Tensor, maps: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *_, keep, layer = rest
    window = unpack(layer)[0]
    one, pose = shapes(poses, maps, window)
    kept: tuple[int, ...] = (0,)
    if everywhere(layer):
        kept = (2, *activations.shape)
    elif keep:
        kept = (one[0], -(-one[2] * one[3] // RUN), window.places * poses.shape[1], 2, RUN)
    return poses.new_empty(one), poses.new_empty(pose), poses.new_empty(pose), poses.new_empty(kept)


def compute_moments(*arguments: Any) -> tuple[Tensor, ...]:
    poses, activations, maps, centre, precision, logit, keep, layer = arguments
    *results, kept = empty_moments(*arguments)
    given = {"poses": poses, "activations": activations, "maps": maps}
    given |= {"centre": centre, "precision": precision, "logit": logit}
    window = unpack(layer)[0]
    if everywhere(layer):
        top, total = kept[0].fill_(torch.finfo(kept.dtype).min), kept[1].zero_()
        given |= {"top": top, "total": total}
        run("quatcaps_totals", window, given)
    elif keep:
        given["kept"] = kept
    run("quatcaps_moments", window, given | dict(zip(MOMENTS, results, strict=True)))
    return *results, kept


class GradChildren:
    """Gradients that the library fills; those of the maps once for each group of images."""

    def __init__(self, poses: Tensor, activations: Tensor, maps: Tensor) -> None:
        self.poses, self.activations = torch.empty_like(poses), torch.empty_like(activations)
        self.maps = maps.new_empty(division(*poses.shape[:2])[0], *maps.shape)

    def tensors(self) -> dict[str, Tensor]:
        return {"grad_poses": self.poses, "grad_activations": self.activations, "grad_maps": self.maps}

    def sums(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.poses, self.activations, self.maps.sum(0)


def compute_uniform_backward(*arguments: Any) -> tuple[Tensor, ...]:
    g0, g1, g2, poses, activations, maps, mean, layer = arguments
    grads = GradChildren(poses, activations, maps)
    given = {"poses": poses, "activations": activations, "maps": maps, "mean": mean}
    moments = {"grad_mass": g0, "grad_first": g1, "grad_second": g2}
    run("quatcaps_uniform_backward", unpack(layer)[0], given | moments | grads.tensors())
    return grads.sums()


def empty_uniform_backward(*arguments: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(tensor) for tensor in arguments[3:6])


def compute_moments_backward(*arguments: Any) -> tuple[Tensor, ...]:
    g0, g1, g2, poses, activations, maps, centre, precision, logit, kept, layer = arguments
    grads = GradChildren(poses, activations, maps)
    parts = division(*poses.shape[:2])[1]
    by_part = [tensor.new_empty(parts, *tensor.shape) for tensor in (centre, precision, logit)]
    given = {"poses": poses, "activations": activations, "maps": maps}
    given |= {"top": kept[0], "total": kept[1]} if everywhere(layer) else {"kept": kept}
    parents = {"centre": centre, "precision": precision, "logit": logit}
    moments = {"grad_mass": g0, "grad_first": g1, "grad_second": g2}
    grad_parents = dict(zip(("grad_centre", "grad_precision", "grad_logit"), by_part, strict=True))
    run("quatcaps_moments_backward", unpack(layer)[0], given | parents | moments | grads.tensors() | grad_parents)
    return *grads.sums(), *(partial.sum(0) for partial in by_part)


def empty_moments_backward(*arguments: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(tensor) for tensor in arguments[3:9])


uniform_moments_backward = operator(
    "native_uniform_moments_backward",
    f"({GRADS}, {CHILDREN}, Tensor mean, int[] layer) -> (Tensor, Tensor, Tensor)",
    compute_uniform_backward,
    empty_uniform_backward,
)
moments_backward = operator(
    "native_moments_backward",
    f"({GRADS}, {CHILDREN}, {PARENTS}, Tensor kept, int[] layer) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    compute_moments_backward,
    empty_moments_backward,
)


def filled(grads: tuple[Tensor | None, ...], centre: Tensor) -> list[Tensor]:
    """The gradients of mass, first and second, zeros where nothing depends on one."""
    images, parents, _, *grid = centre.shape
    like = ((images, parents, *grid), centre.shape, centre.shape)
    return [
        centre.new_zeros(shape) if grad is None else grad.contiguous() for grad, shape in zip(grads, like, strict=True)
    ]


def keep_uniform(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *children, ctx.layer = inputs
    ctx.mark_non_differentiable(output[0])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*children, output[0])


def differentiate_uniform(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    return *uniform_moments_backward(*filled(grads[1:], saved[3]), *saved, ctx.layer), None


def keep_moments(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *children_and_parents, _, ctx.layer = inputs
    ctx.mark_non_differentiable(output[3])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*children_and_parents, output[3])


def differentiate_moments(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    return *moments_backward(*filled(grads[:3], saved[3]), *saved, ctx.layer), None, None


uniform_moments = operator(
    "native_uniform_moments",
    f"({CHILDREN}, int[] layer) -> (Tensor, Tensor, Tensor, Tensor)",
    compute_uniform,
    empty_uniform,
    save=keep_uniform,
    differentiate=differentiate_uniform,
)
moments = operator(
    "native_moments",
    f"({CHILDREN}, {PARENTS}, bool keep, int[] layer) -> (Tensor, Tensor, Tensor, Tensor)",
    compute_moments,
    empty_moments,
    save=keep_moments,
    differentiate=differentiate_moments,
)

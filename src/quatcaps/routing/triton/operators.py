"""The passes as operators:

    gate                children → slots that hold nothing
    uniform_moments     children, slots → moments under uniform assignments
    moments             children, parents, slots → moments under these parents, and what the backward keeps
    parents_backward    gradients of the moments → those of the parents, and what is left for the children
    children_backward   what several moments have left → gradients of poses, activations and maps

A slot has the shape of something that a backward leaves for the children. Moments that were given slots return what
they leave as the slots' gradients; the gate, whose backward comes last, then runs `children_backward` once for all of
them. No slot is given out twice, as autograd would add up what is left. Moments without slots are given the children
themselves, and run `children_backward` on their own: as right, and slower.

`layer` travels as the numbers of `shapes.pack`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quatcaps.operators import operator
from quatcaps.routing.shapes import unpack
from quatcaps.routing.triton import launch
from quatcaps.routing.triton.launch import Children, Left
from quatcaps.routing.triton.layout import as_children, as_maps, empty_parents, laid_children, laid_maps, parents_first
from quatcaps.routing.triton.plan import Layer

CHILDREN = "Tensor poses, Tensor activations, Tensor maps"
PARENTS = "Tensor centre, Tensor precision, Tensor logit"
GRADS = "Tensor grad_mass, Tensor grad_first, Tensor grad_second"


def layer_of(poses: Tensor, maps: Tensor, numbers: list[int]) -> Layer:
    return Layer.of(poses, maps, *unpack(numbers))


def results(count: int) -> str:
    return "(" + ", ".join(["Tensor"] * count) + ")"


def empty_like_moments(poses: Tensor, layer: Layer) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Centre, mass, first, second."""
    centre, first, second = (parents_first(poses.new_empty(layer.parent_shape(layer.dims))) for _ in range(3))
    return centre, parents_first(poses.new_empty(layer.parent_shape())), first, second


# ---- gradients of children ----


def compute_children_backward(
    poses: Tensor, activations: Tensor, maps: Tensor, left: list[Tensor], even: list[Tensor], numbers: list[int]
) -> tuple[Tensor, ...]:
    layer = layer_of(poses, maps, numbers)
    iterations = [Left(*left[k : k + 3]) for k in range(0, len(left), 3)]
    return launch.children_backward(Children(poses, activations, maps), iterations, tuple(even) or None, layer)


def empty_children(poses: Tensor, activations: Tensor, maps: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    wide = layer_of(poses, maps, rest[-1]).wide
    last = (torch.empty_like(laid_children(values, wide)) for values in (poses, activations))
    return *(as_children(grad, wide) for grad in last), as_maps(torch.empty_like(laid_maps(maps, wide)), wide)


children_backward = operator(
    "triton_children_backward",
    f"({CHILDREN}, Tensor[] left, Tensor[] even, int[] layer) -> {results(3)}",
    compute_children_backward,
    empty_children,
)


# ---- the gate ----


def empty_slots(poses: Tensor, activations: Tensor, maps: Tensor, iterations: int, numbers: list[int]) -> list[Tensor]:
    """Of uniform moments: centre, grad_mass, grad_first, grad_second; of each weighted iteration those of `Left`. They
    take no room, and what is in them is never read."""
    layer = layer_of(poses, maps, numbers)
    one, pose = ((layer.images, layer.parents, *dims, *layer.grid) for dims in ((), (layer.dims,)))
    shapes = [pose, one, pose, pose, *(layer.known, layer.pairs, layer.pairs) * iterations]
    return [poses.new_empty(()).expand(shape) for shape in shapes]


def keep_children(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    *children, _, ctx.layer = inputs
    ctx.save_for_backward(*children)
    ctx.set_materialize_grads(False)


def differentiate_gate(ctx: Any, grads: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    children = ctx.saved_tensors
    even, left = grads[:4], [grad for grad in grads[4:] if grad is not None]
    if all(grad is None for grad in grads):
        return None, None, None, None, None
    uniform = [] if even[0] is None else filled(even[0], even[1:])
    return *children_backward(*children, left, uniform, ctx.layer), None, None


def filled(centre: Tensor, grads: list[Tensor | None]) -> list[Tensor]:
    """The centre and the gradients of mass, first and second, zeros where nothing depends on one."""
    like = (empty_parents(centre, 1), empty_parents(centre), empty_parents(centre))
    pairs = zip(grads, like, strict=True)
    return [centre, *(torch.zeros_like(empty) if grad is None else grad for grad, empty in pairs)]


gate = operator(
    "triton_gate",
    f"({CHILDREN}, int iterations, int[] layer) -> Tensor[]",
    empty_slots,
    empty_slots,
    save=keep_children,
    differentiate=differentiate_gate,
)


# ---- uniform moments ----


def compute_uniform(poses: Tensor, activations: Tensor, maps: Tensor, slots: Any, numbers: list[int]) -> Any:
    return launch.uniform(Children(poses, activations, maps), layer_of(poses, maps, numbers))


def empty_uniform(poses: Tensor, activations: Tensor, maps: Tensor, slots: Any, numbers: list[int]) -> Any:
    return empty_like_moments(poses, layer_of(poses, maps, numbers))


def keep_uniform(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *children, slots, ctx.layer = inputs
    ctx.slots = len(slots)
    ctx.save_for_backward(*children, output[0])
    ctx.mark_non_differentiable(output[0])
    ctx.set_materialize_grads(False)


def differentiate_uniform(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    *children, centre = ctx.saved_tensors
    if all(grad is None for grad in grads[1:]):
        return None, None, None, [None] * ctx.slots, None
    if ctx.slots:
        return None, None, None, [centre, *grads[1:]], None
    return *children_backward(*children, [], filled(centre, list(grads[1:])), ctx.layer), [], None


uniform_moments = operator(
    "triton_uniform_moments",
    f"({CHILDREN}, Tensor[] slots, int[] layer) -> {results(4)}",
    compute_uniform,
    empty_uniform,
    save=keep_uniform,
    differentiate=differentiate_uniform,
)


# ---- moments under parents ----


def compute_moments(*arguments: Any) -> tuple[Tensor, ...]:
    *children, centre, precision, logit, _, keep, numbers = arguments
    layer = layer_of(children[0], children[2], numbers)
    return launch.weighted(Children(*children), centre, precision, logit, keep, layer)


def empty_moments(poses: Tensor, activations: Tensor, maps: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *_, keep, numbers = rest
    layer = layer_of(poses, maps, numbers)
    return *empty_like_moments(poses, layer)[1:], poses.new_empty(layer.pairs if keep else (0,))


def keep_moments(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *children_and_parents, slots, _, ctx.layer = inputs
    ctx.slots = len(slots)
    mass, first, _, log_total = output
    ctx.save_for_backward(*children_and_parents, mass, first, log_total)
    ctx.mark_non_differentiable(log_total)
    ctx.set_materialize_grads(False)  # or one would be made for log_total, the largest of all


def differentiate_moments(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    if all(grad is None for grad in grads):
        return *(None for _ in range(6)), [None] * ctx.slots, None, None
    *parents, known, grad_activation = parents_backward(*filled(saved[3], list(grads[:3]))[1:], *saved, ctx.layer)
    left = [known, saved[-1], grad_activation]
    if ctx.slots:
        return None, None, None, *parents, left, None, None
    return *children_backward(*saved[:3], left, [], ctx.layer), *parents, [], None, None


moments = operator(
    "triton_moments",
    f"({CHILDREN}, {PARENTS}, Tensor[] slots, bool keep, int[] layer) -> {results(4)}",
    compute_moments,
    empty_moments,
    save=keep_moments,
    differentiate=differentiate_moments,
)


def compute_parents_backward(*arguments: Any) -> tuple[Tensor, ...]:
    *children, centre, precision, logit, mass, first, log_total, numbers = arguments[3:]
    layer = layer_of(children[0], children[2], numbers)
    parents = (centre, precision, logit)
    return launch.parents_backward(arguments[:3], Children(*children), parents, mass, first, log_total, layer)


def empty_parents_backward(*arguments: Any) -> tuple[Tensor, ...]:
    poses, _, maps, centre = arguments[3:7]
    layer = layer_of(poses, maps, arguments[-1])
    parents = empty_parents(centre), empty_parents(centre), empty_parents(centre, 1)
    return *parents, poses.new_empty(layer.known), poses.new_empty(layer.pairs)


parents_backward = operator(
    "triton_parents_backward",
    f"({GRADS}, {CHILDREN}, {PARENTS}, Tensor mass, Tensor first, Tensor log_total, int[] layer) -> {results(5)}",
    compute_parents_backward,
    empty_parents_backward,
)

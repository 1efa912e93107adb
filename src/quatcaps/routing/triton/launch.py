"""The operators' work: which kernel gets what.

`Children` are poses, activations and maps as PyTorch sees them, (N, I, D, height, width), (N, I, height, width) and
(offsets, I, J, C, C); `laid` puts them as the kernels read them, which is no copy where they lie so already.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from quatcaps.routing.triton.layout import (
    as_children,
    as_maps,
    laid_children,
    laid_maps,
    parents_first,
    positions_first,
)
from quatcaps.routing.triton.plan import Layer, Plan, by_child, by_position, power_of_two

BOTH, TOTALS, SUMS = 0, 1, 2
"""What a pass finds, as in kernels/forward.py."""
TILE = 256
"""Numbers that a program of the small kernels takes."""
FEW = {"TILE_ROWS": 128, "num_warps": 8}
"""How `add_rows` is cut where there are few programs."""


class Children(NamedTuple):
    poses: Tensor
    activations: Tensor
    maps: Tensor

    def laid(self, layer: Layer) -> Children:
        poses, activations = (laid_children(values, layer.wide) for values in self[:2])
        return Children(poses, activations, laid_maps(self.maps, layer.wide))


class Left(NamedTuple):
    """What weighted moments leave for the pass over the children."""

    known: Tensor  # all that is known of each parent
    log_total: Tensor  # the logarithms of the softmax's sums, for each child in each window
    grad_activation: Tensor  # the gradient of its activation


def plan_moments(layer: Layer) -> Plan:
    return by_position(layer, per_thread=8, least_steps=8, registers=(None, 168))


def plan_uniform(layer: Layer) -> Plan:
    return by_position(layer, per_thread=8, least_steps=32, registers=(168, 128))


def plan_parents(layer: Layer) -> Plan:
    return by_position(layer, per_thread=4, least_steps=8, registers=(None, 168))


def plan_children(layer: Layer, calls: int) -> Plan:
    return by_child(layer, per_thread=8 if calls == 1 else 4, registers=(None, 168))


def weighted(
    children: Children, centre: Tensor, precision: Tensor, logit: Tensor, keep: bool, layer: Layer
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Moments under given parents: mass, first, second; and, to keep, the logarithms of the softmax's sums."""
    from quatcaps.routing.triton.kernels import forward, parts

    cut, sizes, like = plan_moments(layer), layer.sizes, children.poses
    given = (*children.laid(layer), *(positions_first(values) for values in (centre, precision, offset(logit, layer))))
    sums = empty_sums(like, layer, cut.splits)
    log_total = like.new_empty(layer.pairs if keep or layer.passes else (0,))
    finds = (TOTALS, SUMS) if layer.passes else (BOTH,)
    for each in finds:
        forward.sum_moments[cut.launch](
            *given,
            sums,
            log_total,
            layer.positions,
            cut.per_program,
            LAYER=sizes,
            FINDS=each,
            KEEP=keep or layer.passes,
            **cut.options(),
        )
        if each == TOTALS and layer.everywhere:
            over_windows(log_total, layer, logarithms=True)
        if each == TOTALS and layer.floored:
            log_total.clamp_(min=layer.floor)
    mass, first, second = (like.new_empty(layer.parent_shape(*dims)) for dims in ((), (layer.dims,), (layer.dims,)))
    parts.add_moments[programs(sums.shape[1])](
        sums, mass, first, second, cut.splits, mass.numel(), first.numel(), TILE=TILE
    )
    kept = log_total if keep else log_total.new_empty(0)
    return parents_first(mass), parents_first(first), parents_first(second), kept


def offset(logit: Tensor, layer: Layer) -> Tensor:
    """The logits, less what all of an image have in common where all its positions compete: that changes nothing, and
    costs digits. Elsewhere the kernels do that for each position. Not where logits are held against a floor."""
    if not layer.everywhere or layer.floored or logit.numel() == 0:
        return logit
    return logit - logit.amax((1, 2, 3), keepdim=True)


def over_windows(values: Tensor, layer: Layer, *, logarithms: bool) -> None:
    """Turns what children have in each window into what they have in all, in place."""
    from quatcaps.routing.triton.kernels import parts

    grid = (math.ceil(layer.children * layer.height * layer.width / TILE), layer.images)
    if layer.images:
        parts.over_windows[grid](values, layer.images, LAYER=layer.sizes, LOGARITHMS=logarithms, TILE=TILE)


def uniform(children: Children, layer: Layer) -> tuple[Tensor, ...]:
    """Moments under uniform assignments: centre, mass, first, second."""
    from quatcaps.routing.triton.kernels import forward, parts

    cut, sizes, like = plan_uniform(layer), layer.sizes, children.poses
    if layer.spread:
        children = children._replace(activations=children.activations * shares(layer, like))
    part_mass = like.new_empty(cut.splits, layer.positions)
    part = [like.new_empty(cut.splits, *layer.parent_shape(layer.dims)) for _ in range(3)]
    forward.sum_uniform[cut.launch](
        *children.laid(layer), part_mass, *part, layer.positions, cut.per_program, LAYER=sizes, **cut.options()
    )
    mass = like.new_empty(layer.parent_shape())
    centre, first, second = (like.new_empty(layer.parent_shape(layer.dims)) for _ in range(3))
    parts.merge_moments[programs(centre.numel())](
        part_mass, *part, centre, mass, first, second, cut.splits, layer.positions, LAYER=sizes, TILE=TILE
    )
    return tuple(parents_first(values) for values in (centre, mass, first, second))


def shares(layer: Layer, like: Tensor) -> Tensor:
    """(height, width): one over the number of windows that hold a child there."""

    def windows(length: int, kernel: int, count: int) -> Tensor:
        places = torch.arange(length, device=like.device)
        last = (places // layer.window.stride).clamp(max=count - 1)
        first = -((kernel - 1 - places) // layer.window.stride)
        return (last - first.clamp(min=0) + 1).clamp(min=1)

    rows = windows(layer.height, layer.window.height, layer.grid[0])
    columns = windows(layer.width, layer.window.width, layer.grid[1])
    return (rows[:, None] * columns).to(like.dtype).reciprocal()


def parents_backward(
    grads: tuple[Tensor, Tensor, Tensor],
    children: Children,
    parents: tuple[Tensor, Tensor, Tensor],
    mass: Tensor,
    first: Tensor,
    log_total: Tensor,
    layer: Layer,
) -> tuple[Tensor, ...]:
    """Gradients of centre, precision and logit; and what is left for the children: `Left.known` and
    `Left.grad_activation`."""
    from quatcaps.routing.triton.kernels import backward, parts

    cut, sizes, like = plan_parents(layer), layer.sizes, children.poses
    centre, precision, logit = parents
    m, p, c = (positions_first(values) for values in (centre, precision, offset(logit, layer)))
    g0, g1, g2 = (positions_first(grad) for grad in grads)
    sums = empty_sums(like, layer, cut.splits)
    known = like.new_empty(layer.known)
    grad_activation = torch.empty_like(log_total)
    laid = children.laid(layer)
    for each in (TOTALS, SUMS) if layer.passes else (BOTH,):
        backward.sum_parents[cut.launch](
            *laid,
            *(m, p, c, g0, g1, g2),
            log_total,
            sums,
            known,
            grad_activation,
            layer.positions,
            cut.per_program,
            LAYER=sizes,
            FINDS=each,
            **cut.options(),
        )
        if each == TOTALS and layer.everywhere:
            over_windows(grad_activation, layer, logarithms=False)
    grad_centre, grad_precision, grad_logit = torch.empty_like(m), torch.empty_like(p), torch.empty_like(c)
    parts.finish_parents[programs(m.numel())](
        sums,
        *(m, p, g0, g1, g2),
        positions_first(mass),
        positions_first(first),
        grad_centre,
        grad_precision,
        grad_logit,
        known,
        cut.splits,
        layer.positions,
        LAYER=sizes,
        TILE=TILE,
    )
    grad_parents = (parents_first(grad) for grad in (grad_centre, grad_precision, grad_logit))
    return *grad_parents, known, grad_activation


def children_backward(
    children: Children, left: list[Left], even: tuple[Tensor, ...] | None, layer: Layer
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of poses, activations and maps from what any number of weighted moments have `left`, and from uniform
    ones: `even` are their centre and the gradients of mass, first and second."""
    from quatcaps.routing.triton.kernels import backward, parts

    poses, activations, maps = children.laid(layer)
    if layer.positions == 0:  # no images: the pass would look at the first position
        nothing = (torch.zeros_like(values) for values in children)
        return tuple(nothing)  # type: ignore[return-value]
    sizes, known_uniform = layer.sizes, poses
    if even is not None:
        given = [positions_first(values) for values in even]
        known_uniform, parents = poses.new_empty(layer.known_uniform), given[1].numel()
        known = left[0].known if left else poses
        parts.pack_uniform[programs(parents)](
            known, *given, known_uniform, parents, LAYER=sizes, WEIGHTED=bool(left), TILE=TILE
        )
    cut = plan_children(layer, len(left) + (even is not None))
    buffer = poses.new_empty(layer.positions, layer.dims + 1, layer.inside)
    sums = poses.new_empty(cut.splits, layer.inside, *maps.shape[2:])
    seen = (poses, activations) if layer.wide else (packed(poses, activations, layer),)
    (backward.sum_children_wide if layer.wide else backward.sum_children)[cut.launch](
        *seen,
        maps,
        tuple(tuple(one) for one in left) or ((poses, poses, poses),),
        known_uniform,
        buffer,
        sums,
        layer.positions,
        cut.per_program,
        LAYER=sizes,
        WEIGHTED=len(left),
        UNIFORM=even is not None,
        **cut.options(),
    )
    grad_maps = add_rows(sums, torch.empty_like(maps))
    grad_poses, grad_activations = torch.empty_like(poses), torch.empty_like(activations)
    fold(buffer, grad_poses, grad_activations, layer)
    grad_children = (as_children(grad, layer.wide) for grad in (grad_poses, grad_activations))
    return *grad_children, as_maps(grad_maps, layer.wide)  # type: ignore[return-value]


def add_rows(rows: Tensor, total: Tensor) -> Tensor:
    """The sum of rows that each have the size of `total`, put there. Few programs take many rows at once, as they have
    to wait for each in turn."""
    from quatcaps.routing.triton.kernels import parts

    entries = total.numel()
    tile = min(64, power_of_two(entries))
    programs = math.ceil(entries / tile)
    cut = {"TILE": tile, "TILE_ROWS": 16, "num_warps": 4} if programs > 16 else FEW | {"TILE": tile}
    parts.add_rows[(programs,)](rows, total, rows.numel() // entries, entries, **cut)
    return total


def packed(poses: Tensor, activations: Tensor, layer: Layer) -> Tensor:
    """Narrow poses and their activations, children as neighbours in memory."""
    from quatcaps.routing.triton.kernels import children

    pixels = layer.images * layer.height * layer.width
    side_by_side = poses.new_empty(pixels, layer.dims + 1, layer.children)
    grid, tiles = tiles_of_pixels(pixels, layer.children, layer.dims)
    children.pack_children[grid](poses, activations, side_by_side, pixels, LAYER=layer.sizes, **tiles)
    return side_by_side


def fold(buffer: Tensor, grad_poses: Tensor, grad_activations: Tensor, layer: Layer) -> None:
    """The gradients of children from the columns of all windows."""
    from quatcaps.routing.triton.kernels import children

    pixels = layer.images * layer.height * layer.width
    if layer.wide:
        grid = (pixels, math.ceil(layer.children * (layer.dims + 1) / TILE))
        children.fold_wide[grid](buffer, grad_poses, grad_activations, LAYER=layer.sizes, TILE=TILE, num_warps=2)
        return
    tiled, tiles = tiles_of_pixels(pixels, layer.children, layer.dims)
    children.fold[tiled](buffer, grad_poses, grad_activations, pixels, LAYER=layer.sizes, **tiles)


def tiles_of_pixels(pixels: int, children: int, dims: int) -> tuple[tuple[int, int, int], dict[str, int]]:
    """[pixels × child types], once for each number of a narrow pose and once for the activation."""
    tile, tile_children = 16, min(32, power_of_two(children))
    grid = (math.ceil(pixels / tile), math.ceil(children / tile_children), dims + 1)
    return grid, {"TILE": tile, "TILE_CHILDREN": tile_children, "num_warps": 1}


def programs(numbers: int) -> tuple[int]:
    return (math.ceil(numbers / TILE),)


def empty_sums(like: Tensor, layer: Layer, splits: int) -> Tensor:
    """Room for the partial sums of each split: one number per parent, then twice one per dimension of it."""
    return like.new_empty(splits, layer.positions * layer.parents * (1 + 2 * layer.dims))

"""How parents and maps lie in memory for the operators, and how a window travels to them."""

from __future__ import annotations

import torch
from torch import Tensor


def positions_first(values: Tensor) -> Tensor:
    """(N, J, D, H, W) → (N, H, W, D, J), or (N, J, H, W) → (N, H, W, J), contiguous.

    Parents lie in memory this way: the parents of a position are neighbours. What the operators return is laid out so
    behind the usual shape, elementwise operations keep it, and so this is most often no copy.
    """
    return values.movedim((-2, -1), (1, 2)).transpose(3, -1).contiguous()


def parents_first(values: Tensor) -> Tensor:
    """The inverse of `positions_first`, as a view."""
    return values.transpose(3, -1).movedim((1, 2), (-2, -1))


def empty_parents(centre: Tensor, dims: int | None = None) -> Tensor:
    """An empty tensor in the layout of the operators' results: as many numbers per parent as in `centre`, or one."""
    images, parents, pose, height, width = centre.shape
    if dims is None:
        return parents_first(centre.new_empty(images, height, width, pose, parents))
    return parents_first(centre.new_empty(images, height, width, parents))


def by_parent(maps: Tensor) -> Tensor:
    """(offsets, I, J, C, C) → (offsets, I, C, C, J), contiguous: no copy for maps that lie so in memory."""
    return maps.movedim(2, 4).contiguous()


def by_row(maps: Tensor) -> Tensor:
    """(offsets, I, J, C, C) → (offsets, I, column of the pose, J, column of the vote), contiguous: a thread that stands
    for a parent then reads a row of numbers at once. No copy for maps that lie so in memory."""
    return maps.permute(0, 1, 4, 2, 3).contiguous()


def as_maps(rows: Tensor) -> Tensor:
    """The inverse of `by_row`, as a view."""
    return rows.permute(0, 1, 3, 4, 2)


def children_last(values: Tensor) -> Tensor:
    """(N, I, D, H, W) → (N, H, W, I, D), or (N, I, H, W) → (N, H, W, I), contiguous: channels last.

    No copy for what lies so in memory."""
    return values.movedim((-2, -1), (1, 2)).contiguous()


def children_first(values: Tensor) -> Tensor:
    """The inverse of `children_last`, as a view."""
    return values.movedim((1, 2), (-2, -1))


def empty_children(
    poses: Tensor, activations: Tensor, maps: Tensor, *, wide: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Empty gradients of children, in the layout of the operators' results."""
    offsets, children, parents, columns, _ = maps.shape
    if wide:
        grad_maps = as_maps(maps.new_empty(offsets, children, columns, parents, columns))
        last = (children_last(values) for values in (poses, activations))
        grad_poses, grad_activations = (children_first(torch.empty_like(values)) for values in last)
        return grad_poses, grad_activations, grad_maps
    grad_maps = maps.new_empty(offsets, children, columns, columns, parents).movedim(4, 2)
    return poses.new_empty(poses.shape), activations.new_empty(activations.shape), grad_maps

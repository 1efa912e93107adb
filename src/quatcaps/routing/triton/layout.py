"""How children, maps and parents lie in memory for the kernels."""

from __future__ import annotations

from torch import Tensor


def positions_first(values: Tensor) -> Tensor:
    """(N, J, D, H, W) → (N, H, W, D, J), or (N, J, H, W) → (N, H, W, J), contiguous.

    Parents lie in memory this way: the parents of a position are neighbours. What the operators return is laid out so
    behind the usual shape, elementwise operations keep it, and so this is most often no copy.
    """
    return turned(values).contiguous()


def turned(values: Tensor) -> Tensor:
    """`positions_first` as a view, which is contiguous where values lie so in memory."""
    return values.movedim((-2, -1), (1, 2)).transpose(3, -1)


def parents_first(values: Tensor) -> Tensor:
    """The inverse of `positions_first`, as a view."""
    return values.transpose(3, -1).movedim((1, 2), (-2, -1))


def empty_parents(centre: Tensor, dims: int | None = None) -> Tensor:
    """An empty tensor in the layout of the operators' results: as many numbers per parent as in `centre`, or one."""
    images, parents, pose, height, width = centre.shape
    if dims is None:
        return parents_first(centre.new_empty(images, height, width, pose, parents))
    return parents_first(centre.new_empty(images, height, width, parents))


def laid_maps(maps: Tensor, wide: bool) -> Tensor:
    """(offsets, I, J, C, C) as the kernels read it, contiguous. Of narrow poses (offsets, I, C, C, J), and rotors
    (offsets, I, J, 4) as (offsets, I, 4, J). Of wide ones
    (offsets, I, column of the pose, J, column of the vote): a thread that stands for a parent then reads a row at once.
    No copy for maps that lie so in memory."""
    return maps.permute(0, 1, 4, 2, 3).contiguous() if wide else maps.movedim(2, -1).contiguous()


def as_maps(laid: Tensor, wide: bool) -> Tensor:
    """The inverse of `laid_maps`, as a view."""
    return laid.permute(0, 1, 3, 4, 2) if wide else laid.movedim(-1, 2)


def children_last(values: Tensor) -> Tensor:
    """(N, I, D, H, W) → (N, H, W, I, D), or (N, I, H, W) → (N, H, W, I), contiguous: channels last.

    No copy for what lies so in memory."""
    return values.movedim((-2, -1), (1, 2)).contiguous()


def children_first(values: Tensor) -> Tensor:
    """The inverse of `children_last`, as a view."""
    return values.movedim((1, 2), (-2, -1))


def laid_children(values: Tensor, wide: bool) -> Tensor:
    """Poses or activations as the kernels read them: wide ones with channels last."""
    return children_last(values) if wide else values.contiguous()


def as_children(laid: Tensor, wide: bool) -> Tensor:
    """The inverse of `laid_children`, as a view."""
    return children_first(laid) if wide else laid

"""Rotors, and their matrices, as one kernel forward and one backward; `quaternion.rotor` and `rotor_to_matrix` are
the formulas."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quatcaps.poses.operators import rotor_operator

TILE = 256


def forward(angle: Tensor, axis: Tensor, right: bool) -> Tensor:
    """(offsets, I, J) and (offsets, I, J, 3) → rotations v → w v w*, (offsets, I, J, 3, 3), or, if they are to multiply
    from the `right`, rotors w, (offsets, I, J, 4); in memory with J last."""
    from quatcaps.poses.kernels import rotor

    matrix = empty(angle, right)
    rotor.rotor_matrix[(math.ceil(angle.numel() / TILE),)](
        angle.contiguous(),
        axis.contiguous(),
        matrix,
        angle.numel(),
        PARENTS=angle.shape[-1],
        RIGHT=right,
        TILE=TILE,
    )
    return matrix.movedim(-1, 2)


def backward(grad: Tensor, angle: Tensor, axis: Tensor, right: bool) -> tuple[Tensor, Tensor]:
    from quatcaps.poses.kernels import rotor

    angle, axis = angle.contiguous(), axis.contiguous()
    grad_angle, grad_axis = torch.empty_like(angle), torch.empty_like(axis)
    rotor.rotor_matrix_backward[(math.ceil(angle.numel() / TILE),)](
        grad.movedim(2, -1).contiguous(),
        angle,
        axis,
        grad_angle,
        grad_axis,
        angle.numel(),
        PARENTS=angle.shape[-1],
        RIGHT=right,
        TILE=TILE,
    )
    return grad_angle, grad_axis


def empty(angle: Tensor, right: bool) -> Tensor:
    offsets, children, parents = angle.shape
    cells = (4,) if right else (3, 3)
    return angle.new_empty(offsets, children, *cells, parents)


def empty_matrix(angle: Tensor, axis: Tensor, right: bool) -> Tensor:
    return empty(angle, right).movedim(-1, 2)


rotor_matrix = rotor_operator("rotor_matrix", forward, backward, empty_matrix)

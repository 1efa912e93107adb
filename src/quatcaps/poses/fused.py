"""Rotors to rotation matrices as one kernel forward and one backward; `quaternion.rotor` and `rotor_to_matrix` are
the formulas."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

TILE = 256


def forward(angle: Tensor, axis: Tensor) -> Tensor:
    """(offsets, I, J) and (offsets, I, J, 3) → (offsets, I, J, 3, 3), in memory as (offsets, I, 3, 3, J)."""
    from quatcaps.poses.kernels import rotor

    matrix = empty(angle)
    rotor.rotor_matrix[(math.ceil(angle.numel() / TILE),)](
        angle.contiguous(), axis.contiguous(), matrix, angle.numel(), PARENTS=angle.shape[-1], TILE=TILE
    )
    return matrix.movedim(4, 2)


def backward(grad: Tensor, angle: Tensor, axis: Tensor) -> tuple[Tensor, Tensor]:
    from quatcaps.poses.kernels import rotor

    angle, axis = angle.contiguous(), axis.contiguous()
    grad_angle, grad_axis = torch.empty_like(angle), torch.empty_like(axis)
    rotor.rotor_matrix_backward[(math.ceil(angle.numel() / TILE),)](
        grad.movedim(2, 4).contiguous(),
        angle,
        axis,
        grad_angle,
        grad_axis,
        angle.numel(),
        PARENTS=angle.shape[-1],
        TILE=TILE,
    )
    return grad_angle, grad_axis


def empty(angle: Tensor) -> Tensor:
    offsets, children, parents = angle.shape
    return angle.new_empty(offsets, children, 3, 3, parents)


rotor_matrix = torch.library.custom_op(
    "quatcaps::rotor_matrix", forward, mutates_args=(), schema="(Tensor angle, Tensor axis) -> Tensor"
)
rotor_matrix_backward = torch.library.custom_op(
    "quatcaps::rotor_matrix_backward",
    backward,
    mutates_args=(),
    schema="(Tensor grad, Tensor angle, Tensor axis) -> (Tensor, Tensor)",
)


@rotor_matrix.register_fake
def _(angle: Tensor, axis: Tensor) -> Tensor:
    return empty(angle).movedim(4, 2)


@rotor_matrix_backward.register_fake
def _(grad: Tensor, angle: Tensor, axis: Tensor) -> tuple[Tensor, Tensor]:
    return angle.new_empty(angle.shape), axis.new_empty(axis.shape)


def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    return rotor_matrix_backward(grad, *ctx.saved_tensors)


rotor_matrix.register_autograd(differentiate, setup_context=setup_context)

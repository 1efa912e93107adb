"""Rotors, and their matrices, in C, forward and backward; `quaternion.rotor` and `rotor_to_matrix` are the formulas."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from quatcaps.native import build
from quatcaps.native.calls import share
from quatcaps.poses.operators import empty_backward, rotor_operator

WORTH_A_THREAD = 2**11
"""Rotors for which waking a thread repays."""
TENSORS = ("angle", "axis", "grad", "matrix", "grad_angle", "grad_axis")


class Task(ctypes.Structure):
    """`Task` of rotors.c."""

    _fields_ = (
        ("rotors", ctypes.c_int64),
        ("right", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in TENSORS),
        ("next", ctypes.c_int64),
    )


def run(function: str, right: bool, tensors: dict[str, Tensor]) -> None:
    angle = tensors["angle"]
    library = build.library(Path(__file__).parent, (f"IS_DOUBLE={int(angle.dtype == torch.float64)}",))
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    task = Task(rotors=angle.numel(), right=right, **addresses)
    share(getattr(library, function), task, tensors, angle.numel() // WORTH_A_THREAD)


def forward(angle: Tensor, axis: Tensor, right: bool) -> Tensor:
    """(…) and (…, 3) → rotations v → w v w*, (…, 3, 3), or, if they are to multiply from the `right`, rotors w,
    (…, 4)."""
    matrix = empty(angle, axis, right)
    run("quatcaps_rotors", right, {"angle": angle.contiguous(), "axis": axis.contiguous(), "matrix": matrix})
    return matrix


def backward(grad: Tensor, angle: Tensor, axis: Tensor, right: bool) -> tuple[Tensor, Tensor]:
    found = empty_backward(grad, angle, axis, right)
    given = {"grad": grad.contiguous(), "angle": angle.contiguous(), "axis": axis.contiguous()}
    run("quatcaps_rotors_backward", right, given | {"grad_angle": found[0], "grad_axis": found[1]})
    return found


def empty(angle: Tensor, axis: Tensor, right: bool) -> Tensor:
    return angle.new_empty(*angle.shape, *((4,) if right else (3, 3)))


rotor_matrix = rotor_operator("native_rotor_matrix", forward, backward, empty)

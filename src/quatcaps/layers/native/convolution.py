"""A 3×3 convolution of stride 1 in C, by Winograd's algorithm, and its gradients.

The gradient of the images is such a convolution too, by the weights turned around; that of the weights is PyTorch's, by
matrix products.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from quatcaps.layers.native import DEFINITIONS, SOURCES, WORTH_TRANSFORMING, for_tiles
from quatcaps.native import build
from quatcaps.native.calls import share
from quatcaps.operators import operator

SIZES = ("images", "channels", "channels_out", "height", "width")
TENSORS = ("input", "weights", "output")


class Task(ctypes.Structure):
    """`Task` of convolution.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_void_p) for name in TENSORS),
        ("next", ctypes.c_int64),
    )


def pays(weight: Tensor) -> bool:
    """Whether there are as many channels, before and after, as repay the transforms."""
    return min(weight.shape[:2]) >= WORTH_TRANSFORMING


def compute(images: Tensor, weight: Tensor) -> Tensor:
    library, output = build.library(SOURCES, DEFINITIONS), empty(images, weight)
    lanes = library.quatcaps_lanes()
    tensors = {"input": images.contiguous(), "weights": for_tiles(weight, lanes), "output": output}
    sizes = (len(images), images.shape[1], len(weight), *images.shape[2:])
    task = Task(*sizes, *(tensors[name].data_ptr() for name in TENSORS), 0)
    share(library.quatcaps_convolution, task, tensors, len(images))
    return output


def empty(images: Tensor, weight: Tensor) -> Tensor:
    return images.new_empty(len(images), len(weight), *images.shape[2:])


def save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    images, weight = ctx.saved_tensors
    by_images, by_weight = ctx.needs_input_grad
    grad_images = convolution(grad, weight.flip(2, 3).transpose(0, 1)) if by_images else None
    if not by_weight:
        return grad_images, None
    window = ((3, 3), (1, 1), (1, 1))
    return grad_images, torch.ops.aten._slow_conv2d_backward(grad, images, weight, *window, (False, True, False))[1]


convolution = operator(
    "native_convolution",
    "(Tensor images, Tensor weight) -> Tensor",
    compute,
    empty,
    save=save,
    differentiate=differentiate,
)
"""images (N, I, H, W) and weight (O, I, 3, 3) → (N, O, H, W), with a border of zeros around the images."""

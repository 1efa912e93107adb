"""Residual blocks of a CPU without gradients, in C; `ResidualBlock.forward` is the formula."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from quatcaps.accelerator import constant
from quatcaps.native import build
from quatcaps.native.calls import share
from quatcaps.operators import operator

SOURCES = Path(__file__).parent
DEFINITIONS = ("IS_DOUBLE=0",)
WORTH_TRANSFORMING = 16
"""Channels from which Winograd's algorithm saves more products than its transforms take."""
WORTH_A_THREAD = 2**10
"""3 × 3 weights for which waking a thread repays."""
PARTS = 6
"""Tensors of a block, in the order of `residual_blocks`."""
Parts = list[Tensor | None]
SIZES = ("channels", "height", "width", "channels_out", "height_out", "width_out", "stride")
WEIGHTS = ("scale", "shift", "conv1", "transformed1", "bias", "conv2", "skip")


class Block(ctypes.Structure):
    """`Block` of residual.c; a tensor that is not given is NULL."""

    _fields_ = (*((name, ctypes.c_int64) for name in SIZES), *((name, ctypes.c_void_p) for name in WEIGHTS))


class Task(ctypes.Structure):
    """`Task` of residual.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("images", "count", "by_image", "by_channel", "by_row", "by_column")),
        *((name, ctypes.c_void_p) for name in ("input", "blocks", "output")),
        ("next", ctypes.c_int64),
    )


@constant
def problem() -> str | None:
    """Why there is no library, in words that end a sentence, or None."""
    return build.problem(SOURCES, DEFINITIONS)


def packed(weight: Tensor, unit_in: int, unit_out: int) -> Tensor:
    """(places, I, O) → (blocks of output channels, places, I, unit_out), with I and O padded to multiples."""
    _, inputs, outputs = weight.shape
    missing = (0, -outputs % unit_out, 0, -inputs % unit_in)
    whole = F.pad(weight, missing) if any(missing) else weight
    return whole.unflatten(2, (-1, unit_out)).permute(2, 0, 1, 3).contiguous()


def by_place(weight: Tensor) -> Tensor:
    """(O, I, rows, columns) → (rows · columns, I, O)."""
    return weight.flatten(2).permute(2, 1, 0)


class Weights(ctypes.Structure):
    """`Task` of weights.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("outputs", "inputs", "wide")),
        *((name, ctypes.c_void_p) for name in ("weight", "packed")),
        ("next", ctypes.c_int64),
    )


def for_tiles(weight: Tensor, unit_in: int) -> Tensor:
    """(O, I, 3, 3) → (blocks of output channels, 6 · 6, I, unit_out), with I and O padded to multiples."""
    library = build.library(SOURCES, DEFINITIONS)
    outputs, inputs, unit_out = *weight.shape[:2], 2 * library.quatcaps_lanes()
    wide = -(-inputs // unit_in) * unit_in
    tensors = {"weight": weight.contiguous(), "packed": weight.new_empty(-(-outputs // unit_out), 36, wide, unit_out)}
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    task = Weights(outputs=outputs, inputs=inputs, wide=wide, **addresses)
    share(library.quatcaps_weights, task, tensors, outputs * inputs // WORTH_A_THREAD)
    return tensors["packed"]


def laid_out(parts: tuple[Tensor | None, ...], stride: int, lanes: int) -> dict[str, Tensor]:
    """The tensors of a block as residual.c reads them, by name."""
    scale, shift, conv1, bias, conv2, skip = parts
    assert scale is not None
    assert shift is not None
    assert conv1 is not None
    assert bias is not None
    assert conv2 is not None
    by_tiles = stride == 1 and conv1.shape[1] >= WORTH_TRANSFORMING
    first = for_tiles(conv1, lanes) if by_tiles else packed(by_place(conv1), lanes, 2 * lanes)
    tensors = {
        "scale": scale.contiguous(),
        "shift": shift.contiguous(),
        "transformed1" if by_tiles else "conv1": first,
        "bias": F.pad(bias, (0, -len(bias) % (2 * lanes))),
        "conv2": for_tiles(conv2, 2 * lanes),
    }
    return tensors if skip is None else tensors | {"skip": packed(by_place(skip), lanes, 2 * lanes)}


def shapes(images: Tensor, parts: Parts, strides: list[int]) -> list[tuple[int, int, int]]:
    """Channels, height and width before each block and after the last."""
    _, channels, height, width = images.shape
    found = [(channels, height, width)]
    for conv1, stride in zip(parts[2::PARTS], strides, strict=True):
        assert conv1 is not None
        _, height, width = found[-1]
        found.append((len(conv1), (height - 1) // stride + 1, (width - 1) // stride + 1))
    return found


def compute(images: Tensor, parts: Parts, strides: list[int]) -> Tensor:
    library = build.library(SOURCES, DEFINITIONS)
    lanes = library.quatcaps_lanes()
    output, sizes = empty(images, parts, strides), shapes(images, parts, strides)
    tensors, blocks = {"input": images, "output": output}, (Block * len(strides))()
    for k, stride in enumerate(strides):
        of_block = laid_out(tuple(parts[k * PARTS : (k + 1) * PARTS]), stride, lanes)
        numbers = dict(zip(SIZES, (*sizes[k], *sizes[k + 1], stride), strict=True))
        blocks[k] = Block(**numbers, **{name: tensor.data_ptr() for name, tensor in of_block.items()})
        tensors |= {f"{name} of {k}": tensor for name, tensor in of_block.items()}
    by_image, by_channel, by_row, by_column = images.stride()
    task = Task(
        *(len(images), len(strides), by_image, by_channel, by_row, by_column),
        *(images.data_ptr(), ctypes.addressof(blocks), output.data_ptr(), 0),
    )
    task.holds = blocks  # as long as a thread works on the task
    share(library.quatcaps_residual_blocks, task, tensors, len(images))
    return output


def empty(images: Tensor, parts: Parts, strides: list[int]) -> Tensor:
    shape = (len(images), *shapes(images, parts, strides)[-1])
    return torch.empty(shape, dtype=images.dtype, device=images.device, memory_format=torch.channels_last)


residual_blocks = operator(
    "native_residual_blocks", "(Tensor images, Tensor?[] parts, int[] strides) -> Tensor", compute, empty
)
"""images (N, C, H, W), of any layout, through some blocks, to channels last in memory. `parts` are, for each block,
scale, shift, conv1, bias, conv2 and skip: x′ = relu(scale · x + shift) → conv2(relu(conv1(x′) + bias)) + skip(x′);
where `skip` is None, x itself is added. `strides` are those of conv1 and skip."""

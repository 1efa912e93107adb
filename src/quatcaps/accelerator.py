"""The GPU: whether Triton kernels can run, asked by every place that has one beside its plain formula; which GPU is the
current one; and in which precision convolutions are computed."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

LEAST_CAPABILITY = (7, 0)


Function = TypeVar("Function", bound=Callable[..., Any])


def constant(function: Function) -> Function:
    """For questions about the machine: torch.compile asks them once and does not trace them. The mark is that of
    `torch.compiler.assume_constant_result`, which takes the seconds of importing the compiler to set it."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def runs_kernels(*tensors: Tensor) -> bool:
    """Whether kernels can take these tensors: float32, where Triton runs."""
    return all(tensor.dtype == torch.float32 and unavailable(tensor.device) is None for tensor in tensors)


@functools.cache
def _unavailable(device: torch.device) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "needs the package triton, which is not installed"
    if interpreted():
        return None
    if device.type != "cuda":
        return f"needs a CUDA device, not {device.type}"
    if torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        return f"needs compute capability {LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]} or more"
    return None


@constant
def unavailable(device: torch.device) -> str | None:
    """Why Triton cannot run there, or None."""
    return _unavailable(device)


def current(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Has a GPU be the current one, which kernels are launched on and graphs captured on unless told otherwise; any
    other device needs nothing."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def in_precision(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """A forward pass inside computes its convolutions and matrix products so. What it casts of the weights is cast anew
    in every pass, as a captured graph must."""
    if precision != "bf16":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


@contextlib.contextmanager
def rounding(precision: str) -> Iterator[None]:
    """Passes inside, forward and backward, round no factor of a convolution to TF32 if the precision is `ieee`."""
    if precision != "ieee":
        yield
        return
    convolutions: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = convolutions.fp32_precision
    convolutions.fp32_precision = "ieee"
    try:
        yield
    finally:
        convolutions.fp32_precision = before


def interpreted() -> bool:
    """Whether Triton's interpreter stands in for a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"

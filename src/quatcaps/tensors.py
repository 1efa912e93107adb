"""Tensors in safetensors files, with errors that say what happened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from quatcaps.errors import QuatcapsError
from quatcaps.files import explained


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: dict[str, str] | None = None) -> None:
    """Writes tensors, with some words beside them."""
    try:
        safetensors.torch.save_file({name: t.detach().contiguous() for name, t in tensors.items()}, path, header)
    except SafetensorError as error:
        # safetensors wraps the system's error in text; what matters is that the write did not happen.
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else 0, str(error)) from error


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU."""
    try:
        with explained(f"read {path}"):
            return safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise QuatcapsError(f"{path} is truncated or not a safetensors file ({error})") from error

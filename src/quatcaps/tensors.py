"""Tensors in safetensors files, with errors that say what happened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from quatcaps.errors import QuatcapsError
from quatcaps.files import explained


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: dict[str, str] | None = None) -> None:
    """Writes tensors, with some words beside them. A file that was there keeps its permissions: safetensors replaces it
    by one that its owner alone can read."""
    before = path.stat().st_mode if path.exists() else None
    try:
        safetensors.torch.save_file({name: t.detach().contiguous() for name, t in tensors.items()}, path, header)
        if before is not None:
            path.chmod(before)
    except SafetensorError as error:
        # safetensors wraps the system's error in text; what matters is that the write did not happen.
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else 0, str(error)) from error


def plain_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers on the CPU, contiguous; what is not whole numbers as float32."""
    tensors = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
    return {name: (t.float() if t.is_floating_point() else t).contiguous() for name, t in tensors.items()}


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU."""
    try:
        with explained(f"read {path}"):
            return safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise QuatcapsError(f"{path} is truncated or not a safetensors file ({error})") from error


def load_into(network: nn.Module, source: Path) -> None:
    """A file's parameters and buffers into `network`; an error that names the first one that does not fit."""
    tensors, wanted = load_tensors(source), network.state_dict()
    for name in sorted(wanted.keys() | tensors.keys()):
        if name not in tensors or name not in wanted:
            problem = "is missing from the file" if name in wanted else "is not in this network"
            raise QuatcapsError(f"{source} does not fit the network: {name} {problem}")
        if tensors[name].shape != wanted[name].shape:
            raise QuatcapsError(
                f"{source} does not fit the network: {name} has shape {tuple(tensors[name].shape)}, the network's "
                f"{tuple(wanted[name].shape)}: build it with the channels, classes and settings it was trained with"
            )
    network.load_state_dict(tensors)

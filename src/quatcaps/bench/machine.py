"""Where a benchmark ran, and with what."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import UTC, datetime
from typing import Any

import torch

from quatcaps.bench.precision import TF32, as_training
from quatcaps.training.run import versions

FORMAT = 1


def describe(name: str, device: torch.device) -> dict[str, Any]:
    """The machine's name, the date, the versions and PyTorch's own settings while measuring."""
    return {
        "format": FORMAT,
        "machine": name or usual_name(device),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": device.type,
        "threads": torch.get_num_threads(),
        "versions": {
            **versions(device),
            "triton": _installed("triton"),
            "cuda": torch.version.cuda or "none",
            "cudnn": str(torch.backends.cudnn.version() or "none"),
        },
        "flags": flags(),
    }


def usual_name(device: torch.device) -> str:
    """The GPU's name, or the CPU's kind and cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{os.cpu_count()}-core {platform.machine()}"


def flags() -> dict[str, bool]:
    """What decides which kernels the convolutions and products use, as it stands while measuring a row that does not
    say otherwise."""
    with as_training(None):
        allowed = TF32.now()
        return {
            "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
            "cudnn_allow_tf32": allowed.convolutions,
            "matmul_allow_tf32": allowed.products,
        }


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"

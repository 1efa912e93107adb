"""One module per dataset: its authors' files become images, labels and, where there are any, viewpoints.

Each has `SPLITS`, the published names that a split needs, and `read(split, files, size=…)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from quatcaps.errors import QuatcapsError, unknown_name


@dataclass(frozen=True)
class Read:
    """One split as its authors' files hold it."""

    images: Tensor  # (N, channels, height, width) uint8
    labels: Tensor  # (N,) int64
    info: dict[str, Tensor]  # viewpoints, (N,) int64 each; empty where there are none
    contents: dict[str, str]  # published file name without .gz → SHA-256 of its content


def paths(
    dataset: str, split: str, splits: Mapping[str, tuple[str, ...]], files: Mapping[str, Path]
) -> tuple[Path, ...]:
    """The files that a split needs, in the order of `splits`; an error that names those not in `files`."""
    if split not in splits:
        raise unknown_name(f"split of {dataset}", split, splits)
    missing = [name for name in splits[split] if name not in files]
    if missing:
        raise QuatcapsError(f"{dataset} {split} lacks {', '.join(missing)}: download these files, plain or as .gz")
    return tuple(files[name] for name in splits[split])


__all__ = ["Read", "paths"]

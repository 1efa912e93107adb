"""Datasets by name. A new one is a file with a loader, and one entry in `DATASETS`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from quatcaps.data import toys
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import unknown_name

Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do."""

MINI = {"elevations": (0, 3, 6), "azimuths": (0, 6, 12, 18, 24, 30), "lightings": (0, 3)}
"""What `toys-mini` shows of the toys: three elevations, six azimuths, two lightings; 900 pairs a split, in seconds."""


def _toys(split: str, folder: Path, size: int, seed: int, progress: Progress | None) -> ImageSet:
    return toys.load(split, size=size, seed=seed, cache=folder / "toys", progress=progress)


def _toys_mini(split: str, folder: Path, size: int, seed: int, progress: Progress | None) -> ImageSet:
    return toys.load(split, size=size, seed=seed, cache=folder / "toys", progress=progress, **MINI)


DATASETS: dict[str, Callable[[str, Path, int, int, Progress | None], ImageSet]] = {
    "toys": _toys,
    "toys-mini": _toys_mini,
}


def load(
    name: str, split: str, *, folder: Path, size: int = 48, seed: int = 0, progress: Progress | None = None
) -> ImageSet:
    """The `train` or `test` split of a dataset, from `folder` where it is prepared already.

    `size` is the side of the stored images; `seed` chooses the toys of the rendered dataset.
    """
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    return DATASETS[name](split, folder, size, seed, progress)


__all__ = ["DATASETS", "ImageSet", "Progress", "load"]

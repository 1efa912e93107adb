"""Datasets of one's own: a folder of images by class, or a NumPy archive of images and labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError

Progress = Callable[[int, int], None]
"""Called with the images that are read and those there are to read."""

LIMIT = 16 << 30
"""The most bytes of pixels that are read, unless told otherwise."""

MOST_CLASSES = 10_000
LONGEST_NAME = 255


@dataclass(frozen=True)
class Custom:
    """What was found: the names of the classes, and the images by split.

    `splits` has "train" and "test", or only "all" where the source does not say which images are for testing.
    """

    classes: tuple[str, ...]
    splits: dict[str, ImageSet]


def check_classes(source: Path, classes: Sequence[str]) -> None:
    """Raises unless there are two classes or more, each with a name of its own that can be printed."""
    if len(classes) < 2:
        raise QuatcapsError(f"{source} has {len(classes)} class(es): to tell images apart, at least 2 are needed")
    if len(classes) > MOST_CLASSES:
        raise QuatcapsError(f"{source} has {len(classes):,} classes: at most {MOST_CLASSES:,} can be told apart")
    seen: set[str] = set()
    for name in classes:
        if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
            raise QuatcapsError(
                f"{source} has a class named {name[:40]!a}: give it 1 to {LONGEST_NAME} letters that can be printed"
            )
        if name in seen:
            raise QuatcapsError(f"{source} has two classes named {name!r}: give each a name of its own")
        seen.add(name)


def check_room(source: Path, needed: int, limit: int, remedy: str) -> None:
    """Raises where the pixels of a dataset take more bytes than the limit."""
    if needed > limit:
        raise QuatcapsError(
            f"the images of {source} take {needed / 2**30:,.1f} GiB, more than the limit of {limit / 2**30:,.1f} GiB: "
            f"{remedy}"
        )


def new_images(source: Path, shape: tuple[int, int, int, int]) -> Tensor:
    """(N, channels, height, width) uint8 to be filled."""
    try:
        return torch.empty(shape, dtype=torch.uint8)
    except RuntimeError as error:
        raise QuatcapsError(
            f"this machine has no room for the {shape[0]:,} images of {source}, {shape[1]} × {shape[2]} × {shape[3]} "
            "bytes each: give fewer or smaller ones"
        ) from error


__all__ = ["LIMIT", "Custom", "Progress", "check_classes", "check_room", "new_images"]

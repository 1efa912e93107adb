"""What a custom dataset may hold, and how much of it fits in memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError

Progress = Callable[[int, int], None]
"""Called with the images that are read and those there are to read."""

PART_OF_MEMORY = 1 / 3
"""That the pixels of a dataset may take: while they are stored, they are in memory twice."""
MOST_EXPANSION, LEAST_EXPANDED = 250, 256 << 20
"""How many times larger than its file an .npz file's content may be, where it is larger than so many bytes."""

MOST_CLASSES = 10_000
LONGEST_NAME = 255


@dataclass(frozen=True)
class Custom:
    """What was found: all images, and how many of them belong to each split.

    `counts` has "train" and "test", or only "all" where the source does not say which images are for testing.
    """

    images: ImageSet
    counts: dict[str, int]

    @property
    def classes(self) -> tuple[str, ...]:
        return self.images.classes

    @property
    def splits(self) -> dict[str, ImageSet]:
        """The images of each split; no pixel is copied."""
        if "all" in self.counts:
            return {"all": self.images}
        name, middle = self.images.name, self.counts["train"]
        return {
            "train": self.images.part(0, middle, f"{name} train"),
            "test": self.images.part(middle, len(self.images), f"{name} test"),
        }


def memory() -> int:
    """Bytes of memory that there are for this process: the machine's, or its container's where that has less."""
    known = []
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(ValueError, OSError):
            known.append(int(Path(limit).read_text(encoding="ascii")))
    return min((each for each in known if each > 0), default=8 << 30)


def most_bytes(limit: int | None) -> int:
    """The limit on the bytes of a dataset: the one that is given, or a part of the memory."""
    return int(PART_OF_MEMORY * memory()) if limit is None else limit


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
            f"the images of {source} take {needed / 2**30:,.1f} GiB, more than the limit of {limit / 2**30:,.1f} GiB "
            f"on this machine: {remedy}"
        )


def check_expansion(source: Path, needed: int, stored: int) -> None:
    """Raises where a small compressed file would fill the memory: images do not compress that well."""
    if needed > LEAST_EXPANDED and needed > MOST_EXPANSION * max(1, stored):
        fold = needed // max(1, stored)
        raise QuatcapsError(
            f"the {stored / 1e6:,.1f} MB of {source} expand to {needed / 1e6:,.0f} MB, {fold:,}-fold, "
            f"above the limit of {MOST_EXPANSION}: store it uncompressed, with numpy.savez, if that is meant"
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

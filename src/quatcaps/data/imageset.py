"""What every dataset becomes: images, labels and, where they exist, the viewpoints they were taken from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quatcaps.errors import QuatcapsError

Progress = Callable[[int, int], None]
"""Called with what is done, images or bytes, and what there is to do."""
Stage = Callable[[str], Progress]
"""Called with what is being done; gives what to call with its progress."""

MOST_CLASSES, LONGEST_NAME = 10_000, 255
"""Of a dataset, and the letters in the name of a class."""
VIEWPOINT_FIELDS = ("instance", "elevation", "azimuth", "lighting")
VIEW = "view"
"""The field that `single_views` adds: 0 the left view of a stereo pair, 1 the right one."""


@dataclass(frozen=True)
class ImageSet:
    """Labelled images, as bytes.

    A part of a dataset shares the pixels of the whole: `rows` says which of the `stored` images it consists of, in
    what order; without it, of all of them. Viewpoint info follows smallNORB's files: `instance` is the toy's number,
    `elevation` 0 … 8 (30° + 5° each), `azimuth` 0, 2, … 34 (tens of degrees), `lighting` 0 … 5. Datasets without
    viewpoints leave `info` empty. `digest` identifies the data that the images come from: 64 hexadecimal digits that
    depend on their content alone, not on a path, a machine or a date. Parts have the digest of the whole.
    """

    name: str
    stored: Tensor  # (M, channels, height, width) uint8
    labels: Tensor  # (N,) int64
    classes: tuple[str, ...]
    info: dict[str, Tensor] = field(default_factory=dict)  # name → (N,) int64
    rows: Tensor | None = None  # (N,) int64; None: N = M, in the stored order
    source: str = ""  # where the images came from, in a few words
    digest: str = ""  # empty: unknown
    aligned: bool = False  # azimuth 0 is the same side of every toy

    def __post_init__(self) -> None:
        if self.stored.dtype != torch.uint8 or self.stored.ndim != 4:
            raise QuatcapsError(
                f"images of {self.name} are {self.stored.dtype} of shape {tuple(self.stored.shape)}: "
                "give uint8 of shape (N, channels, height, width)"
            )
        count = len(self.stored) if self.rows is None else len(self.rows)
        for what, column in {"labels": self.labels, **self.info}.items():
            if column.shape != (count,):
                raise QuatcapsError(
                    f"{what} of {self.name} has shape {tuple(column.shape)}: one entry for each of the "
                    f"{count} images is needed"
                )
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise QuatcapsError(
                f"labels of {self.name} run from {int(self.labels.min())} to {int(self.labels.max())}: "
                f"with {len(self.classes)} classes they must lie in 0 … {len(self.classes) - 1}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def channels(self) -> int:
        return self.stored.shape[1]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return (self.stored.shape[2], self.stored.shape[3])

    @property
    def nbytes(self) -> int:
        """What the pixels of these images take, wherever they are stored."""
        return len(self) * self.stored[:1].nbytes if len(self.stored) else 0

    @property
    def has_viewpoints(self) -> bool:
        """Whether it is known from where the images were taken."""
        return "elevation" in self.info or "azimuth" in self.info

    @property
    def images(self) -> Tensor:
        """(N, channels, height, width) uint8: all of them. Of a part of a dataset this is a copy."""
        return self.stored if self.rows is None else self.stored[self.rows]

    def at(self, chosen: slice | Tensor) -> Tensor:
        """(n, channels, height, width) uint8: the chosen images; a view where whole images follow each other."""
        return self.stored[chosen] if self.rows is None else self.stored[self.rows[chosen]]

    def select(self, chosen: Tensor, name: str | None = None) -> ImageSet:
        """The images that a boolean mask or an index tensor of shape (M,) chooses; no pixel is copied."""
        rows = torch.arange(len(self)) if self.rows is None else self.rows
        return replace(
            self,
            name=name or self.name,
            rows=rows[chosen],
            labels=self.labels[chosen],
            info={key: column[chosen] for key, column in self.info.items()},
        )

    def part(self, start: int, stop: int, name: str) -> ImageSet:
        """The images from `start` up to `stop`; a view."""
        if self.rows is not None:
            return self.select(torch.arange(start, stop), name)
        return replace(
            self,
            name=name,
            stored=self.stored[start:stop],
            labels=self.labels[start:stop],
            info={key: column[start:stop] for key, column in self.info.items()},
        )


def single_views(images: ImageSet) -> ImageSet:
    """The two views of every stereo pair as images of their own, the left one first: one channel each, with the label
    and the viewpoint of the pair. No pixel is copied. Images of one channel are single views already.

    >>> pairs = ImageSet("pairs", torch.zeros(3, 2, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1]), ("a", "b"))
    >>> single_views(pairs).labels
    tensor([0, 0, 1, 1, 1, 1])
    """
    if images.channels == 1:
        return images
    if images.channels != 2:
        raise QuatcapsError(
            f"{images.name} has images of {images.channels} channels: single views are those of stereo pairs, 2; leave "
            "out --stereo-views single"
        )
    views = torch.arange(2)
    columns = {key: column.repeat_interleave(2) for key, column in images.info.items()}
    return replace(
        images,
        name=f"{images.name}, single views",
        stored=images.stored.flatten(0, 1)[:, None],
        labels=images.labels.repeat_interleave(2),
        info={**columns, VIEW: views.repeat(len(images))},
        rows=None if images.rows is None else (2 * images.rows[:, None] + views).flatten(),
    )


def concatenate(sets: Sequence[ImageSet], name: str) -> ImageSet:
    """The images of several sets with the same classes, one after the other."""
    first = sets[0]
    if any(other.classes != first.classes or other.info.keys() != first.info.keys() for other in sets):
        raise QuatcapsError(f"cannot join {', '.join(s.name for s in sets)}: their classes or info differ")
    digests = list(dict.fromkeys(s.digest for s in sets))
    return ImageSet(
        name=name,
        stored=torch.cat([s.images for s in sets]),
        labels=torch.cat([s.labels for s in sets]),
        classes=first.classes,
        info={key: torch.cat([s.info[key] for s in sets]) for key in first.info},
        source=first.source,
        digest=digests[0] if len(digests) == 1 else digest_of(digests) if all(digests) else "",
        aligned=all(other.aligned for other in sets),
    )


def digest_of(value: object) -> str:
    """64 hexadecimal digits of a value that JSON can express, the same on every machine.

    >>> digest_of([["labels", "00ff"]])[:16]
    '53ff0c8af9f0a86f'
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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


def check_size(size: int, side: int) -> None:
    """Raises unless images of `side` × `side` pixels can be shrunk to `size` × `size`.

    >>> check_size(120, 96)
    Traceback (most recent call last):
    quatcaps.errors.QuatcapsError: size is 120: images of 96×96 only shrink, to sizes from 1 to 96
    """
    if not 1 <= size <= side:
        raise QuatcapsError(f"size is {size}: images of {side}×{side} only shrink, to sizes from 1 to {side}")


def shrink(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Means over areas, halves rounded up: images (N, channels, side, side) → (N, channels, size, size), uint8.

    >>> shrink(np.array([[[[1, 2], [2, 1]]]], dtype=np.uint8), 1).item()
    2
    """
    side = images.shape[-1]
    check_size(size, side)
    if size == side:
        return images
    total = block_sums(images, side // size) if side % size == 0 else area_sums(images, size)
    area = (side // size) ** 2 if side % size == 0 else side**2
    return ((total + area // 2) // area).astype(np.uint8)


def block_sums(images: NDArray[np.uint8], factor: int) -> NDArray[np.uint32]:
    """Sums over blocks of factor × factor pixels: strided, many times faster than numpy's sum over short axes."""
    rows = images[:, :, 0::factor].astype(np.uint32)
    for offset in range(1, factor):
        rows += images[:, :, offset::factor]
    total = rows[..., 0::factor].copy()
    for offset in range(1, factor):
        total += rows[..., offset::factor]
    return total


def area_sums(images: NDArray[np.uint8], size: int) -> NDArray[np.int64]:
    """Sums over areas of side/size × side/size pixels, in units of the size²-th part of a pixel.

    In units of the side · size-th part of the image, pixel i begins at i · size and area o at o · side.
    """
    side = images.shape[-1]
    pixel, area = np.arange(side) * size, np.arange(size)[:, None] * side
    overlap = np.minimum(pixel + size, area + side) - np.maximum(pixel, area)
    weights = np.maximum(overlap, 0).astype(np.float64)  # whole numbers, as are all sums below 2^53
    return (weights @ images.astype(np.float64) @ weights.T).astype(np.int64)

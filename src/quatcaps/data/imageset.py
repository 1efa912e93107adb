"""What every dataset becomes: images, labels and, where they exist, the viewpoints they were taken from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from quatcaps.errors import QuatcapsError

VIEWPOINT_FIELDS = ("instance", "elevation", "azimuth", "lighting")


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

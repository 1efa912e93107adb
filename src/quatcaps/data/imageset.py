"""What every dataset becomes: images, labels and, where they exist, the viewpoints they were taken from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from quatcaps.errors import QuatcapsError

VIEWPOINT_FIELDS = ("instance", "elevation", "azimuth", "lighting")


@dataclass(frozen=True)
class ImageSet:
    """Labelled images of one split, as bytes.

    Viewpoint info follows smallNORB's files: `instance` 0 … 9, `elevation` 0 … 8 (30° + 5° each), `azimuth`
    0, 2, … 34 (tens of degrees), `lighting` 0 … 5. Datasets without viewpoints leave `info` empty.
    """

    name: str
    images: Tensor  # (N, channels, height, width) uint8
    labels: Tensor  # (N,) int64
    classes: tuple[str, ...]
    info: dict[str, Tensor] = field(default_factory=dict)  # name → (N,) int64

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise QuatcapsError(
                f"images of {self.name} are {self.images.dtype} of shape {tuple(self.images.shape)}: "
                "give uint8 of shape (N, channels, height, width)"
            )
        for what, column in {"labels": self.labels, **self.info}.items():
            if column.shape != (len(self.images),):
                raise QuatcapsError(
                    f"{what} of {self.name} has shape {tuple(column.shape)}: one entry for each of the "
                    f"{len(self.images)} images is needed"
                )
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise QuatcapsError(
                f"labels of {self.name} run from {int(self.labels.min())} to {int(self.labels.max())}: "
                f"with {len(self.classes)} classes they must lie in 0 … {len(self.classes) - 1}"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def channels(self) -> int:
        return self.images.shape[1]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return (self.images.shape[2], self.images.shape[3])

    def select(self, chosen: Tensor, name: str | None = None) -> ImageSet:
        """The images that a boolean mask or an index tensor of shape (M,) chooses."""
        return replace(
            self,
            name=name or self.name,
            images=self.images[chosen],
            labels=self.labels[chosen],
            info={key: column[chosen] for key, column in self.info.items()},
        )


def concatenate(sets: Sequence[ImageSet], name: str) -> ImageSet:
    """The images of several sets with the same classes, one after the other."""
    first = sets[0]
    if any(other.classes != first.classes or other.info.keys() != first.info.keys() for other in sets):
        raise QuatcapsError(f"cannot join {', '.join(s.name for s in sets)}: their classes or info differ")
    return ImageSet(
        name=name,
        images=torch.cat([s.images for s in sets]),
        labels=torch.cat([s.labels for s in sets]),
        classes=first.classes,
        info={key: torch.cat([s.info[key] for s in sets]) for key in first.info},
    )

"""What is done with the images of each dataset, as values; `quatcaps.data.preprocessing` does it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.settings import setting

STANDARDISE = ("view", "image", "channel", "none")
STANDARDISE_FROM = ("window", "whole")
PATCH_FROM = ("class", "viewpoint")
MOST_DEVIATIONS = 10
LIGHTING = ("pixels", "standardised")


@dataclass(frozen=True)
class Pipeline:
    """From stored images to a network's input. Each dataset has its own; `PIPELINES` are the paper's."""

    image_size: int = setting(48, "side of the stored images in pixels; 0: as they are", by_dataset=True)
    crop: int = setting(
        32,
        "side of the window that the network sees: random in training, central in testing; 0: all of it",
        by_dataset=True,
    )
    pad: int = setting(0, "zeros on each side of a training image, before its crop", by_dataset=True)
    flip: bool = setting(False, "mirror half of the training images; stereo views then change places", by_dataset=True)
    rotation: float = setting(0.0, "turn training images by up to so many degrees, either way", by_dataset=True)
    scale: float = setting(0.0, "enlarge training images up to 1 + this, or shrink them by as much", by_dataset=True)
    stretch: float = setting(
        0.0, "make training images up to 1 + this wider than high, or as much higher than wide", by_dataset=True
    )
    elastic: float = setting(
        0.0,
        "bend training images: each pixel moves by a deviation of this part of the window's side, and its neighbours "
        "with it",
        by_dataset=True,
    )
    erase: float = setting(
        0.0, "blot out a square of each training image, of this part of the window's side", by_dataset=True
    )
    patch: float = setting(
        0.0,
        "replace a square of every other training image, of this part of the window's side, by that of another image "
        "of its class",
        by_dataset=True,
    )
    patch_from: str = setting(
        "class",
        "where patches come from: any image of the class, or one of the class from the same viewpoint, in the same "
        "window (viewpoint)",
        by_dataset=True,
    )
    noise: float = setting(
        0.0,
        "add noise to training images, of a deviation of up to this times that of a standardised image",
        by_dataset=True,
    )
    brightness: float = setting(
        0.0,
        "shift the brightness of training images by up to this part of the range, or so many deviations (--lighting)",
        by_dataset=True,
    )
    contrast: float = setting(
        0.0,
        "change the contrast of training images by up to this part",
        by_dataset=True,
    )
    lighting: str = setting(
        "pixels",
        "what brightness and contrast are changed of: pixels (standardising by view or image then undoes both, but for "
        "what leaves the range), or what is standardised, as Hinton et al. 2018 do (standardised)",
        by_dataset=True,
    )
    standardise: str = setting(
        "view",
        "by view (each image's own mean and deviation), by image (stereo views together), by channel (--mean, "
        "--deviation) or none (0 to 1)",
        by_dataset=True,
    )
    standardise_from: str = setting(
        "window",
        "what mean and deviation of a view or an image are of: the window that the network sees (window), or the whole "
        "stored image, as Hinton et al. 2018 write (whole)",
        by_dataset=True,
        later=True,
    )
    mean: tuple[float, ...] = setting((), "of each channel, or one for all, black 0 and white 1", by_dataset=True)
    deviation: tuple[float, ...] = setting((), "of each channel, or one for all", by_dataset=True)
    test_crops: int = setting(
        1,
        "windows of a test image down and across, evenly spread where training has its windows; activations are "
        "averaged over all of them",
        by_dataset=True,
    )
    test_mirrored: bool = setting(
        False, "average over the mirror image of a test image too, or of its windows (with --flip)", by_dataset=True
    )

    def __post_init__(self) -> None:
        if self.standardise not in STANDARDISE:
            raise unknown_name("standardise", self.standardise, STANDARDISE)
        if self.standardise_from not in STANDARDISE_FROM:
            raise unknown_name("standardise_from", self.standardise_from, STANDARDISE_FROM)
        if self.patch_from not in PATCH_FROM:
            raise unknown_name("patch_from", self.patch_from, PATCH_FROM)
        if self.lighting not in LIGHTING:
            raise unknown_name("lighting", self.lighting, LIGHTING)
        for name, most in (
            ("image_size", 4096),
            ("crop", 4096),
            ("pad", 4096),
            ("rotation", 180),
            ("scale", 10),
            ("stretch", 10),
            ("elastic", 1),
            ("erase", 1),
            ("patch", 1),
            ("noise", 10),
            ("brightness", 1 if self.lighting == "pixels" else MOST_DEVIATIONS),
            ("contrast", 1),
        ):
            if not 0 <= getattr(self, name) <= most:
                deviations = name == "brightness" and self.lighting == "pixels"
                hint = f"; --lighting standardised takes deviations, up to {MOST_DEVIATIONS}" if deviations else ""
                raise QuatcapsError(f"{name} = {getattr(self, name)}: it must be from 0 to {most}{hint}")
        if not 1 <= self.test_crops <= 16:
            raise QuatcapsError(f"test_crops = {self.test_crops}: it must be from 1 to 16")
        if self.test_crops > 1 and not self.crop:
            raise QuatcapsError(f"test_crops = {self.test_crops} without a crop: give --crop too")
        if self.test_mirrored and not self.flip:
            raise QuatcapsError("test_mirrored without mirrored training images: give --flip too")
        if self.crop and self.image_size and self.crop > self.image_size:
            raise QuatcapsError(f"crop = {self.crop}: it must be at most the image size, {self.image_size}")
        if self.pad and not self.crop:
            raise QuatcapsError(f"pad = {self.pad} without a crop: give --crop too")
        if self.standardise == "channel":
            self._check_moments()

    def _check_moments(self) -> None:
        if not self.mean or len(self.mean) != len(self.deviation):
            raise QuatcapsError(
                f"standardise = channel with {len(self.mean)} means and {len(self.deviation)} deviations: "
                "give as many of one as of the other, at least 1"
            )
        for name in ("mean", "deviation"):
            for value in getattr(self, name):
                if not math.isfinite(value) or (name == "deviation" and not value > 0):
                    wanted = "above 0 and finite" if name == "deviation" else "finite"
                    raise QuatcapsError(f"{name} = {value}: it must be {wanted}")

    def check(self, channels: int, size: tuple[int, int], *, viewpoints: bool = True) -> None:
        """Raises where images of that many channels and that size, with viewpoints or without, do not fit."""
        if self.patch and self.patch_from == "viewpoint" and not viewpoints:
            raise QuatcapsError(
                "patch_from = viewpoint: nothing says from where these images were taken; give --patch-from class"
            )
        if self.standardise == "channel" and len(self.mean) not in (1, channels):
            raise QuatcapsError(f"{len(self.mean)} means for images of {channels} channels: give 1 or {channels}")
        if self.crop and self.crop > min(size):
            raise QuatcapsError(
                f"crop = {self.crop}: the images are {size[0]}×{size[1]}; it must be at most {min(size)}"
            )
        if self.test_crops > 1 and not self.pad and size == (self.crop, self.crop):
            raise QuatcapsError(
                f"test_crops = {self.test_crops}: windows of {self.crop}×{self.crop} are all of an image of "
                f"{size[0]}×{size[1]}; give a --pad, or a smaller --crop"
            )

    def seen(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of what the network sees of stored images of that size."""
        return (self.crop, self.crop) if self.crop else size

    @property
    def reads(self) -> int:
        """Side of the middle of a test image that decides what the network sees of its middle; 0: all of it."""
        return 0 if self.standardise_from == "whole" else self.crop

    @property
    def looks(self) -> int:
        """How often the network looks at a test image."""
        return self.test_crops**2 * (1 + self.test_mirrored)

    @property
    def looked_at(self) -> str:
        """What of a test image it looks at, in words, if more than once.

        >>> Pipeline(32, 28, flip=True, test_crops=3, test_mirrored=True).looked_at
        '3×3 windows and their mirror images'
        """
        windows = f"{self.test_crops}×{self.test_crops} windows" if self.test_crops > 1 else ""
        if not self.test_mirrored:
            return windows
        return f"{windows} and their mirror images" if windows else "the image and its mirror image"

    @property
    def warps(self) -> bool:
        return max(self.rotation, self.scale, self.stretch, self.elastic) > 0

    @property
    def jitters(self) -> bool:
        return self.brightness > 0 or self.contrast > 0


PIPELINES: dict[str, Pipeline] = {
    "smallnorb": Pipeline(),
    "mnist": Pipeline(28, 28, standardise="channel", mean=(0.1307,), deviation=(0.3081,)),
    "fashionmnist": Pipeline(28, 28, standardise="channel", mean=(0.1307,), deviation=(0.3081,)),
    "svhn": Pipeline(32, 32, standardise="channel", mean=(0.5,), deviation=(0.5,)),
    "cifar10": Pipeline(
        32,
        32,
        pad=4,
        flip=True,
        standardise="channel",
        mean=(0.4914, 0.4822, 0.4465),
        deviation=(0.2023, 0.1994, 0.2010),
    ),
    "toys": Pipeline(),
    "toys-mini": Pipeline(),
    "toys-many": Pipeline(),
}
"""What the paper does with each dataset; the toys are treated as smallNORB."""

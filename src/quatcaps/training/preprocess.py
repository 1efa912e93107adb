"""From pictures of any size to what a trained network sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from quatcaps.data.pictures import open_picture, square_pixels
from quatcaps.data.preprocessing import for_evaluation
from quatcaps.errors import QuatcapsError
from quatcaps.training.config import TrainingConfig

Picture = str | Path | Image.Image | np.ndarray | Tensor
"""A path, a Pillow image, an array (height, width) or (height, width, 3), or a tensor (channels, height, width); arrays
and tensors of bytes, black 0 and white 255."""


@dataclass(frozen=True)
class Preprocessing:
    """What is done with a picture before a network sees it, as with the images that it was tested on.

    The picture is scaled to the `size` of the stored images; `config` says which window of it is seen and how it is
    standardised. For grey networks colours become grey. For stereo networks (2 channels) a picture twice as wide as
    high is the left view beside the right one, and any other stands for both views. Networks of single views
    (`stereo_views`) refuse such a pair: they take one of its views.
    """

    config: TrainingConfig
    channels: int
    size: tuple[int, int]  # height, width

    def __call__(self, pictures: Picture | Sequence[Picture]) -> Tensor:
        """(N, channels, height, width) float32, of one picture (N = 1) or several."""
        return for_evaluation(self.config, self.stored(pictures))

    def stored(self, pictures: Picture | Sequence[Picture]) -> Tensor:
        """(N, channels, height, width) uint8: the pictures at the size of stored images."""
        self.check()
        chosen = as_list(pictures)
        if not chosen:
            raise QuatcapsError("no picture was given: give at least one")
        single = self.config.stereo_views == "single"
        return torch.stack([as_pixels(picture, self.channels, self.size[0], single) for picture in chosen])

    def check(self) -> None:
        """Raises where no picture can be read for this network."""
        height, width = self.size
        if height != width:
            raise QuatcapsError(f"this network was trained on images of {height}×{width}: pictures are read as squares")
        if not 1 <= self.channels <= 3:
            raise no_channels(self.channels)


def as_list(pictures: Picture | Sequence[Picture]) -> list[Picture]:
    """One picture or several, as several."""
    if isinstance(pictures, str | Path | Image.Image | np.ndarray | Tensor):
        return [pictures]
    return list(pictures)


def as_pixels(picture: Picture, channels: int, size: int, single: bool = False) -> Tensor:
    """(channels, size, size) uint8. single: views of stereo pairs are wanted one by one."""
    if not 1 <= channels <= 3:
        raise no_channels(channels)
    if isinstance(picture, Tensor):
        return resized(picture, channels, size)
    if isinstance(picture, np.ndarray):
        picture = from_array(picture)
    opened = picture if isinstance(picture, Image.Image) else open_picture(Path(picture))
    if single and opened.width == 2 * opened.height:
        raise QuatcapsError(
            f"a picture of {opened.width}×{opened.height}, as wide as two views of a stereo pair: this network takes "
            "single views; give one of them, as wide as high"
        )
    return as_channels(opened, channels, size)


def no_channels(channels: int) -> QuatcapsError:
    return QuatcapsError(f"this network takes {channels} channels: pictures are read for 1, 2 or 3")


def as_channels(picture: Image.Image, channels: int, size: int) -> Tensor:
    """The same of a Pillow image."""
    picture = picture.convert("RGB" if channels == 3 else "L")
    if channels != 2:
        return square_pixels(picture, size)
    width, height = picture.size
    if width == 2 * height:
        views = [picture.crop((0, 0, height, height)), picture.crop((height, 0, width, height))]
    else:
        views = [picture, picture]
    return torch.cat([square_pixels(view, size) for view in views])


def from_array(array: np.ndarray) -> Image.Image:
    """(height, width) or (height, width, 3) bytes."""
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3):
        raise QuatcapsError(
            f"an array of {array.dtype} of shape {array.shape}: give uint8 of shape (height, width) or (height, width, "
            "3), black 0 and white 255"
        )
    if 0 in array.shape:
        raise QuatcapsError(f"an array of shape {array.shape} has no pixel")
    return Image.fromarray(array)


def resized(tensor: Tensor, channels: int, size: int) -> Tensor:
    """(channels, height, width) bytes → (channels, size, size), each channel by itself."""
    if tensor.dtype != torch.uint8 or tensor.ndim != 3 or len(tensor) != channels or 0 in tensor.shape:
        raise QuatcapsError(
            f"a tensor of {tensor.dtype} of shape {tuple(tensor.shape)}: give uint8 of shape ({channels}, height, "
            "width), black 0 and white 255"
        )
    if tensor.shape[1:] == (size, size):
        return tensor.cpu()
    views = [Image.fromarray(view.numpy()) for view in tensor.cpu()]
    return torch.cat([square_pixels(view, size) for view in views])

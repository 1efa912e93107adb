"""Image files through a trained network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from quatcaps.data.pictures import open_picture, square_pixels
from quatcaps.data.preprocessing import views_for_evaluation
from quatcaps.errors import QuatcapsError
from quatcaps.training.measure import evaluation_batch, mean_activations
from quatcaps.training.trained import Trained


def read_image(path: Path, channels: int, size: int) -> Tensor:
    """(channels, size, size) uint8 from an image file, scaled to the size that is stored for training.

    One channel: grey. Three: colour. Two, a stereo pair: an image twice as wide as high is the left view beside the
    right; any other is taken as both views.
    """
    if not 1 <= channels <= 3:
        raise QuatcapsError(f"this network takes {channels} channels: image files are read for 1, 2 or 3")
    return as_channels(open_picture(path), channels, size)


def as_channels(picture: Image.Image, channels: int, size: int) -> Tensor:
    """The same of a picture."""
    picture = picture.convert("RGB" if channels == 3 else "L")
    if channels != 2:
        return square_pixels(picture, size)
    width, height = picture.size
    if width == 2 * height:
        views = [picture.crop((0, 0, height, height)), picture.crop((height, 0, width, height))]
    else:
        views = [picture, picture]
    return torch.cat([square_pixels(view, size) for view in views])


@torch.no_grad()
def predict(trained: Trained, paths: Sequence[Path], device: torch.device) -> Tensor:
    """(files, classes): the activation of every class for every image file."""
    height, width = trained.size
    if height != width:
        raise QuatcapsError(
            f"{trained.name} was trained on images of {height}×{width}: image files are read as squares"
        )
    pictures = [read_image(path, trained.channels, height) for path in paths]
    network = trained.network.to(device)
    batch = evaluation_batch(network, trained.config.seen(trained.size))
    found = []
    for part in torch.stack(pictures).split(batch):
        found.append(mean_activations(network, views_for_evaluation(trained.config, part.to(device))).cpu())
    return torch.cat(found)

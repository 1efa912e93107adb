"""Image files through a trained network."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from quatcaps.data.pipeline import for_evaluation
from quatcaps.errors import QuatcapsError
from quatcaps.evaluation.measure import evaluation_batch
from quatcaps.training.run import Run


def read_image(path: Path, channels: int, size: int) -> Tensor:
    """(channels, size, size) uint8 from an image file, scaled to the size that the run stores.

    One channel: grey. Three: colour. Two, a stereo pair: an image twice as wide as high is the left view beside the
    right; any other is taken as both views.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                picture = opened.convert("RGB" if channels == 3 else "L")
    except FileNotFoundError as error:
        raise QuatcapsError(f"{path}: there is no such file") from error
    except IsADirectoryError as error:
        raise QuatcapsError(f"{path} is a folder: give image files") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        limit = Image.MAX_IMAGE_PIXELS or 0
        raise QuatcapsError(f"{path} is larger than {limit:,} pixels: give a smaller image") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise QuatcapsError(f"{path} is not an image that can be read: give a PNG, JPEG or similar file") from error
    if channels == 3:
        return _pixels(picture, size).permute(2, 0, 1)
    if channels == 1:
        return _pixels(picture, size)[None]
    if channels != 2:
        raise QuatcapsError(f"this network takes {channels} channels: image files are read for 1, 2 or 3")
    width, height = picture.size
    if width == 2 * height:
        views = [picture.crop((0, 0, height, height)), picture.crop((height, 0, width, height))]
    else:
        views = [picture, picture]
    return torch.stack([_pixels(view, size) for view in views])


def _pixels(picture: Image.Image, size: int) -> Tensor:
    """The middle square, scaled to size × size."""
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    square = picture.crop((left, top, left + side, top + side))
    if side != size:
        square = square.resize((size, size), Image.Resampling.BOX if side > size else Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(square))


@torch.no_grad()
def predict(run: Run, paths: Sequence[Path], device: torch.device) -> Tensor:
    """(files, classes): the activation of every class for every image file."""
    height, width = run.size
    if height != width:
        raise QuatcapsError(f"{run.folder} was trained on images of {height}×{width}: image files are read as squares")
    pictures = [read_image(path, run.channels, height) for path in paths]
    network = run.trained_network().to(device)
    batch = evaluation_batch(network, run.config.seen(run.size))
    found = []
    for part in torch.stack(pictures).split(batch):
        output = network(for_evaluation(run.config, part.to(device)))
        found.append(output.activations.float().cpu())
    return torch.cat(found)

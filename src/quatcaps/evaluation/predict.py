"""Image files through a trained network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from quatcaps.data.pictures import open_picture, square_pixels
from quatcaps.data.pipeline import for_evaluation
from quatcaps.errors import QuatcapsError
from quatcaps.evaluation.measure import evaluation_batch
from quatcaps.training.run import Run


def read_image(path: Path, channels: int, size: int) -> Tensor:
    """(channels, size, size) uint8 from an image file, scaled to the size that the run stores.

    One channel: grey. Three: colour. Two, a stereo pair: an image twice as wide as high is the left view beside the
    right; any other is taken as both views.
    """
    if not 1 <= channels <= 3:
        raise QuatcapsError(f"this network takes {channels} channels: image files are read for 1, 2 or 3")
    picture = open_picture(path).convert("RGB" if channels == 3 else "L")
    if channels != 2:
        return square_pixels(picture, size)
    width, height = picture.size
    if width == 2 * height:
        views = [picture.crop((0, 0, height, height)), picture.crop((height, 0, width, height))]
    else:
        views = [picture, picture]
    return torch.cat([square_pixels(view, size) for view in views])


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

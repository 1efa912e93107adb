"""Pictures through a trained network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from quatcaps.data.pictures import images_below
from quatcaps.errors import QuatcapsError
from quatcaps.training.predictions import Predictor, evaluation_batch
from quatcaps.training.preprocess import Picture
from quatcaps.training.trained import Trained

AT_ONCE = 256
"""Files that are read before the network sees them."""


def predict(trained: Trained, pictures: Sequence[Picture], device: torch.device) -> Tensor:
    """(pictures, classes): the activation of every class for every picture, averaged over the windows that the network
    was tested with."""
    stored = trained.preprocessing.stored(pictures)
    network = trained.network.to(device)
    batch = evaluation_batch(network, trained.config.seen(trained.size))
    predictor = Predictor(network, trained.config, device)
    return torch.cat([predictor.of_batch(part.to(device)).activations.cpu() for part in stored.split(batch)])


def predict_files(
    trained: Trained, paths: Sequence[Path], device: torch.device
) -> Iterator[tuple[Path, Tensor | QuatcapsError]]:
    """For every file, in order, the activations of the classes, or why it could not be read. A folder stands for the
    images in it, at any depth, in the order of their names. Only some are in memory at a time."""
    trained.preprocessing.check()
    files = [found for path in paths for found in files_of(path)]
    for start in range(0, len(files), AT_ONCE):
        part = [(path, fault or read(trained, path)) for path, fault in files[start : start + AT_ONCE]]
        pictures = [each for _, each in part if isinstance(each, Tensor)]
        found = iter(predict(trained, pictures, device) if pictures else ())
        for path, each in part:
            yield path, next(found) if isinstance(each, Tensor) else each


def read(trained: Trained, path: Path) -> Tensor | QuatcapsError:
    """(channels, side, side) uint8, or why not."""
    try:
        return trained.preprocessing.stored(path)[0]
    except QuatcapsError as error:
        return error


def files_of(path: Path) -> list[tuple[Path, QuatcapsError | None]]:
    """The files that a path stands for; a folder without images, or that cannot be read, with what is wrong."""
    if not path.is_dir():
        return [(path, None)]
    try:
        inside = images_below(path)
    except QuatcapsError as error:
        return [(path, error)]
    if not inside:
        return [(path, QuatcapsError(f"{path} is a folder without images: give image files, or folders of them"))]
    return [(each, None) for each in inside]

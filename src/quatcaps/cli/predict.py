"""`quatcaps predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.cli.flags import Device, Weights
from quatcaps.console import say, standard_output
from quatcaps.errors import QuatcapsError


def predict(
    paths: Annotated[
        list[Path],
        typer.Argument(help="folder of a run, unless there are --weights; then images", metavar="[RUN] IMAGE…"),
    ],
    weights: Weights = None,
    device: Device = "auto",
) -> None:
    """Name the class of image files, with its activation.

    A stereo network takes an image twice as wide as high as the left view beside the right, any other as both views.
    """
    from quatcaps.training.predict import predict as activations_of
    from quatcaps.training.run import choose_device
    from quatcaps.weights.zoo import run_or_weights

    run, images = (paths[0], paths[1:]) if weights is None else (None, paths)
    if not images:
        raise QuatcapsError(f"no image was given after the run {run}: quatcaps predict RUN IMAGE…")
    console, trained = standard_output(), run_or_weights(run, weights)
    for path, values in zip(images, activations_of(trained, images, choose_device(device)), strict=True):
        first, second = values.topk(2).indices.tolist()
        say(
            console,
            f"{path}: {trained.classes[first]}, activation {values[first]:.3f} "
            f"(next: {trained.classes[second]}, {values[second]:.3f})",
        )

"""`quatcaps predict`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quatcaps.cli.flags import Device, Weights
from quatcaps.cli.machine import AsJson, print_json
from quatcaps.cli.networks import Checkpoint, chosen_network, in_words
from quatcaps.console import forgive, say, standard_error, standard_output
from quatcaps.errors import QuatcapsError

if TYPE_CHECKING:
    import torch

    from quatcaps.training.trained import Trained

Named = list[tuple[str, float]]
"""Classes with their activations, the largest first."""
Found = Iterator[tuple[Path, "Named | QuatcapsError"]]
Counts = tuple[int, int]
"""Of all files, and of those that could not be read."""


def predict(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="folder of a run, unless there are --weights; then images, or folders of images at any depth",
            metavar="[RUN] IMAGE…",
        ),
    ],
    weights: Weights = None,
    top: Annotated[int, typer.Option(help="how many classes to name for each image, the most active first")] = 2,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print a table for programs: a line for each image")] = False,
    device: Device = "auto",
) -> None:
    """Name the class of image files, with its activation.

    A stereo network takes an image twice as wide as high as the left view beside the right, any other as both views. A
    file that cannot be read is named on standard error, and the others go on; the exit status then is 1.
    """
    from quatcaps.training.run import choose_device

    run, images = (paths[0], paths[1:]) if weights is None else (None, paths)
    if not images:
        raise QuatcapsError(f"no image was given after the run {run}: quatcaps predict RUN IMAGE…")
    if top < 1:
        raise QuatcapsError(f"--top {top}: at least 1")
    if as_json and as_csv:
        raise QuatcapsError("--json and --csv were both given: give one of them")
    trained = chosen_network(run, weights, checkpoint)
    if trained.checkpoint:
        say(standard_error(), in_words(trained))
    found = predictions(trained, images, choose_device(device), min(top, len(trained.classes)))
    if as_json:
        count, failed = print_as_json(trained, found)
    elif as_csv:
        count, failed = print_as_csv(found, min(top, len(trained.classes)))
    else:
        count, failed = print_lines(found)
    if failed and count > 1:
        say(standard_error(), f"{failed:,} of {count:,} could not be read")
    if failed:
        raise typer.Exit(1)


def predictions(
    trained: Trained, images: list[Path], device: torch.device, top: int
) -> Iterator[tuple[Path, Named | QuatcapsError]]:
    """For every file its classes, or why there are none, which is said too."""
    from quatcaps.training.predict import predict_files

    errors = standard_error()
    for path, answer in predict_files(trained, images, device):
        if isinstance(answer, QuatcapsError):
            say(errors, f"error: {answer}")
            yield path, answer
            continue
        values, places = answer.topk(top)
        classes = [trained.classes[place] for place in places.tolist()]
        yield path, list(zip(classes, values.tolist(), strict=True))


def print_lines(found: Found) -> Counts:
    console, count, failed = standard_output(), 0, 0
    for path, named in found:
        count += 1
        if isinstance(named, QuatcapsError):
            failed += 1
            continue
        (first, activation), *others = named
        beside = "; ".join(f"{name}, {value:.3f}" for name, value in others)
        say(console, f"{path}: {first}, activation {activation:.3f}" + (f" (next: {beside})" if beside else ""))
    return count, failed


def print_as_json(trained: Trained, found: Found) -> Counts:
    images: list[dict[str, Any]] = []
    for path, named in found:
        if isinstance(named, QuatcapsError):
            images.append({"path": str(path), "error": str(named)})
            continue
        top = [{"class": name, "activation": value} for name, value in named]
        images.append({"path": str(path), **top[0], "top": top})
    used = trained.checkpoint or None
    print_json({"network": trained.name, "checkpoint": used, "classes": trained.classes, "images": images})
    return len(images), sum("error" in image for image in images)


def print_as_csv(found: Found, top: int) -> Counts:
    forgive(sys.stdout)
    writer, count, failed = csv.writer(sys.stdout, lineterminator="\n"), 0, 0
    columns = ((f"class {place}", f"activation {place}") for place in range(1, top + 1))
    writer.writerow(["path", *(column for pair in columns for column in pair)])
    for path, named in found:
        count += 1
        if isinstance(named, QuatcapsError):
            failed += 1
            continue
        writer.writerow([path, *(cell for name, value in named for cell in (name, f"{value:.6f}"))])
    return count, failed

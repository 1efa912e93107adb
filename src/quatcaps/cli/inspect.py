"""`quatcaps inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.cli.flags import DataDir, Device, Weights
from quatcaps.console import counting, say, stages, standard_output
from quatcaps.errors import QuatcapsError


def inspect(
    run: Annotated[Path | None, typer.Argument(help="folder of a run", metavar="RUN")] = None,
    weights: Weights = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN|NAME",
            help="another run or weights to measure on the same images, such as a resnet; may be repeated",
        ),
    ] = None,
    toys: Annotated[
        int | None, typer.Option(help="how many test toys of each class to look at (default: all)", min=2)
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="folder for tables, picture and numbers (default: the run's; for weights none)")
    ] = None,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """What the poses of a network know: do they turn with what they see?

    Rotates primary poses; carries a turn of some toys over to others; puts small turns together; reads azimuths with a
    ridge regression; and measures orientations where they were trained. Each with its chance level, on test toys.
    """
    from quatcaps.data.store import data_folder
    from quatcaps.files import write_json
    from quatcaps.inspection import inspect as inspected
    from quatcaps.inspection.inspection import some_toys
    from quatcaps.report.poses import pose_figure, pose_tables
    from quatcaps.training.evaluate import check_images, images_of
    from quatcaps.training.run import choose_device, load_images
    from quatcaps.weights.zoo import named_or_run, run_or_weights

    console, trained = standard_output(), run_or_weights(run, weights)
    others = [named_or_run(name) for name in beside or []]
    chosen, place, config = choose_device(device), data_folder(data_dir), trained.config
    for other in others:
        if other.config.dataset != config.dataset:
            raise QuatcapsError(
                f"{other.name} was trained on {other.config.dataset}, {trained.name} on {config.dataset}: what poses "
                "know is compared on the same images; give networks of one dataset"
            )
    with stages(console) as stage:
        images = images_of(config, "test", lambda part: load_images(config, part, place, stage))
    if (notice := check_images(trained, images, "test")) is not None:
        say(console, notice)
    if toys is not None:
        images = some_toys(images, toys)
    found = []
    for one in (trained, *others):
        with counting(console, f"looking at {one.name}") as progress:
            found.append(inspected(one, images, chosen, progress))
    for table in pose_tables(found):
        console.print(table.rich(console.width))
    folder = output or trained.folder
    if folder is not None:
        write_json(folder / "poses.json", {"networks": [each.to_json() for each in found]})
        pose_figure(found, folder / "poses.png")
        say(console, f"numbers and picture in {folder / 'poses.json'} and poses.png")
    if not others:
        say(console, "beside another network: --beside RUN, such as a resnet trained on the same images")

"""`quatcaps evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatcaps.cli.choices import SPLITS, completing
from quatcaps.cli.flags import DataDir, Device, Weights
from quatcaps.cli.machine import AsJson, console_for, print_json
from quatcaps.cli.networks import Checkpoint, chosen_network, in_words
from quatcaps.console import counting, say, stages
from quatcaps.errors import unknown_name


def evaluate(
    run: Annotated[Path | None, typer.Argument(help="folder of a run", metavar="RUN")] = None,
    weights: Weights = None,
    split: Annotated[
        str,
        typer.Option(help="test, train, or validation: what the run held out", autocompletion=completing(SPLITS)),
    ] = "test",
    output: Annotated[
        Path | None, typer.Option(help="folder for the numbers and pictures (default: the run's; for weights none)")
    ] = None,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Error, per-class errors, confusion matrix, error by azimuth and elevation, as tables and as a picture; and a
    gallery of the mistakes."""
    from quatcaps.data.store import data_folder
    from quatcaps.report.figures import evaluation_figure
    from quatcaps.report.mistakes import mistakes_sheet
    from quatcaps.report.tables import evaluation_tables
    from quatcaps.training.evaluate import check_images, evaluations_of, images_of, predicted, write_evaluation
    from quatcaps.training.poses import in_words as poses_in_words
    from quatcaps.training.run import choose_device, load_images

    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    console, trained = console_for(as_json), chosen_network(run, weights, checkpoint)
    if trained.checkpoint:
        say(console, in_words(trained))
    config, folder = trained.config, output or trained.folder
    chosen, place = choose_device(device), data_folder(data_dir)
    with stages(console) as stage:
        images = images_of(config, split, lambda part: load_images(config, part, place, stage))
    if (notice := check_images(trained, images, split)) is not None:
        say(console, notice)
    with counting(console, "evaluating") as progress:
        predictions = predicted(trained, images, chosen, progress)
    evaluations = evaluations_of(trained, images, predictions)
    stem = f"evaluation-{split}" + (f"-{trained.checkpoint}" if trained.checkpoint else "")
    if folder is not None:
        write_evaluation(folder / f"{stem}.json", evaluations)
        familiar = tuple(evaluations["familiar"].by_azimuth) if config.viewpoints == "azimuth" else ()
        evaluation_figure(evaluations["all"], folder / f"{stem}.png", familiar, weights or config.model)
        gallery = mistakes_sheet(images, predictions.activations, folder / f"{stem}-mistakes.png")
    for table in evaluation_tables(evaluations["all"]):
        console.print(table.rich(console.width))
    for name, evaluation in evaluations.items():
        rate = evaluation.total
        say(console, f"{name:>8}: {rate.percent:.2f}% error ({rate.errors:,} of {rate.images:,} images)")
        if evaluation.poses is not None:
            say(console, f"{'':>8}  {poses_in_words(evaluation.poses)}")
    if folder is not None:
        say(console, f"numbers and picture in {folder / stem}.json and .png")
        say(console, f"{gallery.words} in {gallery.path}" if gallery.path else gallery.words)
    if as_json:
        found = {name: evaluation.to_json() for name, evaluation in evaluations.items()}
        used = trained.checkpoint or None
        print_json({"network": trained.name, "checkpoint": used, "split": split, "evaluations": found})

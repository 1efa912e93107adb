"""`quatcaps evaluate` and `quatcaps predict`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from quatcaps.data.cache import data_folder
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import same_toys
from quatcaps.data.viewpoints import ALL
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.evaluation.predict import predict
from quatcaps.evaluation.run import evaluate_trained, write_evaluation
from quatcaps.evaluation.trained import Trained
from quatcaps.report.tables import evaluation_tables
from quatcaps.training.config import TrainingConfig
from quatcaps.training.progress import counting, stages
from quatcaps.training.run import choose_device, load_experiment, load_images

SPLITS = ("test", "train", "validation")


def evaluate_command(
    trained: Trained, split: str, output: Path | None, device: str, data_dir: Path | None, console: Console
) -> None:
    """Prints the tables and leaves them, with a picture, in `output`, or with the run; of weights nothing is left."""
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    config, place = trained.config, output or trained.folder
    chosen, place_of_data = choose_device(device), data_folder(data_dir)
    with stages(console) as stage:
        images = images_of(config, split, lambda part: load_images(config, part, place_of_data, stage))
    with counting(console, "evaluating") as progress:
        evaluations = evaluate_trained(trained, images, chosen, progress)
    if place is not None:
        from quatcaps.report.figures import evaluation_figure

        write_evaluation(place / f"evaluation-{split}.json", evaluations)
        familiar = tuple(evaluations["familiar"].by_azimuth) if config.viewpoints == "azimuth" else ()
        evaluation_figure(evaluations["all"], place / f"evaluation-{split}.png", familiar)
    for table in evaluation_tables(evaluations["all"]):
        console.print(table.rich(console.width))
    for name, evaluation in evaluations.items():
        rate = evaluation.total
        console.print(
            f"{name:>8}: {rate.percent:.2f}% error ({rate.errors:,} of {rate.images:,} images)", highlight=False
        )
    if place is not None:
        console.print(
            f"numbers and picture in {place / f'evaluation-{split}'}.json and .png", highlight=False, soft_wrap=True
        )


def images_of(config: TrainingConfig, split: str, load: Callable[[str], ImageSet]) -> ImageSet:
    """The images of a split of a run, all viewpoints. The pooled protocol has one pool of them, and no split by toy.

    Validation images are those that the run held out, and under the strict protocol those of the same toys from novel
    viewpoints too: it never saw them, and they are no test images. Pooled, they would be."""
    pooled = config.viewpoints != ALL and config.protocol == "pooled"
    if split != "validation":
        return load(ALL if pooled else split)
    held_out = load_experiment(config, load).validation
    if held_out is None:
        raise QuatcapsError(f"this run held out no images (validation = {config.validation}): give test or train")
    if pooled or config.viewpoints == ALL or "instance" not in held_out.info:
        return held_out
    return same_toys(load("train"), held_out)


def predict_command(trained: Trained, paths: list[Path], device: str, console: Console) -> None:
    """Prints one line per file: the class, its activation, and the runner-up."""
    activations = predict(trained, paths, choose_device(device))
    for path, values in zip(paths, activations, strict=True):
        first, second = values.topk(2).indices.tolist()
        console.print(
            f"{path}: {trained.classes[first]}, activation {values[first]:.3f} "
            f"(next: {trained.classes[second]}, {values[second]:.3f})",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

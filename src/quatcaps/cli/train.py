"""`quatcaps train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from quatcaps.cli.choices import RECIPES, complete_weights, completing
from quatcaps.cli.flags import DataDir, given, with_flags
from quatcaps.console import say, standard_output
from quatcaps.errors import QuatcapsError
from quatcaps.training.config import TrainingConfig

RESUMABLE = ("device", "epochs")
NAMING = ("model", "dataset")
"""Settings that say what is trained; without them, and without a recipe, the device decides."""


@with_flags(TrainingConfig)
def train(
    recipe: Annotated[
        str | None,
        typer.Option(
            help="the configuration to start from: paper, best, small, demo or demo-cnn (default: paper; if neither "
            "--model nor --dataset is given either, on a CPU demo, which takes minutes)",
            autocompletion=completing(RECIPES),
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="folder of the new run (default: runs/DATASET-MODEL-SEED, or, where that exists, the next of -2, -3 …)"
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="continue the run in this folder, with its own configuration; with more --epochs than it has, it goes "
            "on for so many"
        ),
    ] = None,
    init_from: Annotated[
        str | None,
        typer.Option(
            metavar="RUN|NAME",
            help="begin with the weights of a run, or of those that quatcaps weights list shows; classes that are "
            "others begin anew",
            autocompletion=complete_weights,
        ),
    ] = None,
    data_dir: DataDir = None,
    **settings: Any,
) -> None:
    """Train a network; all settings have flags."""
    from quatcaps.training.start import resume_run, start_run
    from quatcaps.weights.zoo import named_or_run

    changes = given(settings)
    if resume is not None:
        beside = {"recipe": recipe, "output": output, "init_from": init_from}
        refused = [name for name in changes if name not in RESUMABLE] + [name for name in beside if beside[name]]
        if refused:
            raise QuatcapsError(
                f"--{refused[0].replace('_', '-')} cannot change a run that is resumed: its own configuration goes on; "
                "only --epochs can be raised, and --device chosen"
            )
        epochs = changes.get("epochs")
        resume_run(resume, data_dir, standard_output(), changes.get("device"), epochs=epochs)
        return
    initial = None if init_from is None else named_or_run(init_from)
    if initial is not None and "model" not in changes:
        kept = {**initial.config.model_settings, **changes.get("model_settings", {})}
        changes = {**changes, "model": initial.config.model, "model_settings": kept}
    config = configuration(recipe, changes)
    start_run(config, output, data_dir, standard_output(), initial)


def configuration(recipe: str | None, changes: dict[str, Any]) -> TrainingConfig:
    """The whole configuration; where nothing says what to train, the device does, and this says so."""
    from quatcaps.data.batches import Share
    from quatcaps.paper.recipes import configured, recipe_for
    from quatcaps.training.run import choose_device

    if recipe is not None or any(name in changes for name in NAMING):
        return configured(recipe or "paper", changes)
    chosen = recipe_for(choose_device(changes.get("device", "auto")).type)
    config = configured(chosen, changes)
    if chosen != "paper" and Share.of_this_process().rank == 0:
        say(
            standard_output(),
            f"nothing says what to train: on a CPU that is {config.model} on {config.dataset} (--recipe {chosen}), "
            "which takes minutes; the paper's network and settings, for a GPU, are --recipe paper",
        )
    return config

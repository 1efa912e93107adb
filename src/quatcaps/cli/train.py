"""`quatcaps train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from quatcaps.cli.choices import RECIPES, complete_weights, completing
from quatcaps.cli.flags import DataDir, given, with_flags
from quatcaps.cli.machine import console_for, print_json
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
            help="the configuration to start from: paper, best, fast, small, demo or demo-cnn (default: paper; if "
            "neither --model nor --dataset is given either, on a CPU demo, which takes minutes)",
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
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="settings from a file, JSON or YAML, or all of them from a run's run.json; flags go before them",
        ),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="print the whole configuration, as JSON for --config, and end")
    ] = False,
    data_dir: DataDir = None,
    **settings: Any,
) -> None:
    """Train a network; all settings have flags."""
    from quatcaps.training.start import checked, resume_run, start_run
    from quatcaps.weights.zoo import named_or_run

    changes = given(settings)
    if resume is not None:
        beside: dict[str, Any] = {"recipe": recipe, "output": output, "init_from": init_from, "config": config}
        beside["print_config"] = print_config
        refused = [name for name in changes if name not in RESUMABLE] + [name for name in beside if beside[name]]
        if refused:
            raise QuatcapsError(
                f"--{refused[0].replace('_', '-')} cannot change a run that is resumed: its own configuration goes on; "
                "only --epochs can be raised, and --device chosen"
            )
        epochs = changes.get("epochs")
        resume_run(resume, data_dir, standard_output(), changes.get("device"), epochs=epochs)
        return
    console = console_for(print_config)
    initial = None if init_from is None else named_or_run(init_from)
    if config is not None:
        recipe, changes = with_file(config, recipe, changes, console)
    if initial is not None and "model" not in changes:
        kept = {**initial.config.model_settings, **changes.get("model_settings", {})}
        changes = {**changes, "model": initial.config.model, "model_settings": kept}
    whole = configuration(recipe, changes, console)
    if print_config:
        print_json(checked(whole).whole())
        return
    start_run(whole, output, data_dir, console, initial)


def with_file(
    path: Path, recipe: str | None, changes: dict[str, Any], console: Console
) -> tuple[str | None, dict[str, Any]]:
    """The recipe and the settings of a file with those of the command line, which go before. A network of another name
    takes no settings from the file."""
    from quatcaps.cli.config_file import read_config

    found, notes = read_config(path)
    for note in notes:
        say(console, note)
    recipe = recipe or found.pop("recipe", None)
    found.pop("recipe", None)
    other = "model" in changes and changes["model"] != found.get("model", changes["model"])
    held = found.pop("model_settings", {})
    if not isinstance(held, dict):
        raise QuatcapsError(f"{path}: model_settings = {held!r}: it must be values by name")
    kept = {**({} if other else held), **changes.get("model_settings", {})}
    return recipe, {**found, **changes, **({"model_settings": kept} if kept else {})}


def configuration(recipe: str | None, changes: dict[str, Any], console: Console) -> TrainingConfig:
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
            console,
            f"nothing says what to train: on a CPU that is {config.model} on {config.dataset} (--recipe {chosen}), "
            "which takes minutes; the paper's network and settings, for a GPU, are --recipe paper",
        )
    return config

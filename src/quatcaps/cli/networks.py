"""The trained network that a command was given: a run, by one of its checkpoints, or weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quatcaps.cli.choices import CHECKPOINTS, completing
from quatcaps.errors import QuatcapsError

if TYPE_CHECKING:
    from quatcaps.training.trained import Trained

Checkpoint = Annotated[
    str | None,
    typer.Option(
        help="of a run: best, by its validation images, last, or average, of the last's weights (default: best, if the "
        "run keeps it)",
        autocompletion=completing(CHECKPOINTS),
    ),
]


def chosen_network(run: Path | None, weights: str | None, checkpoint: str | None) -> Trained:
    """The network to use."""
    from quatcaps.training.run import open_run
    from quatcaps.training.trained import trained_run
    from quatcaps.weights.zoo import run_or_weights

    if checkpoint is None or run is None or weights is not None:
        found = run_or_weights(run, weights)
        if checkpoint is not None:
            raise QuatcapsError(f"--checkpoint {checkpoint} is for runs: {found.name} are weights, and have one")
        return found
    return trained_run(open_run(run), checkpoint)


def in_words(trained: Trained) -> str:
    """Which checkpoint is used; nothing where there is one alone."""
    if not trained.checkpoint:
        return ""
    return f"{trained.name}: using {trained.checkpoint_words}"

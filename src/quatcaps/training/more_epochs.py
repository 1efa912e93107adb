"""A run that is given more epochs than it was configured for, and one that stopped before its last."""

from __future__ import annotations

from dataclasses import asdict, replace

from quatcaps.errors import QuatcapsError
from quatcaps.files import read_json, write_json
from quatcaps.training.best import Choice, choice_in
from quatcaps.training.checkpoint import Position, checkpoints, read_position
from quatcaps.training.run import Run, Stretch


def with_epochs(run: Run, epochs: int) -> Run:
    """The run, to go on to more epochs than it was configured for; writes nothing. What it did so far, it did for
    fewer: the schedule of its rate is told apart by `Run.epochs_at`."""
    if epochs == run.config.epochs:
        return run
    saved = checkpoints(run.checkpoints)
    position = read_position(saved[-1]) if saved else Position()
    if epochs < run.config.epochs:
        raise QuatcapsError(
            f"{epochs} epochs for {run.folder}, which is configured for {run.config.epochs} and has done "
            f"{position.epoch}: a run that is resumed can get more epochs, not fewer"
        )
    if (choice := stopped_early(run, position)) is not None:
        raise QuatcapsError(
            f"{run.folder} was stopped after epoch {choice.measured + 1}, by its patience of {run.config.patience}: "
            "more epochs do not let it go on; begin another run, --init-from this one"
        )
    stretches = (*run.stretches, Stretch(position.step, run.config.epochs)) if position.step else run.stretches
    return replace(run, config=run.config.changed({"epochs": epochs}), stretches=stretches)


def record_epochs(run: Run) -> None:
    """Writes into the description of a run that it goes on to more epochs; its folder belongs to this process."""
    description = read_json(run.folder / "run.json", "a run's description")
    description["config"] = run.config.to_json()
    if run.stretches:
        description["stretches"] = [asdict(part) for part in run.stretches]
    write_json(run.folder / "run.json", description)


def stopped_early(run: Run, position: Position) -> Choice | None:
    """Where a run ran out of patience, if it did."""
    if not run.config.patience:
        return None
    choice = choice_in(run.folder, position.epoch)
    return choice if choice is not None and choice.exhausted(run.config.patience) else None

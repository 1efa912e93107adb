"""Early stop and the best checkpoint: chosen by validation images alone, the same after a crash."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import quatcaps
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment, hold_out
from quatcaps.errors import QuatcapsError
from quatcaps.training import best, checkpoint
from quatcaps.training.best import Choice, after, choice_of
from quatcaps.training.config import TrainingConfig
from quatcaps.training.log import read_log
from quatcaps.training.loop import Trainer
from quatcaps.training.measuring import Found, Measuring
from quatcaps.training.more_epochs import stopped_early, with_epochs
from quatcaps.training.run import create_run, open_run
from quatcaps.training.start import train_run
from quatcaps.training.trained import trained_run
from quatcaps.weights.export import finished

CONFIG = TrainingConfig(
    model="cnn-small",
    image_size=32,
    crop=28,
    epochs=9,
    batch=21,
    checkpoint_every=5,
    validation=0.3,
    learning_rate=1e-3,
    evaluate_images=5,
    averaging=0.5,
    device="cpu",
)
ERRORS = (0.5, 0.4, 0.4, 0.3, 0.6, 0.3, 0.2, 0.1, 0.0)
"""Of the validation images, after each epoch; the test images are best when these are worst."""


class CutError(Exception):
    pass


class CutAt:
    """Breaks a run after a step, or after an epoch is measured."""

    def __init__(self, step: int = 0, epoch: int = 0) -> None:
        self.last, self.last_epoch = step, epoch

    def step(self, step: int, *state: object) -> None:
        if step == self.last:
            raise CutError

    def epoch(self, epoch: int, *state: object) -> None:
        if epoch + 1 == self.last_epoch:
            raise CutError


@pytest.fixture(scope="module")
def experiment(noise_images: ImageSet) -> Experiment:
    kept, held_out = hold_out(noise_images, 0.3, 0)
    return Experiment(kept, {"test": noise_images}, held_out)


@pytest.fixture(scope="module", autouse=True)
def told_errors(experiment: Experiment) -> Iterator[list[tuple[int, int]]]:
    """Errors as if the network had made them; gives the epoch and the number of images of each measurement."""
    seen: list[tuple[int, int]] = []

    after_epoch, now = Measuring.after_epoch, list[int]()

    def remembered(self: Measuring, epoch: int, *rest: Any) -> Found:
        now[:] = [epoch]
        return after_epoch(self, epoch, *rest)

    def measure(self: Measuring, images: ImageSet, *rest: object) -> tuple[float, None]:
        assert experiment.validation is not None
        seen.append((now[0], len(images)))
        error = ERRORS[now[0]]
        return (error if len(images) == len(experiment.validation) else 1 - error), None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Measuring, "after_epoch", remembered)
        patched.setattr(Measuring, "measure", measure)
        yield seen


@pytest.fixture(scope="module")
def whole(experiment: Experiment, told_errors: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a patience of two epochs that nothing broke."""
    folder = tmp_path_factory.mktemp("whole")
    trained(folder, experiment, patience=2)
    return folder


def trained(folder: Path, experiment: Experiment, cuts: tuple[CutAt, ...] = (), **changes: object) -> Trainer:
    run = create_run(folder, CONFIG.changed(changes), experiment.training, experiment.tests)
    for cut in cuts:
        with pytest.raises(CutError):
            Trainer(open_run(folder), experiment).train(cut)
    trainer = Trainer(run, experiment)
    trainer.train(CutAt())
    return trainer


def left(folder: Path) -> tuple[bytes, dict[str, object], bytes, list[dict[str, object]]]:
    """Everything that matters of a run."""
    (kept,) = best.folders(folder / "checkpoints")
    last = checkpoint.checkpoints(folder / "checkpoints")[-1]
    log = [record | {"seconds": 0} for record in read_log(folder / "log.jsonl")]
    state = json.loads((kept / "state.json").read_text())
    return (kept / "weights.safetensors").read_bytes(), state, (last / "average.safetensors").read_bytes(), log


def test_it_stops_when_patience_runs_out(
    experiment: Experiment, told_errors: list[tuple[int, int]], whole: Path
) -> None:
    state = left(whole)[1]
    assert (state["epochs"], state["validation_error"]) == (6, 0.3)
    records = [record for record in read_log(whole / "log.jsonl") if record["kind"] == "epoch"]
    assert len(records) == 6, "0.3 after epoch 4, and nothing lower after 5 and 6"
    assert [record["test_error"] for record in records[:-1]] == [None] * 5, "test images choose nothing"
    assert records[-1]["test_error"] == 0.7, "and are measured at the end"
    assert experiment.validation is not None
    assert {count for epoch, count in told_errors if epoch < 5} == {len(experiment.validation)}, "all of them choose"


def test_the_best_is_kept_beside_the_last(experiment: Experiment, tmp_path: Path) -> None:
    class Kept:
        """The weights after every epoch."""

        def __init__(self) -> None:
            self.weights: list[torch.Tensor] = []
            self.trainer: Trainer | None = None

        def step(self, *state: object) -> None: ...

        def epoch(self, *state: object) -> None:
            assert self.trainer is not None
            self.weights.append(next(self.trainer.kept.parameters()).detach().clone())

    run = create_run(tmp_path, CONFIG.changed({"epochs": 5, "keep_best": True}), experiment.training)
    seen = Kept()
    seen.trainer = Trainer(run, experiment)
    seen.trainer.train(seen)
    for which, epoch in (("best", 3), ("last", 4), (None, 3)):
        network = run.trained_network(which)
        assert torch.equal(next(network.parameters()), seen.weights[epoch])
    assert trained_run(run).checkpoint == "best"
    assert "after epoch 4 (30.00% error" in trained_run(run).checkpoint_words
    assert trained_run(run, "last").checkpoint == "last"
    loaded = (quatcaps.load(tmp_path, checkpoint=which).state_dict() for which in ("best", "last"))
    assert not all(torch.equal(*pair) for pair in zip(*(each.values() for each in loaded), strict=True))
    with pytest.raises(QuatcapsError, match="unknown checkpoint 'bets': did you mean 'best'"):
        run.trained_network("bets")
    with pytest.raises(QuatcapsError, match="is for runs: qcn-mnist are weights"):
        quatcaps.load("qcn-mnist", checkpoint="best")


@pytest.mark.parametrize(
    "cuts",
    [
        (CutAt(epoch=4), CutAt(step=7)),  # the best of epoch 4 is there, and the last checkpoint is of before
        (CutAt(epoch=6),),  # patience ran out, and nothing was saved after
    ],
)
def test_a_broken_run_chooses_as_an_unbroken_one(
    cuts: tuple[CutAt, ...], experiment: Experiment, whole: Path, tmp_path: Path
) -> None:
    broken = trained(tmp_path / "broken", experiment, cuts, patience=2)
    assert left(tmp_path / "broken") == left(whole)
    again = Trainer(open_run(tmp_path / "broken"), experiment)
    assert again.ended
    assert again.stopped_early
    assert again.position.epoch == broken.position.epoch == 6


def test_a_run_that_stopped_early_is_finished(experiment: Experiment, whole: Path) -> None:
    run = open_run(whole)
    assert finished(run).epoch == 6
    assert stopped_early(run, finished(run)) == Choice(5, 0.3, 5, since=3)
    console = Console(record=True, width=200, file=io.StringIO())
    train_run(run, experiment, console)
    assert "is trained to its end, 6 epochs of 9: no better for 2" in console.export_text()
    with pytest.raises(QuatcapsError, match="stopped after epoch 6, by its patience of 2"):
        with_epochs(run, 20)


def test_patience_counts_epochs_also_where_few_are_measured(experiment: Experiment, tmp_path: Path) -> None:
    trainer = trained(tmp_path, experiment, patience=1, evaluate_every=2)
    assert [record["validation_error"] for record in read_log(tmp_path / "log.jsonl") if record["kind"] == "epoch"] == [
        None, 0.4, None, 0.3, None, 0.3,
    ]  # fmt: skip
    assert trainer.position.epoch == 6
    between = Trainer(open_run(tmp_path), experiment)
    assert between.stopped_early


def test_choices() -> None:
    assert after(None, 0, 0.5) == Choice(0, 0.5, 0, since=0)
    first = Choice(0, 0.5, 3, since=0)
    assert after(first, 4, 0.5) == Choice(4, 0.5, 4, since=0), "the later of two, which was trained for longer"
    assert after(first, 4, 0.4) == Choice(4, 0.4, 4, since=4)
    assert after(first, 4, 0.6) == Choice(0, 0.5, 4, since=0)
    for best_epoch in (0, 8):
        choice = Choice(best_epoch, 0.5, 9, since=0)
        assert not choice.exhausted(0)
        assert choice.exhausted(9), "an equal error is no lower one"
        assert not choice.exhausted(10)
    records = [{"kind": "epoch", "epoch": epoch, "validation_error": error} for epoch, error in enumerate(ERRORS)]
    assert choice_of(records, 5) == Choice(3, 0.3, 4, since=3)
    assert choice_of(records[:0], 5) is None


def test_what_cannot_choose_is_said() -> None:
    for changes, words in (
        ({"patience": 3}, "patience = 3 without validation images"),
        ({"keep_best": True}, "keep_best without validation images"),
        ({"patience": 3, "validation": 0.1, "evaluate_every": 0}, "evaluate_every = 0"),
        ({"patience": -1}, "patience = -1"),
    ):
        with pytest.raises(QuatcapsError, match=words):
            TrainingConfig().changed(changes)


@pytest.mark.parametrize("text", ["{}", '{"format": 1, "step": 1, "epochs": "2", "validation_error": 0.5}'])
def test_a_damaged_state_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "best-00000003").mkdir()
    (tmp_path / "best-00000003" / "state.json").write_text(text)
    with pytest.raises(QuatcapsError, match="is not a best checkpoint's state"):
        best.find(tmp_path)


def test_the_commands_say_which_they_use(experiment: Experiment, tmp_path: Path, command: Callable) -> None:
    from PIL import Image

    trained(tmp_path / "run", experiment, epochs=1, keep_best=True)
    Image.new("L", (32, 32), 128).save(tmp_path / "x.png")
    for flags, words in (
        ((), "using the best checkpoint, after epoch 1 (50.00% error on the validation images)"),
        (("--checkpoint", "last"), "using the last checkpoint"),
    ):
        outcome = command("predict", tmp_path / "run", tmp_path / "x.png", *flags, "--device", "cpu")
        assert outcome.code == 0, outcome.err
        assert words in outcome.err
        assert outcome.out.count("\n") == 1
    weights = command("predict", "--weights", "qcn-mnist", tmp_path / "x.png", "--checkpoint", "best")
    assert "--checkpoint best is for runs" in weights.err

"""A broken run, resumed, ends with the same bits as an unbroken one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from narrow import NARROW
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.training import checkpoint
from quatcaps.training.config import TrainingConfig
from quatcaps.training.log import read_log
from quatcaps.training.loop import RunInterruptedError, Trainer
from quatcaps.training.predictions import Predictions, Predictor
from quatcaps.training.run import create_run, open_run

pytestmark = pytest.mark.usefixtures("unchecked")
CONFIG = TrainingConfig(
    model="qcn-small",
    model_settings=NARROW,
    image_size=32,
    crop=28,
    epochs=3,
    batch=8,
    checkpoint_every=5,
    log_every=1,
    schedule="cosine",
    weight_decay=0.01,
    averaging=0.9,
    device="cpu",
)


Ending = tuple[bytes, bytes, bytes, dict[str, object], list[dict[str, object]]]


class Silent:
    def step(self, *state: object) -> None: ...

    def epoch(self, *state: object) -> None: ...


class CutError(Exception):
    pass


class CutAt(Silent):
    """Breaks a run after a step, as a crash would."""

    def __init__(self, step: int) -> None:
        self.last = step

    def step(self, step: int, *state: object) -> None:
        if step == self.last:
            raise CutError


def trained(folder: Path, images: ImageSet, cuts: tuple[int, ...] = (), config: TrainingConfig = CONFIG) -> Path:
    run = create_run(folder, config, images)
    for cut in cuts:
        with pytest.raises(CutError):
            Trainer(run, Experiment(images, {"test": images})).train(CutAt(cut))
        run = open_run(folder)
    Trainer(run, Experiment(images, {"test": images})).train(Silent())
    return folder


def ending(folder: Path) -> Ending:
    """Everything a run leaves but its times."""
    last = checkpoint.checkpoints(folder / "checkpoints")[-1]
    state = json.loads((last / "state.json").read_text()) | {"seconds": 0}
    log = [record | {"seconds": 0} for record in read_log(folder / "log.jsonl")]
    weights, average, training = (
        (last / f"{name}.safetensors").read_bytes() for name in ("weights", "average", "training")
    )
    return weights, average, training, state, log


@pytest.fixture(scope="module")
def unbroken(noise_images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Ending:
    return ending(trained(tmp_path_factory.mktemp("unbroken") / "run", noise_images))


# 8, 7 and 8 batches an epoch: a cut before the first checkpoint, in an epoch, at its end, and several cuts.
@pytest.mark.parametrize("cuts", [(3,), (6,), (8,), (15,), (23,), (4, 9, 9, 20)])
def test_resumed_run_equals_unbroken_run(
    cuts: tuple[int, ...], unbroken: Ending, noise_images: ImageSet, tmp_path: Path
) -> None:
    assert ending(trained(tmp_path / "broken", noise_images, cuts)) == unbroken
    assert [record["kind"] for record in unbroken[4]].count("epoch") == 3


def test_the_average_beside_the_weights_goes_on_too(noise_images: ImageSet, tmp_path: Path) -> None:
    config = CONFIG.changed({"averaging": 0.0, "averaging_beside": 0.9})
    whole, broken = (
        ending(trained(tmp_path / name, noise_images, cuts, config))
        for name, cuts in (("whole", ()), ("broken", (6, 15)))
    )
    assert broken == whole


def test_another_seed_ends_elsewhere(unbroken: Ending, noise_images: ImageSet, tmp_path: Path) -> None:
    run = create_run(tmp_path / "two", CONFIG.changed({"seed": 1}), noise_images)
    Trainer(run, Experiment(noise_images, {"test": noise_images})).train(Silent())
    assert ending(tmp_path / "two")[0] != unbroken[0]


def test_resuming_a_finished_run_changes_nothing(noise_images: ImageSet, tmp_path: Path) -> None:
    before = ending(trained(tmp_path, noise_images))
    Trainer(open_run(tmp_path), Experiment(noise_images, {"test": noise_images})).train(Silent())
    assert ending(tmp_path) == before


def test_stop_signal_saves_and_says_how_to_go_on(unbroken: Ending, noise_images: ImageSet, tmp_path: Path) -> None:
    class StopAt(Silent):
        def step(self, step: int, *state: object) -> None:
            if step == 4:
                os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    run = create_run(tmp_path / "run", CONFIG, noise_images)
    with pytest.raises(RunInterruptedError, match=r"after step 4 of 23; saved step-00000004: .*--resume"):
        Trainer(run, Experiment(noise_images, {"test": noise_images})).train(StopAt())
    assert signal.getsignal(signal.SIGTERM) is before
    Trainer(run, Experiment(noise_images, {"test": noise_images})).train(Silent())
    assert ending(tmp_path / "run") == unbroken


@pytest.mark.parametrize(("epoch", "step"), [(1, 8), (3, 23)])
def test_stop_during_a_measurement_saves_too(
    epoch: int, step: int, unbroken: Ending, noise_images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of an epoch; after the last, the checkpoint of the last step is there before the run is at its end."""
    measure, done = Predictor.__call__, []

    def stopped(*arguments: Any) -> Predictions:
        done.append(1)
        if len(done) == epoch:
            os.kill(os.getpid(), signal.SIGINT)
        return measure(*arguments)

    run = create_run(tmp_path, CONFIG, noise_images)
    monkeypatch.setattr(Predictor, "__call__", stopped)
    with pytest.raises(RunInterruptedError, match=f"after step {step} of 23; saved step-{step:08d}"):
        Trainer(run, Experiment(noise_images, {"test": noise_images})).train(Silent())
    monkeypatch.undo()
    Trainer(run, Experiment(noise_images, {"test": noise_images})).train(Silent())
    assert ending(tmp_path) == unbroken


def test_stop_after_the_last_measurement_is_heard(unbroken: Ending, noise_images: ImageSet, tmp_path: Path) -> None:
    """The run is at its end then; what would have come after it, such as the next of many runs, does not begin."""

    class StopAtTheEnd(Silent):
        def epoch(self, epoch: int, *state: object) -> None:
            if epoch == CONFIG.epochs - 1:
                os.kill(os.getpid(), signal.SIGTERM)

    run = create_run(tmp_path, CONFIG, noise_images)
    with pytest.raises(RunInterruptedError, match="after step 23 of 23; saved step-00000023"):
        Trainer(run, Experiment(noise_images, {"test": noise_images})).train(StopAtTheEnd())
    assert ending(tmp_path) == unbroken


def test_a_checkpoint_due_at_the_last_step_is_the_runs_end(noise_images: ImageSet, tmp_path: Path) -> None:
    run = create_run(tmp_path, CONFIG.changed({"checkpoint_every": 23}), noise_images)
    Trainer(run, Experiment(noise_images, {"test": noise_images})).train(Silent())
    last = checkpoint.read_position(checkpoint.checkpoints(run.checkpoints)[-1])
    assert (last.step, last.epoch, last.batch) == (23, CONFIG.epochs, 0)


def test_damaged_checkpoint_names_the_one_before(noise_images: ImageSet, tmp_path: Path) -> None:
    newest = checkpoint.checkpoints(trained(tmp_path, noise_images) / "checkpoints")[-1]
    (newest / "weights.safetensors").write_bytes(b"")
    with pytest.raises(QuatcapsError, match=r"truncated .*; remove .*step-00000023 to go on from step-00000020"):
        Trainer(open_run(tmp_path), Experiment(noise_images, {"test": noise_images}))


KILLED = """
import os, signal, sys
from quatcaps.cli import main
from quatcaps.training.progress import TrainingProgress

TrainingProgress.step = lambda self, step, *state: os.kill(os.getpid(), signal.SIGKILL) if step == 6 else None
main()
"""


def test_killed_run_resumes_bit_for_bit(toys_folder: Path, tmp_path: Path, command: Callable) -> None:
    """The whole program, ended by SIGKILL in the middle, against the whole program left alone."""
    settings = ["--recipe", "small", "--dataset", "toys-mini", "--epochs", 2, "--batch", 64]
    settings += ["--checkpoint-every", 4, "--log-every", 1, "--evaluate-images", 50, "--data-dir", toys_folder]
    settings += ["--viewpoints", "azimuth", "--device", "cpu", "--averaging", 0.9]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    arguments = map(str, ["train", *settings, "--output", killed])
    process = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert checkpoint.checkpoints(killed / "checkpoints")[-1].name < "step-00000006"

    for rest in ([*settings, "--output", whole], ["--resume", killed, "--data-dir", toys_folder]):
        finished = command("train", *rest)
        assert finished.code == 0, finished.err
    assert ending(killed) == ending(whole)
    assert not list(killed.glob("**/*.part*")), "a killed write left nothing that a later one keeps"

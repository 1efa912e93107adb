"""The training loop."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from quatcaps.data.batches import TrainingBatches
from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError
from quatcaps.layers import use_backend
from quatcaps.models import Network
from quatcaps.training import best, checkpoint
from quatcaps.training.averaging import Average
from quatcaps.training.best import WATCHED
from quatcaps.training.checkpoint import Position
from quatcaps.training.health import NonFiniteError
from quatcaps.training.log import Log, NoLog
from quatcaps.training.measuring import Measuring
from quatcaps.training.processes import ALONE, Processes
from quatcaps.training.reporters import Reporter
from quatcaps.training.run import Run, choose_device
from quatcaps.training.schedule import learning_rate
from quatcaps.training.signals import stop_signals
from quatcaps.training.step import TrainingStep, class_weights_of
from quatcaps.training.trackers import TensorBoard, Tracker, WeightsAndBiases

SECONDS_UNSEEN = 0.2  # between reports of a GPU's steps
STEPS_UNSEEN = 10  # where several processes train on GPUs


class RunInterruptedError(QuatcapsError):
    """Stopped by Ctrl-C or by the system, with a checkpoint to go on from."""

    exit_code = 130


class Clock:
    """Seconds since it was last asked."""

    def __init__(self) -> None:
        self.then = time.perf_counter()

    def lap(self) -> float:
        before, self.then = self.then, time.perf_counter()
        return self.then - before


class Trainer:
    """One run: its network, optimiser, batches, position and log."""

    def __init__(
        self, run: Run, experiment: Experiment, device: str | None = None, processes: Processes = ALONE
    ) -> None:
        self.run, self.config = run, run.config
        run.check_images(experiment)
        self.processes, self.device = processes.on(choose_device(device or self.config.device))
        self.network = run.network().to(self.device)
        self.check_fit(experiment.training)
        use_backend(self.network, self.config.backend)
        self.average = self.make_average()
        relative = not experiment.training.aligned
        weights = class_weights_of(self.config, experiment.training)
        self.step = TrainingStep(
            self.network, self.config, self.device, self.processes, self.average, relative, weights
        )
        self.batches = TrainingBatches(
            experiment.training,
            self.config.batch,
            self.config,
            self.config.seed,
            self.device,
            share=self.processes.share,
            placement=self.config.placement,
            views=self.config.pose_weight > 0,
            mixup=self.config.mixup,
        )
        self.measuring = Measuring(self.kept, self.config, experiment, self.device, self.processes)
        self.position, self.clock = Position(), Clock()
        saved = checkpoint.checkpoints(run.checkpoints)
        if saved:
            self.position = self.restore(saved)
        self.measuring.go_on(run.folder, self.position.epoch)
        self.first_step = self.position.step
        self.step.totals.copy_(torch.tensor([self.position.loss_sum, self.position.errors], dtype=torch.float64))
        self.check_together(experiment.training)

    def make_average(self) -> Average[Network] | None:
        """Of the weights, where it is asked for."""
        if not self.config.averages:
            return None
        other = use_backend(self.run.network().to(self.device), self.config.backend)
        return Average(self.network, other, self.config.averages)

    @property
    def kept(self) -> Network:
        """What is measured and kept: the network, or the average of its weights."""
        return self.average.network if self.average is not None and self.config.averaging else self.network

    def check_together(self, images: ImageSet) -> None:
        """Raises where several processes would not train the same run."""
        moments = self.step.optimiser.state_dict()["state"].values()
        tensors = [*self.network.state_dict().values(), *(tensor for state in moments for tensor in state.values())]
        self.processes.check_equal("configuration", [json.dumps(self.config.to_json(), sort_keys=True)])
        self.processes.check_equal(
            "set of training images", [images.source, images.digest, str(images.size), images.labels]
        )
        self.processes.check_equal("network or step to begin from", [str(self.position), *tensors])

    def restore(self, saved: list[Path]) -> Position:
        """From the newest checkpoint; if that is damaged, the error says which one there is before it."""
        try:
            average = None if self.average is None else self.average.network
            return checkpoint.restore(saved[-1], self.network, self.step.optimiser, average)
        except QuatcapsError as error:
            earlier = f"; remove {saved[-1]} to go on from {saved[-2].name}" if len(saved) > 1 else ""
            raise QuatcapsError(f"{error}{earlier}") from error

    @property
    def steps(self) -> int:
        """The length of the whole run."""
        return self.batches.first(self.config.epochs)

    @property
    def ended(self) -> bool:
        """Whether all epochs are done, or patience has run out."""
        return self.position.epoch >= self.config.epochs or self.stopped_early

    @property
    def stopped_early(self) -> bool:
        return self.measuring.stopped_early

    def rate(self, step: int) -> float:
        """The learning rate of a step, by the epochs that the run had then."""
        return learning_rate(self.config, step, self.batches.first(self.run.epochs_at(step)))

    def check_fit(self, images: ImageSet) -> None:
        if images.classes != self.run.classes or images.channels != self.run.channels:
            raise QuatcapsError(
                f"{images.name} has {images.channels} channels and {len(images.classes)} classes, the run "
                f"{self.run.channels} and {len(self.run.classes)}: train on the dataset that the run was made for"
            )

    def train(self, reporter: Reporter) -> None:
        """Trains to the end of the last epoch, from wherever the position is."""
        self.network.train()
        log = self.open_log()
        patient = self.processes.several  # torchrun passes signals on that a process may have had already
        try:
            # cuDNN may else choose kernels whose sums come out in another order each time.
            with stop_signals(patient) as stopped, torch.backends.cudnn.flags(enabled=True, deterministic=True):
                while not self.ended:
                    self.train_epoch(reporter, log, stopped)
                    self.end_epoch(reporter, log, stopped)
                self.save()
                self.heed(stopped)
        finally:
            log.close()

    def open_log(self) -> Log:
        if not self.processes.leads:
            return NoLog()
        folder, step, trackers = self.run.folder, self.position.step, list[Tracker]()
        if self.config.tensorboard:
            trackers.append(TensorBoard(folder, step))
        if self.config.wandb:
            trackers.append(WeightsAndBiases(folder, self.config.wandb, self.config.whole()))
        return Log(folder, step, self.position.epoch, trackers)

    def train_epoch(self, reporter: Reporter, log: Log, stopped: threading.Event) -> None:
        position, reported = self.position, 0.0
        self.clock = Clock()
        for batch in self.batches.epoch(position.epoch, position.batch):
            rate = self.rate(position.step)
            with self.named_failure():
                self.step(batch.images, batch.labels, rate, position.step, batch.views, batch.mixed)
            position.step += 1
            position.batch += 1
            to_log = position.step % self.config.log_every == 0
            to_save = position.step % self.config.checkpoint_every == 0
            # Every look at a number makes a GPU wait. Several processes must look, and heed signals, at the same steps.
            if self.processes.several:
                due = position.step % STEPS_UNSEEN == 0
            else:
                due = stopped.is_set() or time.perf_counter() - reported > SECONDS_UNSEEN
            look = due or to_log or to_save or not self.step.on_gpu
            if look:
                mean_loss, error = self.means()
                reporter.step(position.step, self.steps, position.epoch, mean_loss, error)
                reported = time.perf_counter()
            position.seconds += self.clock.lap()
            if to_log:
                loss = self.step.loss.item()
                log.write("step", position.step, epoch=position.epoch, loss=loss, learning_rate=rate)
            if to_save:
                self.save()
                self.clock.lap()
            if look:
                self.heed(stopped)

    def means(self) -> tuple[float, float]:
        """The mean loss and the error of this epoch so far; raises if a number was not finite."""
        with self.named_failure():
            self.step.check()
        loss_sum, errors = self.step.totals.tolist()
        return loss_sum / self.position.batch, errors / (self.position.batch * self.config.batch)

    @contextmanager
    def named_failure(self) -> Iterator[None]:
        """Adds to the error of a number that is not finite at which step, and what there is to go on from."""
        try:
            yield
        except NonFiniteError as error:
            step = self.first_step + int(self.step.good_steps.item()) + 1
            saved = checkpoint.checkpoints(self.run.checkpoints)
            good = f"the last good checkpoint is {saved[-1]}" if saved else "there is no checkpoint yet"
            raise NonFiniteError(f"training stopped at step {step}: {error}; {good}") from error

    def heed(self, stopped: threading.Event) -> None:
        """Saves and stops where somebody asked for it, of any process."""
        if self.processes.any(stopped.is_set()):
            path = self.save()
            self.processes.wait()  # when one has ended, torchrun ends all
            raise RunInterruptedError(
                f"interrupted after step {self.position.step} of {self.steps}; saved {path.name}: "
                f"go on with quatcaps train --resume {self.run.folder}"
            )

    def end_epoch(self, reporter: Reporter, log: Log, stopped: threading.Event) -> None:
        position = self.position
        loss, error = self.means()
        position.seconds += self.clock.lap()  # with the steps that a GPU had left to do
        found = self.measuring.after_epoch(position.epoch, error, lambda: self.heed(stopped))
        log.write(
            "epoch",
            position.step,
            epoch=position.epoch,
            loss=loss,
            error=error,
            **{f"{name}_error": found.errors.get(name) for name in self.measuring.at_end},
            **{f"{name}_degrees": median for name, median in found.degrees.items()},
            learning_rate=self.rate(position.step - 1),
            seconds=round(position.seconds, 3),
        )
        if found.is_best and self.processes.leads:
            best.save(self.run.checkpoints, self.kept, position, found.errors[WATCHED])
        reporter.epoch(position.epoch, self.config.epochs, loss, error, found.errors, found.degrees)
        position.epoch += 1
        position.batch = 0
        self.step.totals.zero_()

    def save(self) -> Path:
        with self.named_failure():
            self.step.check()
        loss_sum, errors = self.step.totals.tolist()
        self.position.loss_sum, self.position.errors = loss_sum, int(errors)
        if not self.processes.leads:
            return checkpoint.path_of(self.run.checkpoints, self.position)
        average = None if self.average is None else self.average.network
        return checkpoint.save(self.run.checkpoints, self.network, self.step.optimiser, self.position, average)

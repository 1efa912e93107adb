"""What is measured of a run, between epochs and at its end, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from quatcaps.data.batches import mix
from quatcaps.data.imageset import ImageSet
from quatcaps.data.placement import placed
from quatcaps.data.splits import Experiment
from quatcaps.models import Network
from quatcaps.training.best import WATCHED, Choice, after, choice_in
from quatcaps.training.config import TrainingConfig
from quatcaps.training.log import errors_in
from quatcaps.training.measure import Rate
from quatcaps.training.poses import pose_errors, true_poses
from quatcaps.training.predictions import Predictor
from quatcaps.training.processes import Processes

SAMPLE = -2  # a stream of chance beside those of the epochs


@dataclass(frozen=True)
class Found:
    """After an epoch: errors and median degrees by set of images, and whether none was better so far."""

    errors: dict[str, float]
    degrees: dict[str, float]
    is_best: bool


class Measuring:
    """Of one run: which images, after which epochs; the best epoch so far, and whether patience has run out."""

    def __init__(
        self,
        network: Network,
        config: TrainingConfig,
        experiment: Experiment,
        device: torch.device,
        processes: Processes,
    ) -> None:
        self.config, self.processes = config, processes
        self.predictor = Predictor(network, config, device, capture=config.cuda_graph and not processes.several)
        self.at_end = experiment.measured
        # A choice among epochs is made by all validation images, of which the last epoch has no more than the others.
        count = 0 if config.keeps_best else config.evaluate_images
        self.between = {
            name: placed(sample(images, count, config.seed), device) for name, images in watched(experiment).items()
        }
        self.choice: Choice | None = None
        self.came_down = False

    def go_on(self, folder: Path, epochs: int) -> None:
        """After the first `epochs` epochs of a run: what they decided, by its log."""
        self.choice = choice_in(folder, epochs) if self.config.keeps_best else None
        self.came_down = self.config.evaluate_at > 0 and any(map(self.is_low, errors_in(folder, epochs)))

    @property
    def stopped_early(self) -> bool:
        return self.choice is not None and self.choice.exhausted(self.config.patience)

    def is_low(self, error: float) -> bool:
        """Whether a training error is as low as the one at which everything is measured."""
        return self.config.evaluate_at > 0 and 100 * error <= self.config.evaluate_at

    def after_epoch(self, epoch: int, error: float, heed: Callable[[], None]) -> Found:
        """What is due after an epoch, of a training error. Where patience runs out it is the last one, and the test
        images are measured too. heed: is called between batches."""
        chosen, last = self.choice, epoch + 1 == self.config.epochs
        usual = self.config.evaluate_every and (epoch + 1) % self.config.evaluate_every == 0
        errors, degrees, is_best = dict[str, float](), dict[str, float](), False

        def look(sets: dict[str, ImageSet]) -> None:
            for name, images in sets.items():
                errors[name], median = self.measure(images, heed)
                if median is not None:
                    degrees[name] = median

        if last or usual or (self.is_low(error) and not self.came_down):
            look(self.at_end if last else self.between)
            if self.config.keeps_best:
                chosen = after(chosen, epoch, errors[WATCHED])
                is_best = chosen.epoch == epoch
                if not last and chosen.exhausted(self.config.patience):
                    look({name: images for name, images in self.at_end.items() if name != WATCHED})
        self.choice = chosen
        self.came_down |= self.is_low(error)
        return Found(errors, degrees, is_best)

    def measure(self, images: ImageSet, heed: Callable[[], None]) -> tuple[float, float | None]:
        """The error on some images and, under a pose objective, the median error of poses in degrees; every process
        looks at its part of them."""
        part, own = self.processes.part(images)
        found = self.predictor(part, lambda done, total: heed())
        wrong = found.activations.argmax(1).ne(part.labels)[own].sum()
        error = Rate(self.processes.sum(int(wrong)), len(images)).percent / 100
        if not self.config.pose_weight or found.poses is None:
            return error, None
        poses = self.processes.gathered(true_poses(found.poses, part.labels), len(images))
        found_errors = pose_errors(images, poses)
        return error, None if found_errors is None else found_errors.median


def watched(experiment: Experiment) -> dict[str, ImageSet]:
    """What is measured between epochs: the validation set where there is one, else the test sets. A run whose settings
    may be chosen by its validation set shows no test error, from familiar viewpoints or novel ones, before its end."""
    return experiment.tests if experiment.validation is None else {"validation": experiment.validation}


def sample(images: ImageSet, count: int, seed: int) -> ImageSet:
    """A fixed choice of `count` images; all of them for 0."""
    if not 0 < count < len(images):
        return images
    generator = torch.Generator().manual_seed(mix(seed, SAMPLE))
    return images.select(torch.randperm(len(images), generator=generator)[:count].sort().values)

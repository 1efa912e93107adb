"""A row of a table as a value: what to train, and what was published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quatcaps.models import stored_settings
from quatcaps.training.config import TrainingConfig

QCN_PAPER = "Özcan et al. 2020"
HINTON = "Hinton et al. 2018"
RIBEIRO = "Ribeiro et al. 2020"
GRITZMAN = "Gritzman 2019"


@dataclass(frozen=True)
class Published:
    """A number of a paper, in %; in Table I the novel error, with the familiar error it belongs to."""

    error: float
    source: str = QCN_PAPER
    parameters: str = ""
    familiar: float | None = None


@dataclass(frozen=True)
class Row:
    """One network under one recipe in one experiment.

    recipe: `paper`, `best`, `control` for what the paper does not train, or `public code`. default: whether it is
    trained unless asked for by name. quiet: tables leave it out until it has runs. configuration: everything but the
    seed. folds: for settings that are compared on held-out images or on rendered toys, the data seeds that hold them
    out or draw them, one after the other as the seed counts. inspected: whether it is also measured what the poses
    know, on the test images. pretrained: the key of the row whose run of seed 0 lends every seed its first weights.
    timed: its seconds are what it is trained for, so that it never goes on from a checkpoint, and its kernels are
    compiled before it begins. wanted: how many seeds its table wants, from 0 on; no other is trained. 0: any. twin: the
    key of a row of another table; a run of it with the same settings need not be trained again. followed: whether novel
    viewpoints are measured after every epoch, as the match needs.
    """

    key: str
    tables: tuple[str, ...]
    system: str
    recipe: str
    dataset: str
    configuration: Callable[[], TrainingConfig]
    viewpoints: str = "all"
    protocol: str = ""
    branched: bool | None = None
    published: Published | None = None
    default: bool = True
    quiet: bool = False
    folds: tuple[int, ...] = ()
    inspected: bool = False
    pretrained: str = ""
    timed: bool = False
    wanted: int = 0
    twin: str = ""
    followed: bool = True

    @property
    def matched(self) -> bool:
        """Whether runs are compared where they are equally good from familiar viewpoints."""
        return self.viewpoints != "all" and self.followed and ("table1" in self.tables or self.paired)

    @property
    def paired(self) -> bool:
        """Whether runs are compared toy by toy, or image by image."""
        return "evidence" in self.tables and not self.folds

    def config(self, seed: int) -> TrainingConfig:
        """What the run of that seed is told to do."""
        held_out = {"data_seed": self.folds[seed % len(self.folds)]} if self.folds else {}
        return self.configuration().changed({"seed": seed, **held_out})


@dataclass(frozen=True)
class Quoted:
    """A published number of a system that is not trained here in that form."""

    table: str
    system: str
    dataset: str
    published: Published
    viewpoints: str = "all"
    protocol: str = ""


def whole(config: TrainingConfig) -> TrainingConfig:
    """A configuration with what its network changes for its dataset written out, as a run's folder has it."""
    return config.changed({"model_settings": stored_settings(config.model, config.dataset, config.model_settings)})

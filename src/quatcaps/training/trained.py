"""A trained network with what is needed to use it, wherever its weights came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.models import Network
from quatcaps.training.config import TrainingConfig
from quatcaps.training.preprocess import Preprocessing
from quatcaps.training.run import Run


@dataclass(frozen=True)
class Trained:
    """A network ready to evaluate, and what it was trained on."""

    name: str  # for messages: a run's folder, or the name of published weights
    network: Network
    config: TrainingConfig
    channels: int
    classes: tuple[str, ...]
    size: tuple[int, int] = (0, 0)  # of the stored images: height, width; 0: any
    folder: Path | None = None  # where what is measured belongs, if anywhere
    provenance: str = ""  # where its images came from, in a few words
    digests: dict[str, str] = field(default_factory=dict)  # of those images, by name; empty: unknown
    checkpoint: str = ""  # best, last or average, where the run keeps more than one
    checkpoint_words: str = ""  # the same in words

    def __post_init__(self) -> None:
        self.network.class_names, self.network.preprocessing = self.classes, self.preprocessing

    @property
    def preprocessing(self) -> Preprocessing:
        """What is done with a picture before the network sees it."""
        return Preprocessing(self.config, self.channels, self.size)

    def check_fit(self, images: ImageSet) -> None:
        """Raises unless the network can be measured on these images."""
        if images.classes != self.classes or images.channels != self.channels:
            raise QuatcapsError(
                f"{images.name} has {images.channels} channels and {len(images.classes)} classes, the network of "
                f"{self.name} {self.channels} and {len(self.classes)}: evaluate it on a dataset that fits"
            )


def trained_run(run: Run, checkpoint: str | None = None) -> Trained:
    """The network of a run's best or last checkpoint, or the average beside the last; without a wish, the best if the
    run keeps one."""
    found = run.kept_best(checkpoint)
    used = checkpoint or ("last" if found is None else "best")
    several = run.config.keeps_best or run.config.averaging_beside
    words = {"last": "the last checkpoint", "average": "the average of the last checkpoint's weights"}
    return Trained(
        name=str(run.folder),
        network=run.trained_network(used),
        config=run.config,
        channels=run.channels,
        classes=run.classes,
        size=run.size,
        folder=run.folder,
        provenance=run.provenance,
        digests=run.digests,
        checkpoint=used if several else "",
        checkpoint_words=str(found) if found else words[used],
    )

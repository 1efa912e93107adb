"""Where a run goes that was given no folder: runs/DATASET-MODEL-SEED, or the next number of it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from quatcaps.files import explained, make_folder
from quatcaps.training.config import TrainingConfig

RUNS = Path("runs")


def default_folder(config: TrainingConfig) -> Path:
    """The folder of the first run of its kind."""
    dataset = Path(config.dataset).stem or Path(config.dataset).resolve().name
    return RUNS / f"{dataset}-{config.model}-{config.seed}"


def numbered(folder: Path, number: int) -> Path:
    """The folder of the run of that number of its kind.

    >>> numbered(Path("runs/toys-qcn-0"), 1).name, numbered(Path("runs/toys-qcn-0"), 2).name
    ('toys-qcn-0', 'toys-qcn-0-2')
    """
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


def next_free(folder: Path) -> Path:
    """The first of the folders that does not exist yet."""
    return next(place for number in count(1) if not (place := numbered(folder, number)).exists())


def make_numbered(folder: Path) -> int:
    """Makes the first of the folders that does not exist, and gives its number; of several processes, each gets
    another."""
    make_folder(folder.parent)
    for number in count(1):
        place = numbered(folder, number)
        with explained(f"make the folder {place}"):
            try:
                place.mkdir()
            except FileExistsError:
                continue
            return number
    raise AssertionError

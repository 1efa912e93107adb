"""Datasets by name. A new one is a file with a loader, and one entry in `DATASETS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from quatcaps.data import toys
from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.data.custom import custom_pipeline, is_path, load_custom
from quatcaps.data.imageset import ImageSet, Progress, Stage, concatenate
from quatcaps.data.published import load_published
from quatcaps.data.toys import many
from quatcaps.data.toys.many import one_lamp
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.pipelines import PIPELINES, Pipeline

Loader = Callable[[str, Path, int, int, Stage | None], ImageSet]
"""Gives a split (`train`, `test` or `all`) from a data folder, by the side of the images and the seed."""

MINI = {"elevations": (0, 3, 6), "azimuths": (0, 6, 12, 18, 24, 30), "lightings": (0, 3)}
"""What `toys-mini` shows of the toys: three elevations, six azimuths, two lightings; 900 pairs a split, in seconds."""


@dataclass(frozen=True)
class Dataset:
    """A dataset and what the paper does with its images."""

    load: Loader
    pipeline: Pipeline


def _toys(
    codes: dict[str, tuple[int, ...]], split: str, folder: Path, size: int, seed: int, stage: Stage | None
) -> ImageSet:
    if split == "all":
        return concatenate([_toys(codes, each, folder, size, seed, stage) for each in toys.SPLITS], "toys")
    progress = stage(f"rendering the {split} toys") if stage is not None else None
    return toys.load(split, size=size or 48, seed=seed, cache=folder / "toys", progress=progress, **codes)


def _many(
    kinds: int, split: str, folder: Path, size: int, seed: int, stage: Stage | None, mini: bool = False
) -> ImageSet:
    if split == "all":
        parts = [_many(kinds, each, folder, size, seed, stage, mini) for each in toys.SPLITS]
        return concatenate(parts, "toys-many")
    progress = stage(f"rendering the {split} toys") if stage is not None else None
    cache = folder / "toys"
    return many.load(split, kinds=kinds, mini=mini, size=size or 48, seed=seed, cache=cache, progress=progress)


def _one_lamp(split: str, folder: Path, size: int, seed: int, stage: Stage | None) -> ImageSet:
    if split == "all":
        return concatenate([_one_lamp(each, folder, size, seed, stage) for each in toys.SPLITS], "toys-one-lamp")
    progress = stage(f"rendering the {split} toys") if stage is not None else None
    return one_lamp.load(split, size=size or 48, seed=seed, cache=folder / "toys", progress=progress)


GIVEN = "given"
"""The dataset of runs whose images were given to `quatcaps.train` as they are."""


def _given(split: str, folder: Path, size: int, seed: int, stage: Stage | None) -> ImageSet:
    raise QuatcapsError("its images were given in Python, and are stored nowhere: give them to quatcaps.train again")


DATASETS: dict[str, Dataset] = {
    name: Dataset(partial(load_published, name), PIPELINES[name]) for name in DESCRIPTIONS
} | {
    "toys": Dataset(partial(_toys, {}), PIPELINES["toys"]),
    "toys-mini": Dataset(partial(_toys, MINI), PIPELINES["toys-mini"]),
    "toys-many": Dataset(partial(_many, many.KINDS), PIPELINES["toys-many"]),
    "toys-many-mini": Dataset(partial(_many, many.KINDS, mini=True), PIPELINES["toys-many"]),
    "toys-one-lamp": Dataset(_one_lamp, PIPELINES["toys-many"]),
}
"""The datasets by name; `find_dataset` knows paths and `toys-many-N` too."""


def find_dataset(name: str) -> Dataset:
    """The dataset of that name, or the custom one at that path; an error where there is none. `toys-many-300` is
    `toys-many` with 300 kinds a category."""
    if name in DATASETS:
        return DATASETS[name]
    if name == GIVEN:
        return Dataset(_given, Pipeline(image_size=0, crop=0))
    if (kinds := many.kinds_in(name)) is not None:
        return Dataset(partial(_many, kinds), PIPELINES["toys-many"])
    if is_path(name):
        return Dataset(partial(load_custom, name), custom_pipeline(name))
    raise unknown_name("dataset", name, DATASETS)


def pipeline_of(name: str) -> Pipeline:
    """What the paper does with the images of a dataset; a usual choice for others."""
    return find_dataset(name).pipeline


def load(name: str, split: str, *, folder: Path, size: int = 0, seed: int = 0, stage: Stage | None = None) -> ImageSet:
    """The `train` or `test` split of a dataset, or `all` of it, from `folder` where it is prepared already.

    name: in `DATASETS`, or the path of a folder of images by class or of an .npz file. size: the side of the stored
    images, 0 for the dataset's own; seed: which toys are rendered, and which images of an unsplit dataset are for
    testing.
    """
    return find_dataset(name).load(split, folder, size, seed, stage)


__all__ = [
    "DATASETS",
    "GIVEN",
    "Dataset",
    "ImageSet",
    "Pipeline",
    "Progress",
    "Stage",
    "find_dataset",
    "load",
    "pipeline_of",
]

"""Custom datasets: a folder of images by class, or an .npz file; read once and kept as one compact file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from quatcaps.data import store
from quatcaps.data.custom import folder, npz
from quatcaps.data.custom.limits import Custom
from quatcaps.data.imageset import ImageSet
from quatcaps.data.published import Stage
from quatcaps.data.shrink import shrink
from quatcaps.data.splits import hold_out
from quatcaps.data.store import FORMAT, Made
from quatcaps.errors import QuatcapsError
from quatcaps.pipelines import Pipeline

TEST_PART = 0.2
"""Of every class that becomes the test split where the source has none."""


def is_path(name: str) -> bool:
    """Whether a dataset's name is the path of a custom one."""
    return "/" in name or "\\" in name or name.endswith(".npz") or Path(name).is_dir()


def custom_pipeline(name: str) -> Pipeline:
    """Images as they are in an .npz file, 32×32 from a folder; seen whole, each standardised by itself."""
    return Pipeline(image_size=0 if name.endswith(".npz") else 32, crop=0)


def fingerprint(path: Path, size: int) -> str:
    """What changes whenever a folder or an .npz file does, without its images being read."""
    return npz.fingerprint(path) if path.is_file() else folder.fingerprint(path, size)


def described(path: Path, size: int) -> dict[str, object]:
    """What the prepared file of a custom dataset must say it holds."""
    return {"custom": fingerprint(path, size), "size": size, "format": FORMAT}


def load_custom(name: str, split: str, place: Path, size: int, seed: int, stage: Stage | None = None) -> ImageSet:
    """A split of a custom dataset, or `all` of it; `place` keeps what was read.

    Where it has no split, `seed` chooses a fifth of every class for testing.
    """
    path = Path(name).expanduser()
    if not path.exists():
        raise QuatcapsError(f"dataset {name}: there is no such folder or file")
    contents, title = described(path, size), path.resolve().stem
    kept = place / "prepared" / f"custom-{title}-{size}-{str(contents['custom'])[:12]}.safetensors"

    def make() -> Made:
        found = read_custom(path, size, stage)
        return Made(found.images, found.counts, {"source": str(path.resolve())})

    stored = store.prepared_once(kept, contents, make)
    if split != "all" and "train" not in stored.notes["counts"]:
        training, test = hold_out(store.unpack(stored, "all", title), TEST_PART, seed, "test")
        return training if split == "train" else test
    return store.unpack(stored, split, title)


def smaller(images: ImageSet, size: int) -> ImageSet:
    """Square images shrunk to size × size by block means; 0: as they are."""
    if size == 0 or images.size == (size, size):
        return images
    if images.size[0] != images.size[1]:
        height, width = images.size
        raise QuatcapsError(f"{images.name} has images of {height}×{width}: only square ones shrink to {size}×{size}")
    return replace(images, stored=torch.from_numpy(shrink(images.images.numpy(), size)), rows=None)


def read_custom(path: Path, size: int, stage: Stage | None) -> Custom:
    """The images of a folder or an .npz file, at the size that is asked for."""
    progress = stage(f"reading the images of {path.name}") if stage is not None else None
    if path.is_file():
        read = npz.read(path, progress=progress)
        return Custom(smaller(read.images, size), read.counts)
    return folder.read(path, size=size, progress=progress)

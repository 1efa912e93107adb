"""Datasets of one's own: a folder of images by class, or an .npz file; read once and kept as one compact file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from quatcaps.data.custom import Custom, folder, npz
from quatcaps.data.formats.shrink import shrink
from quatcaps.data.imageset import ImageSet
from quatcaps.data.prepare import Stage
from quatcaps.data.prepared import FORMAT, prepared_once, unpack
from quatcaps.data.splits import hold_out
from quatcaps.errors import QuatcapsError
from quatcaps.pipelines import Pipeline

TEST_PART = 0.2
"""Of every class that becomes the test split where the source has none."""


def is_path(name: str) -> bool:
    """Whether a dataset's name is the path of one's own."""
    return "/" in name or "\\" in name or name.endswith(".npz") or Path(name).is_dir()


def pipeline_of_own(name: str) -> Pipeline:
    """Images as they are in an .npz file, 32×32 from a folder; seen whole, each standardised by itself."""
    return Pipeline(image_size=0 if name.endswith(".npz") else 32, crop=0)


def load_own(name: str, split: str, place: Path, size: int, seed: int, stage: Stage | None = None) -> ImageSet:
    """A split of one's own dataset, or `all` of it; `place` keeps what was read.

    Where it has no split, `seed` chooses a fifth of every class for testing.
    """
    path = Path(name).expanduser()
    if not path.exists():
        raise QuatcapsError(f"dataset {name}: there is no such folder or file")
    print_of = npz.fingerprint(path) if path.is_file() else folder.fingerprint(path, size)
    contents: dict[str, object] = {"own": print_of, "size": size, "format": FORMAT}
    kept = place / "prepared" / f"own-{path.stem}-{size}-{print_of[:12]}.safetensors"
    stored = prepared_once(
        kept, contents, lambda: (read_own(path, size, stage).splits, {"source": str(path.resolve())})
    )
    if split != "all" and "train" not in stored.notes["counts"]:
        training, test = hold_out(unpack(stored, "all", path.stem), TEST_PART, seed, "test")
        return training if split == "train" else test
    return unpack(stored, split, path.stem)


def smaller(images: ImageSet, size: int) -> ImageSet:
    """Square images shrunk to size × size by block means; 0: as they are."""
    if size == 0 or images.size == (size, size):
        return images
    if images.size[0] != images.size[1]:
        height, width = images.size
        raise QuatcapsError(f"{images.name} has images of {height}×{width}: only square ones shrink to {size}×{size}")
    return replace(images, stored=torch.from_numpy(shrink(images.images.numpy(), size)), rows=None)


def read_own(path: Path, size: int, stage: Stage | None) -> Custom:
    progress = stage(f"reading the images of {path.name}") if stage is not None else None
    if path.is_file():
        read = npz.read(path, progress=progress)
        return Custom(read.classes, {split: smaller(images, size) for split, images in read.splits.items()})
    return folder.read(path, size=size, progress=progress)

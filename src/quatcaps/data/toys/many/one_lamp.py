"""`toys-one-lamp`: many kinds under one lamp, few images, for the demo: quick to render and to learn."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from quatcaps.data.imageset import ImageSet, digest_of
from quatcaps.data.toys.catalogue import CLASSES
from quatcaps.data.toys.dataset import LIGHTINGS, check_size, rendered_once
from quatcaps.data.toys.many.dataset import Progress, _Job, _render_all, viewpoints_of
from quatcaps.data.toys.many.kinds import FIRST, numbers
from quatcaps.data.toys.version import generator_version
from quatcaps.errors import unknown_name

VERSION = 1
"""Changes whenever other viewpoints are chosen: this file is no part of the generator's version."""
EXTENT = {"train": (50, 20), "test": (10, 40)}
"""Kinds a category, and viewpoints of each; 5,000 and 2,000 pairs. Test kinds are those of `toys-many`."""


def load(
    split: str, *, size: int = 48, seed: int = 0, cache: Path | None = None, progress: Progress | None = None
) -> ImageSet:
    """A split, "train" or "test", as `toys-many` has it, but for the lamp: it is the first one in all images."""
    if split not in FIRST:
        raise unknown_name("split of the toys", split, FIRST)
    check_size(size)
    kinds, each = EXTENT[split]
    jobs = [job(c, number, seed, each) for c in range(len(CLASSES)) for number in numbers(split, kinds)]
    columns = [each_job.info() for each_job in jobs]
    labels = torch.cat([torch.full_like(each_job.chosen, each_job.category) for each_job in jobs])
    rendered = partial(_render_all, jobs, size, seed, progress, None)
    if cache is None:
        images = rendered()
    else:
        contents: dict[str, object] = {"toys-one-lamp": [VERSION, split, kinds, each], "size": size, "seed": seed}
        contents["generator"] = generator_version()
        path = cache / f"toys-one-lamp-{split}-{size}-seed{seed}-{generator_version()}.safetensors"
        images = rendered_once(path, contents, (len(labels), 2, size, size), rendered)
    return ImageSet(
        name=f"toys-one-lamp {split}",
        stored=images,
        labels=labels,
        classes=CLASSES,
        info={name: torch.cat([column[name] for column in columns]) for name in columns[0]},
        source=f"{kinds} kinds a category, rendered with seed {seed} by {generator_version()}",
        digest=digest_of(["toys-one-lamp", VERSION, generator_version(), seed, size, kinds, each]),
        aligned=True,
    )


def job(category: int, number: int, seed: int, each: int) -> _Job:
    """A kind from viewpoints that `toys-many` shows of it, under the first lamp."""
    lamps = len(LIGHTINGS)
    chosen = viewpoints_of(category, number, seed, each)
    return _Job(category, number, chosen.div(lamps, rounding_mode="floor") * lamps)

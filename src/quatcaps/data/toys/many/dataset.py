"""`toys-many`: as many kinds as one likes, a part of all viewpoints of each, rendered on all cores or on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from quatcaps.counter_based import STEP, mixed
from quatcaps.data.imageset import ImageSet, digest_of
from quatcaps.data.toys.catalogue import CLASSES, Toy
from quatcaps.data.toys.dataset import (
    AZIMUTHS,
    ELEVATIONS,
    LIGHTINGS,
    check_size,
    checked_viewpoints,
    rendered_once,
)
from quatcaps.data.toys.many.draws import Draw
from quatcaps.data.toys.many.kinds import FIRST, MOST, kind, numbers
from quatcaps.data.toys.many.renderer import draw
from quatcaps.data.toys.version import generator_version
from quatcaps.errors import QuatcapsError, unknown_name

KINDS = 100
"""Training kinds a category, unless said otherwise."""

TEST_KINDS, TEST_VIEWPOINTS = 20, 200
"""Test kinds a category and viewpoints of each, always the same: 20,000 pairs."""

PAIRS = 20_000
"""Training pairs a category, at most: viewpoints are shared out among the kinds."""

MINI = {"train": (40, 30), "test": (10, 40)}
"""What `toys-many-mini` has instead: kinds a category, and viewpoints of each; 6,000 and 2,000 pairs."""

VIEWPOINTS = len(ELEVATIONS) * len(AZIMUTHS) * len(LIGHTINGS)

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Job:
    """A kind and which of all viewpoints are rendered of it."""

    category: int
    number: int
    chosen: Tensor  # (n,) int64, ascending

    def info(self) -> dict[str, Tensor]:
        """Viewpoint codes as in `toys`, {name: (n,)} int64."""
        lightings, azimuths = len(LIGHTINGS), len(AZIMUTHS)
        rest = self.chosen.div(lightings, rounding_mode="floor")
        return {
            "instance": torch.full_like(self.chosen, self.number),
            "elevation": rest.div(azimuths, rounding_mode="floor"),
            "azimuth": torch.tensor(AZIMUTHS)[rest % azimuths],
            "lighting": self.chosen % lightings,
        }


def viewpoints_of(category: int, number: int, seed: int, count: int) -> Tensor:
    """Which viewpoints of a kind are shown: `count` of 0 … 971, ascending, int64.

    Those of a smaller count are among those of a larger one. A viewpoint's number is (elevation · 18 + azimuth) · 6 +
    lighting, each counted from 0.
    """
    key = int(Draw(seed, CLASSES[category], number).share("viewpoints") * 2**52)
    order = mixed(torch.arange(VIEWPOINTS) * STEP + key).argsort(stable=True)
    return order[:count].sort().values


def _extent(split: str, kinds: int, mini: bool) -> tuple[int, int]:
    """Kinds a category, and viewpoints of each."""
    if mini:
        return MINI[split]
    return (TEST_KINDS, TEST_VIEWPOINTS) if split == "test" else (kinds, min(VIEWPOINTS, PAIRS // kinds))


def _jobs(split: str, kinds: int, each: int, seed: int) -> list[_Job]:
    return [
        _Job(category, number, viewpoints_of(category, number, seed, each))
        for category in range(len(CLASSES))
        for number in numbers(split, kinds)
    ]


def load(
    split: str,
    *,
    kinds: int = KINDS,
    mini: bool = False,
    size: int = 48,
    seed: int = 0,
    cache: Path | None = None,
    progress: Progress | None = None,
    device: torch.device | str | None = None,
) -> ImageSet:
    """A split, "train" or "test", of stereo pairs (N, 2, size, size) with labels and viewpoint info as in `toys`.

    kinds: training kinds a category, 1 … 20,000. A category has up to 20,000 training pairs whatever their number: more
    kinds show fewer viewpoints each, and below 21 kinds all 972 are shown. The test split does not depend on it: 20
    other kinds a category from 200 viewpoints each. `info["instance"]` is the kind's number, as `kind` takes it. mini:
    the small set, `MINI`, whatever `kinds` is.
    cache: a folder where the images are kept. progress(done, total) counts pairs while rendering. device: where to
    render; a GPU where there is one, or else all cores. The images are the same but for rounding: on one H200 a pixel
    in 5.5 million differed, by 1.
    """
    if split not in FIRST:
        raise unknown_name("split of the toys", split, FIRST)
    check_kinds(kinds)
    check_size(size)
    kinds, each = _extent(split, kinds, mini)
    jobs = _jobs(split, kinds, each, seed)
    columns = [job.info() for job in jobs]
    info = {name: torch.cat([column[name] for column in columns]) for name in columns[0]}
    labels = torch.cat([torch.full_like(job.chosen, job.category) for job in jobs])
    rendered = partial(_render_all, jobs, size, seed, progress, device)
    if cache is None:
        images = rendered()
    else:
        named = f"{split}-mini" if mini else split if split == "test" else f"{split}{kinds}"
        contents: dict[str, object] = {"toys-many": named, "size": size, "seed": seed, "generator": generator_version()}
        path = cache / f"toys-many-{named}-{size}-seed{seed}-{generator_version()}.safetensors"
        images = rendered_once(path, contents, (len(labels), 2, size, size), rendered)
    return ImageSet(
        name=f"toys-many {split}",
        stored=images,
        labels=labels,
        classes=CLASSES,
        info=info,
        source=f"{len(jobs) // len(CLASSES)} kinds a category, rendered with seed {seed} by {generator_version()}",
        digest=digest_of(["toys-many", generator_version(), seed, size, kinds, each]),
        aligned=True,
    )


def render(
    toy: Toy,
    azimuth: Tensor,
    elevation: Tensor,
    lighting: Tensor,
    *,
    size: int = 48,
    device: torch.device | str | None = None,
) -> Tensor:
    """A toy from any viewpoints: stereo pairs (N, 2, size, size) uint8 on the CPU, left camera first.

    azimuth and elevation (N,) in degrees, lighting (N,) integers 0 … 5, as for `toys.render`.

    >>> toy = kind(4, 7)
    >>> render(toy, torch.tensor([12.5]), torch.tensor([33.0]), torch.tensor([0]), size=16).shape
    torch.Size([1, 2, 16, 16])
    """
    check_size(size)
    return draw(toy, checked_viewpoints(azimuth, elevation, lighting), size, _device(device))


def kinds_in(name: str) -> int | None:
    """The number of kinds in a dataset's name: `toys-many`, or `toys-many-300` for 300; None for other names, of which
    `toys-many-mini` is one.

    >>> kinds_in("toys-many-300")
    300
    """
    if name == "toys-many":
        return KINDS
    if not name.startswith("toys-many-") or name == "toys-many-mini":
        return None
    count = name.removeprefix("toys-many-")
    if not (count.isascii() and count.isdecimal() and len(count) <= 9):
        raise QuatcapsError(
            f"dataset {name}: give the number of kinds a category, from 1 to {MOST}, as in toys-many-300"
        )
    return check_kinds(int(count))


def check_kinds(kinds: int) -> int:
    if not 1 <= kinds <= MOST:
        raise QuatcapsError(f"kinds is {kinds}: give a number of kinds a category from 1 to {MOST}")
    return kinds


def _device(asked: torch.device | str | None) -> torch.device:
    return torch.device(asked or ("cuda" if torch.cuda.is_available() else "cpu"))


def _render_all(
    jobs: list[_Job], size: int, seed: int, progress: Progress | None, asked: torch.device | str | None
) -> Tensor:
    device = _device(asked)
    total, done = sum(len(job.chosen) for job in jobs), 0
    images = torch.empty(total, 2, size, size, dtype=torch.uint8)
    with closing(_in_turn(jobs, size, seed, device)) as pieces:
        for rendered in pieces:
            images[done : done + len(rendered)] = rendered
            done += len(rendered)
            if progress is not None:
                progress(done, total)
    return images


def _in_turn(jobs: list[_Job], size: int, seed: int, device: torch.device) -> Generator[Tensor, None, None]:
    """The images of each kind. Threads share out the kinds: as many as PyTorch uses; with a GPU, one prepares the next
    kinds while this one renders."""

    def build(job: _Job) -> tuple[Toy, list[tuple[float, float, int]]]:
        info = job.info()
        degrees = (10.0 * info["azimuth"], 30.0 + 5.0 * info["elevation"])
        return kind(job.category, job.number, seed), checked_viewpoints(*degrees, info["lighting"])

    def picture(job: _Job) -> Tensor:
        return draw(*build(job), size, device)

    threads = torch.get_num_threads()
    workers = threads if device.type == "cpu" else 1
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        if device.type == "cpu":
            yield from pool.map(picture, jobs)
        else:
            for built in pool.map(build, jobs):
                yield draw(*built, size, device)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)

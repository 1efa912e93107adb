"""The toys as a dataset: single views on request, or the 48,600 stereo pairs in smallNORB's two splits."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from quatcaps.data import store
from quatcaps.data.imageset import ImageSet, digest_of
from quatcaps.data.toys.camera import LAMPS
from quatcaps.data.toys.catalogue import CLASSES, INSTANCES, SPLITS, toy
from quatcaps.data.toys.renderer import scene, views
from quatcaps.data.toys.version import renderer_version
from quatcaps.errors import QuatcapsError, unknown_name

AZIMUTHS = tuple(range(0, 36, 2))
"""smallNORB's codes, tens of degrees."""

ELEVATIONS = tuple(range(9))
"""smallNORB's codes: 30° and 5° more for each."""

LIGHTINGS = tuple(range(len(LAMPS)))

SMALLEST, LARGEST = 8, 192
_AT_ONCE = 9  # elevations rendered together


@dataclass(frozen=True)
class Selection:
    """Which toys and stored viewpoint codes a set consists of; the last code changes fastest."""

    instances: tuple[int, ...]
    elevations: tuple[int, ...] = ELEVATIONS
    azimuths: tuple[int, ...] = AZIMUTHS
    lightings: tuple[int, ...] = LIGHTINGS

    def table(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Labels (N,) and viewpoint info {name: (N,)}, int64, in the order of the images."""
        ranges = (range(len(CLASSES)), self.instances, self.elevations, self.azimuths, self.lightings)
        grid = torch.cartesian_prod(*(torch.tensor(list(codes), dtype=torch.int64) for codes in ranges))
        names = ("instance", "elevation", "azimuth", "lighting")
        return grid[:, 0].clone(), {name: grid[:, k + 1].clone() for k, name in enumerate(names)}

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Of categories, instances, elevations, azimuths and lightings."""
        return (len(CLASSES), len(self.instances), len(self.elevations), len(self.azimuths), len(self.lightings))


def render(
    category: int,
    instance: int,
    azimuth: Tensor,
    elevation: Tensor,
    lighting: Tensor,
    *,
    size: int = 48,
    seed: int = 0,
) -> Tensor:
    """One toy from any viewpoints: stereo pairs (N, 2, size, size) uint8, left camera first.

    category 0 … 4 as in CLASSES, instance 0 … 9; azimuth and elevation (N,) in degrees, lighting (N,) integers 0 … 5.
    At azimuth 0° the toy faces the cameras, at 90° they see its left side; elevations run from 0° to 90°. Views of the
    same azimuth cost least, as they share their shadows.

    >>> import torch
    >>> render(4, 0, torch.tensor([12.5]), torch.tensor([33.0]), torch.tensor([0]), size=16).shape
    torch.Size([1, 2, 16, 16])
    """
    check_member("category", category, len(CLASSES))
    check_member("instance", instance, INSTANCES)
    check_size(size)
    viewpoints = checked_viewpoints(azimuth, elevation, lighting)
    wanted: dict[float, list[int]] = defaultdict(list)
    for k, (angle, _, _) in enumerate(viewpoints):
        wanted[angle % 360.0].append(k)

    images = torch.empty(len(viewpoints), 2, size, size, dtype=torch.uint8)
    with torch.inference_mode():  # a fifth of the time is PyTorch's readiness for gradients
        prepared = scene(toy(category, instance, seed))
        for angle, members in wanted.items():
            by_height: dict[float, list[int]] = defaultdict(list)
            for k in members:
                by_height[viewpoints[k][1]].append(k)
            distinct = list(by_height)
            for start in range(0, len(distinct), _AT_ONCE):
                group = distinct[start : start + _AT_ONCE]
                needed = sorted({viewpoints[k][2] for height in group for k in by_height[height]})
                rendered = views(prepared, angle, group, needed, size)
                for row, height in enumerate(group):
                    for k in by_height[height]:
                        images[k] = rendered[row, needed.index(viewpoints[k][2])]
    return images


def checked_viewpoints(azimuth: Tensor, elevation: Tensor, lighting: Tensor) -> list[tuple[float, float, int]]:
    """Viewpoints as `render` takes them, (N,) each, one by one; an error for any that cannot be rendered."""
    columns = {"azimuth": azimuth, "elevation": elevation, "lighting": lighting}
    for name, column in columns.items():
        if column.ndim != 1 or len(column) != len(azimuth):
            shapes = ", ".join(f"{key} {tuple(other.shape)}" for key, other in columns.items())
            raise QuatcapsError(f"{name} has shape {tuple(column.shape)}: give one value per view, not {shapes}")
    if lighting.is_floating_point() or lighting.is_complex():
        raise QuatcapsError(f"lighting is {lighting.dtype}: give int64 numbers from 0 to {len(LAMPS) - 1}")
    viewpoints = []
    angles, heights, lamps = (column.tolist() for column in columns.values())
    for k, (angle, height, lamp) in enumerate(zip(angles, heights, lamps, strict=True)):
        if not math.isfinite(angle):
            raise QuatcapsError(f"azimuth of view {k} is {angle}: give degrees, any finite number")
        if not 0.0 <= height <= 90.0:
            raise QuatcapsError(f"elevation of view {k} is {height}: give degrees from 0 to 90, above the ground")
        if not 0 <= lamp < len(LAMPS):
            raise QuatcapsError(f"lighting of view {k} is {lamp}: give a number from 0 to {len(LAMPS) - 1}")
        viewpoints.append((float(angle), float(height), int(lamp)))
    return viewpoints


def load(
    split: str,
    *,
    size: int = 48,
    seed: int = 0,
    cache: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    azimuths: Sequence[int] | None = None,
    elevations: Sequence[int] | None = None,
    lightings: Sequence[int] | None = None,
) -> ImageSet:
    """A whole split, "train" or "test": 24,300 stereo pairs (24300, 2, size, size) with labels and viewpoint info.

    azimuths, elevations, lightings: stored codes to keep to (0, 2, … 34; 0 … 8; 0 … 5), all by default; the images come
    in ascending order of codes whatever order they are given in. cache: a folder where the images are kept; a file that
    is damaged, or from another renderer, is rendered again. progress(done, total) counts pairs while rendering, and is
    not called when the images come from the cache.
    """
    if split not in SPLITS:
        raise unknown_name("split of the toys", split, SPLITS)
    check_size(size)
    chosen = Selection(
        SPLITS[split],
        _codes("elevation", elevations, ELEVATIONS),
        _codes("azimuth", azimuths, AZIMUTHS),
        _codes("lighting", lightings, LIGHTINGS),
    )
    labels, info = chosen.table()
    codes = (chosen.elevations, chosen.azimuths, chosen.lightings)
    shape = (len(labels), 2, size, size)
    if cache is None:
        images = _render_all(chosen, size, seed, progress)
    else:
        contents: dict[str, object] = {
            "split": split,
            "size": size,
            "seed": seed,
            "renderer": renderer_version(),
            "codes": codes,
        }
        path = cache / _file_name(split, size, seed, chosen)
        images = rendered_once(path, contents, shape, lambda: _render_all(chosen, size, seed, progress))
    return ImageSet(
        name=f"toys {split}",
        stored=images,
        labels=labels,
        classes=CLASSES,
        info=info,
        source=f"rendered with seed {seed} by renderer {renderer_version()}",
        digest=digest_of(["toys", renderer_version(), seed, size, *codes]),
        aligned=True,
    )


def rendered_once(
    path: Path, contents: dict[str, object], shape: tuple[int, ...], rendered: Callable[[], Tensor]
) -> Tensor:
    """The images that a file keeps; where it does not hold them whole, they are rendered and kept."""
    images = _kept(path, contents, shape)
    if images is None:
        with store.alone(path):  # of several processes one renders
            images = _kept(path, contents, shape)
            if images is None:
                images = rendered()
                store.write(path, contents, {"images": images})
    return images


def _kept(path: Path, contents: dict[str, object], shape: tuple[int, ...]) -> Tensor | None:
    def images_alone(stored: store.Stored) -> bool:
        kinds = {name: (tensor.dtype, tensor.shape) for name, tensor in stored.tensors.items()}
        return kinds == {"images": (torch.uint8, shape)}

    stored = store.read(path, contents, earlier=images_alone)
    return stored.tensors["images"] if stored is not None and images_alone(stored) else None


def _render_all(chosen: Selection, size: int, seed: int, progress: Callable[[int, int], None] | None) -> Tensor:
    images = torch.empty(*chosen.counts, 2, size, size, dtype=torch.uint8)
    step = len(chosen.elevations) * len(chosen.lightings)
    total, done = math.prod(chosen.counts), 0
    degrees = [30.0 + 5.0 * code for code in chosen.elevations]
    for category in range(len(CLASSES)):
        for row, instance in enumerate(chosen.instances):
            prepared = scene(toy(category, instance, seed))
            for column, azimuth in enumerate(chosen.azimuths):
                rendered = views(prepared, 10.0 * azimuth, degrees, chosen.lightings, size)
                images[category, row, :, column] = rendered
                done += step
                if progress is not None:
                    progress(done, total)
    return images.view(total, 2, size, size)


def _file_name(split: str, size: int, seed: int, chosen: Selection) -> str:
    subset = ""
    if chosen != Selection(chosen.instances):
        codes = repr((chosen.elevations, chosen.azimuths, chosen.lightings))
        subset = f"-part-{hashlib.sha256(codes.encode()).hexdigest()[:8]}"
    return f"toys-{split}-{size}-seed{seed}{subset}-{renderer_version()}.safetensors"


def _codes(name: str, given: Sequence[int] | None, known: tuple[int, ...]) -> tuple[int, ...]:
    if given is None:
        return known
    for code in given:
        if code not in known:
            raise QuatcapsError(f"{name} code {code} is not one of {', '.join(map(str, known))}: give stored codes")
    if not given:
        raise QuatcapsError(f"no {name} codes were given: give at least one, or none of the argument for all")
    return tuple(sorted({int(code) for code in given}))


def check_member(name: str, value: int, count: int) -> None:
    if not 0 <= value < count:
        raise QuatcapsError(f"{name} is {value}: give a number from 0 to {count - 1}")


def check_size(size: int) -> None:
    if not SMALLEST <= size <= LARGEST:
        raise QuatcapsError(f"size is {size}: give a number of pixels from {SMALLEST} to {LARGEST}")

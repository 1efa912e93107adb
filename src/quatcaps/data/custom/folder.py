"""A folder of images by class: ROOT/train/CLASS/… and ROOT/test/CLASS/…, or ROOT/CLASS/… without a split."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from quatcaps.data.custom.limits import Custom, Progress, check_classes, check_room, most_bytes, new_images
from quatcaps.data.imageset import ImageSet, digest_of
from quatcaps.data.pictures import SUFFIXES, Look, look, open_picture, pixels, square_pixels
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained

LAYOUTS = "ROOT/train/CLASS/ and ROOT/test/CLASS/, or ROOT/CLASS/"
_NAMES_SHOWN = 5


@dataclass(frozen=True)
class Listing:
    """The image files of a dataset: for each split, for each class, in order."""

    classes: tuple[str, ...]
    files: Mapping[str, tuple[tuple[Path, ...], ...]]

    def all_files(self) -> list[Path]:
        return [path for by_class in self.files.values() for paths in by_class for path in paths]


def read(root: Path, *, size: int, progress: Progress | None = None, limit: int | None = None) -> Custom:
    """The images below `root`, in colour if any of them is.

    `size`: the side that the middle square of each image is scaled to; 0 keeps images as they are, if all have the same
    size. Classes come in natural order (2 before 10), files in the order of their names. `limit`: in bytes of pixels, a
    third of the memory unless told otherwise; more are refused before any image is decoded. `progress` counts images.
    """
    if size < 0:
        raise QuatcapsError(f"size is {size}: give a number of pixels, or 0 for images as they are stored")
    listing = list_files(root)
    files = listing.all_files()
    looks = {path: look(path) for path in files}
    channels = 3 if any(seen.colour for seen in looks.values()) else 1
    height, width = (size, size) if size else _common_size(looks)
    remedy = "give a smaller --image-size, or fewer images"
    check_room(root, len(files) * channels * height * width, most_bytes(limit), remedy)

    stored = new_images(root, (len(files), channels, height, width))
    digests = []
    for row, path in enumerate(files):
        picture = open_picture(path).convert("RGB" if channels == 3 else "L")
        if not size and picture.size != (width, height):
            raise _sizes_differ(files[0], (width, height), path, picture.size)
        stored[row] = square_pixels(picture, size) if size else pixels(picture)
        with explained(f"read {path}"), path.open("rb") as file:
            digests.append([path.relative_to(root).as_posix(), hashlib.file_digest(file, "sha256").hexdigest()])
        if progress is not None:
            progress(row + 1, len(files))
    labels = [label for by_class in listing.files.values() for label, paths in enumerate(by_class) for _ in paths]
    images = ImageSet(
        name=root.resolve().name,
        stored=stored,
        labels=torch.tensor(labels),
        classes=listing.classes,
        digest=digest_of(sorted(digests)),
    )
    return Custom(images, {split: sum(map(len, by_class)) for split, by_class in listing.files.items()})


def fingerprint(root: Path, size: int) -> str:
    """64 hexadecimal digits that change with the size asked for and with the names, lengths and times of the files.

    Times of change are among them, which nobody can set back: a file that is replaced by one of the same length and
    date is seen.
    """
    digest = hashlib.sha256(f"{size}".encode())
    listing = list_files(root)
    for split, by_class in listing.files.items():
        digest.update(b"\0\0" + split.encode())
        for path in (path for paths in by_class for path in paths):
            with explained(f"read {path}"):
                state = path.stat()
            digest.update(b"\0" + os.fsencode(path.relative_to(root).as_posix()))
            digest.update(f"\0{state.st_size}\0{state.st_mtime_ns}\0{state.st_ctime_ns}".encode())
    return digest.hexdigest()


def list_files(root: Path) -> Listing:
    """The image files below `root`; hidden files, other files and folders beside train and test are left out."""
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise QuatcapsError(f"{root} {found}: give a folder with images in {LAYOUTS}")
    folders = _folders(root)
    parts = {folder.name.lower(): folder for folder in folders if folder.name.lower() in ("train", "test")}
    if not parts:
        classes, files = _classes(root, folders)
        check_classes(root, classes)
        return Listing(classes, {"all": files})
    for present, missing in (("train", "test"), ("test", "train")):
        if missing not in parts:
            others = [folder.name for folder in folders if folder not in parts.values()]
            beside = f" (other folders are not read: {_some(others)})" if others else ""
            raise QuatcapsError(
                f"{root} has a folder {present} but no folder {missing}{beside}: add {missing}/CLASS/, or leave the "
                f"split out and lay images out as ROOT/CLASS/, with no class named {present}"
            )
    read_parts = {split: _classes(parts[split], _folders(parts[split])) for split in ("train", "test")}
    train, test = (classes for classes, _ in read_parts.values())
    if set(train) != set(test):
        differences = [
            f"only in {split}: {_some([name for name in mine if name not in theirs])}"
            for split, mine, theirs in (("train", train, test), ("test", test, train))
            if set(mine) - set(theirs)
        ]
        raise QuatcapsError(
            f"{root} has other classes in train than in test ({'; '.join(differences)}): "
            "give both the same class folders"
        )
    check_classes(root, train)
    return Listing(train, {split: files for split, (_, files) in read_parts.items()})


def natural(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """A key that sorts numbers in names by their value.

    >>> sorted(["class10", "class2", "Class1"], key=natural)
    ['Class1', 'class2', 'class10']
    """
    pieces = re.split("([0-9]+)", name.casefold())
    return tuple((int(piece), "") if place % 2 else (-1, piece) for place, piece in enumerate(pieces)), name


def _classes(parent: Path, folders: list[Path]) -> tuple[tuple[str, ...], tuple[tuple[Path, ...], ...]]:
    if not folders:
        raise QuatcapsError(f"{parent} has no class folders: lay images out as {LAYOUTS}")
    files = []
    for folder in folders:
        files.append(tuple(_images(folder)))
        if not files[-1]:
            raise QuatcapsError(
                f"{folder} holds no images ({', '.join(SUFFIXES)}): add some, or remove the folder if it is no class"
            )
    return tuple(folder.name for folder in folders), tuple(files)


def _folders(parent: Path) -> list[Path]:
    with explained(f"read the folder {parent}"):
        found = [child for child in parent.iterdir() if not child.name.startswith(".") and child.is_dir()]
    return sorted(found, key=lambda folder: natural(folder.name))


def _images(folder: Path) -> list[Path]:
    """The image files at any depth in a class folder; linked folders inside it are not entered."""

    def give_up(error: OSError) -> None:
        raise error

    found: list[Path] = []
    with explained(f"read the folder {folder}"):
        for parent, folders, names in os.walk(folder, onerror=give_up):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths = (Path(parent, name) for name in names if not name.startswith("."))
            found += [path for path in paths if path.suffix.lower() in SUFFIXES and path.is_file()]
    return sorted(found)


def _common_size(looks: Mapping[Path, Look]) -> tuple[int, int]:
    """Height and width of all images, or an error that names two that differ."""
    first, expected = next(iter(looks.items()))
    for path, seen in looks.items():
        if seen.size != expected.size:
            raise _sizes_differ(first, expected.size, path, seen.size)
    width, height = expected.size
    return height, width


def _sizes_differ(first: Path, expected: tuple[int, int], other: Path, found: tuple[int, int]) -> QuatcapsError:
    """Sizes are width and height, as everybody writes them."""
    return QuatcapsError(
        f"{first} is {expected[0]}×{expected[1]} but {other} is {found[0]}×{found[1]}: "
        "give --image-size, to which all are scaled"
    )


def _some(names: Iterable[str]) -> str:
    """The first few of some names."""
    listed = list(names)
    rest = f" and {len(listed) - _NAMES_SHOWN} more" if len(listed) > _NAMES_SHOWN else ""
    return ", ".join(listed[:_NAMES_SHOWN]) + rest

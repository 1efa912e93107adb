"""Image files, read with care, and folders of them: whatever is wrong with a file becomes a line that names it.

A folder has its images by class: ROOT/train/CLASS/… and ROOT/test/CLASS/…, or ROOT/CLASS/… without a split.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps
from torch import Tensor

from quatcaps.data.imageset import ImageSet, Progress, check_classes, digest_of
from quatcaps.data.store import Made, check_room
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
"""Of the files that are taken for images, in small letters."""

LAYOUTS = "ROOT/train/CLASS/ and ROOT/test/CLASS/, or ROOT/CLASS/"
Listing = dict[str, dict[str, list[Path]]]
"""Split → class → image files, in order."""

# Only what these suffixes promise: Pillow opens other formats too, some with the help of foreign programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_GREY = ("1", "L", "LA", "La", "I", "F")
_SIDEWAYS = (5, 6, 7, 8)
_NAMES_SHOWN = 5


class Look(NamedTuple):
    """What the beginning of an image file says, without its pixels being read."""

    colour: bool
    size: tuple[int, int]  # width and height


def look(path: Path) -> Look:
    """Whether an image is in colour, and its size when held upright. A palette counts as colour."""
    with _opened(path, str(path)) as opened:
        width, height = opened.size
        # A PNG can say behind its pixels which way is up, but to ask would decode them. Pillow turns a TIFF by itself.
        told = "exif" in opened.info if opened.format == "PNG" else opened.format != "TIFF"
        if told and opened.getexif().get(ExifTags.Base.Orientation) in _SIDEWAYS:
            width, height = height, width
        return Look(not (opened.mode in _GREY or opened.mode.startswith("I;16")), (width, height))


def open_picture(source: Path | io.BytesIO, name: str = "") -> Image.Image:
    """The first picture in a file, upright, its pixels read: grey (mode L) or colour (mode RGB), 8 bits a channel.

    Transparency is left out; of 16 bits the upper 8 are kept. name: which file it is in errors, if not by its path.
    """
    name = name or str(source)
    with _opened(source, name) as opened:
        opened.load()
        picture = ImageOps.exif_transpose(opened)
        if min(picture.size) < 1:
            raise QuatcapsError(f"{name} is {picture.width}×{picture.height}: give an image with pixels")
        if picture.mode in ("I", "F"):
            raise QuatcapsError(f"{name} holds 32-bit values: save it with 8 or 16 bits per channel")
        if picture.mode.startswith("I;16"):
            return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
        if picture.mode in _GREY:
            return picture.convert("L")
        # A palette with transparency may only become RGBA.
        return (picture.convert("RGBA") if picture.mode == "P" else picture).convert("RGB")


def pixels(picture: Image.Image) -> Tensor:
    """(1 or 3, height, width) uint8, of a grey or a colour picture."""
    values = torch.from_numpy(np.array(picture))
    return values[None] if values.ndim == 2 else values.permute(2, 0, 1)


def square_pixels(picture: Image.Image, size: int) -> Tensor:
    """(1 or 3, size, size) uint8: the middle square, scaled; averaged where it shrinks, bicubic where it grows."""
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    square = picture.crop((left, top, left + side, top + side))
    if side != size:
        square = square.resize((size, size), Image.Resampling.BOX if side > size else Image.Resampling.BICUBIC)
    return pixels(square)


@contextlib.contextmanager
def _opened(source: Path | io.BytesIO, name: str) -> Iterator[Image.Image]:
    """An image file, or the bytes of one; whatever opening or decoding it raises becomes one line about that file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            # By its name, Pillow would map an uncompressed file into memory, and scramble a TIFF that lies on its side.
            with (
                source.open("rb") if isinstance(source, Path) else source as file,
                Image.open(file, formats=_FORMATS) as opened,
            ):
                yield opened
    except QuatcapsError:
        raise
    except FileNotFoundError as error:
        raise QuatcapsError(f"{name}: there is no such file") from error
    except IsADirectoryError as error:
        raise QuatcapsError(f"{name} is a folder: give image files") from error
    except PermissionError as error:
        raise QuatcapsError(f"{name} may not be read: give yourself the permission to read it") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        limit = Image.MAX_IMAGE_PIXELS or 0
        raise QuatcapsError(f"{name} is larger than {limit:,} pixels: give a smaller image") from error
    except Exception as error:  # the decoders raise almost anything on damaged files
        raise QuatcapsError(
            f"{name} is not an image that can be read: it is damaged or no PNG, JPEG or similar file; mend or remove it"
        ) from error


def read_folder(root: Path, *, size: int, progress: Progress | None = None, limit: int | None = None) -> Made:
    """The images below `root`, in colour if any of them is.

    `size`: the side that the middle square of each image is scaled to; 0 keeps images as they are, if all have the same
    size. Classes come in natural order (2 before 10), files in the order of their names. `limit`: in bytes of pixels, a
    third of the memory unless told otherwise; more are refused before any image is decoded. `progress` counts images.
    """
    if size < 0:
        raise QuatcapsError(f"size is {size}: give a number of pixels, or 0 for images as they are stored")
    listing = list_files(root)
    files = _all_files(listing)
    looks = {path: look(path) for path in files}
    channels = 3 if any(seen.colour for seen in looks.values()) else 1
    height, width = (size, size) if size else _common_size(looks)
    check_room(root, len(files) * channels * height * width, "give a smaller --image-size, or fewer images", limit)

    stored = torch.empty((len(files), channels, height, width), dtype=torch.uint8)
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
    labels = [label for split in listing.values() for label, paths in enumerate(split.values()) for _ in paths]
    images = ImageSet(
        name=root.resolve().name,
        stored=stored,
        labels=torch.tensor(labels),
        classes=tuple(next(iter(listing.values()))),
        digest=digest_of(sorted(digests)),
    )
    return Made(images, {split: sum(map(len, by_class.values())) for split, by_class in listing.items()})


def folder_fingerprint(root: Path, size: int) -> str:
    """64 hexadecimal digits that change with the size asked for and with the names, lengths and times of the files.

    Times of change are among them, which nobody can set back: a file that is replaced by one of the same length and
    date is seen.
    """
    digest = hashlib.sha256(f"{size}".encode())
    for split, by_class in list_files(root).items():
        digest.update(b"\0\0" + split.encode())
        for path in _all_files({split: by_class}):
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
        listing = {"all": _by_class(root)}
        check_classes(root, tuple(listing["all"]))
        return listing
    for present, missing in (("train", "test"), ("test", "train")):
        if missing not in parts:
            others = [folder.name for folder in folders if folder not in parts.values()]
            beside = f" (other folders are not read: {_some(others)})" if others else ""
            raise QuatcapsError(
                f"{root} has a folder {present} but no folder {missing}{beside}: add {missing}/CLASS/, or leave the "
                f"split out and lay images out as ROOT/CLASS/, with no class named {present}"
            )
    listing = {split: _by_class(parts[split]) for split in ("train", "test")}
    train, test = listing.values()
    if train.keys() != test.keys():
        differences = [
            f"only in {split}: {_some([name for name in mine if name not in theirs])}"
            for split, mine, theirs in (("train", train, test), ("test", test, train))
            if mine.keys() - theirs.keys()
        ]
        raise QuatcapsError(
            f"{root} has other classes in train than in test ({'; '.join(differences)}): "
            "give both the same class folders"
        )
    check_classes(root, tuple(train))
    return listing


def natural(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """A key that sorts numbers in names by their value.

    >>> sorted(["class10", "class2", "Class1"], key=natural)
    ['Class1', 'class2', 'class10']
    """
    pieces = re.split("([0-9]+)", name.casefold())
    return tuple((int(piece), "") if place % 2 else (-1, piece) for place, piece in enumerate(pieces)), name


def _all_files(listing: Listing) -> list[Path]:
    return [path for by_class in listing.values() for paths in by_class.values() for path in paths]


def _by_class(parent: Path) -> dict[str, list[Path]]:
    found = {folder.name: images_below(folder) for folder in _folders(parent)}
    if not found:
        raise QuatcapsError(f"{parent} has no class folders: lay images out as {LAYOUTS}")
    for name, files in found.items():
        if not files:
            raise QuatcapsError(
                f"{parent / name} holds no images ({', '.join(SUFFIXES)}): add some, or remove the folder if it is no "
                "class"
            )
    return found


def _folders(parent: Path) -> list[Path]:
    with explained(f"read the folder {parent}"):
        found = [child for child in parent.iterdir() if not child.name.startswith(".") and child.is_dir()]
    return sorted(found, key=lambda folder: natural(folder.name))


def images_below(folder: Path) -> list[Path]:
    """The image files at any depth in a folder, in order. Hidden files and folders are left out, and linked folders
    inside it are not entered."""

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


def _some(names: Sequence[str]) -> str:
    """The first few of some names."""
    rest = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + rest

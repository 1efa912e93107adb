"""Image files, read with care: whatever is wrong with one becomes a line that names it."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps
from torch import Tensor

from quatcaps.errors import QuatcapsError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
"""Of the files that are taken for images, in small letters."""

# Only what these suffixes promise: Pillow opens other formats too, some with the help of foreign programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_GREY = ("1", "L", "LA", "La", "I", "F")
_SIDEWAYS = (5, 6, 7, 8)


class Look(NamedTuple):
    """What the beginning of an image file says, without its pixels being read."""

    colour: bool
    size: tuple[int, int]  # width and height


def look(path: Path) -> Look:
    """Whether an image is in colour, and its size when held upright. A palette counts as colour."""
    with _opened(path) as opened:
        width, height = opened.size
        # A PNG can say behind its pixels which way is up, but to ask would decode them. Pillow turns a TIFF by itself.
        told = "exif" in opened.info if opened.format == "PNG" else opened.format != "TIFF"
        if told and opened.getexif().get(ExifTags.Base.Orientation) in _SIDEWAYS:
            width, height = height, width
        return Look(not (opened.mode in _GREY or opened.mode.startswith("I;16")), (width, height))


def open_picture(path: Path) -> Image.Image:
    """The first picture in a file, upright, its pixels read: grey (mode L) or colour (mode RGB), 8 bits a channel.

    Transparency is left out; of 16 bits the upper 8 are kept.
    """
    with _opened(path) as opened:
        return _upright(opened, str(path))


def open_bytes(received: bytes, name: str) -> Image.Image:
    """The same of a file's bytes; `name` says in errors which file they are."""
    with _opened(io.BytesIO(received), name) as opened:
        return _upright(opened, name)


def _upright(opened: Image.Image, name: str) -> Image.Image:
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
def _opened(source: Path | io.BytesIO, name: str = "") -> Iterator[Image.Image]:
    """An image file, or the bytes of one; whatever opening or decoding it raises becomes one line about that file."""
    path = name or source
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
        raise QuatcapsError(f"{path}: there is no such file") from error
    except IsADirectoryError as error:
        raise QuatcapsError(f"{path} is a folder: give image files") from error
    except PermissionError as error:
        raise QuatcapsError(f"{path} may not be read: give yourself the permission to read it") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        limit = Image.MAX_IMAGE_PIXELS or 0
        raise QuatcapsError(f"{path} is larger than {limit:,} pixels: give a smaller image") from error
    except Exception as error:  # the decoders raise almost anything on damaged files
        raise QuatcapsError(
            f"{path} is not an image that can be read: it is damaged or no PNG, JPEG or similar file; mend or remove it"
        ) from error

"""Pictures with a palette: small files, in which the colours of networks are what they are elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

COLOURS = 256
"""A picture of lines and letters has no more, so that its file is small."""
VIVID, KEPT = 40, 64
"""How far the strongest part of a vivid colour is above its weakest, of 255; and how many of them stay as they are."""
Numbers = np.ndarray[tuple[int, ...], np.dtype[Any]]


def lessened(picture: Image.Image) -> Image.Image:
    """The picture in `COLOURS` colours. The commonest of its vivid ones stay as they are, however small their marks:
    they tell networks apart. All others become those that are nearest to them."""
    counted = picture.getcolors(picture.width * picture.height) or []
    found = [(count, colour) for count, colour in counted if isinstance(colour, tuple)]
    vivid = [each for each in found if max(each[1]) - min(each[1]) > VIVID]
    kept = [colour for _, colour in sorted(vivid, reverse=True)[:KEPT]]
    rest = picture.quantize(COLOURS - len(kept), Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).convert("RGB")
    kept += [colour for _, colour in rest.getcolors(COLOURS) or [] if isinstance(colour, tuple)]
    palette = np.array(kept, dtype=np.int32)
    colours, places = numbered(picture)
    apart = np.square(colours[:, None] - palette).sum(2)
    return with_palette(apart.argmin(1)[places], palette)


def indexed(picture: Image.Image) -> Image.Image:
    """The same picture with a palette of its colours, where these are few: a smaller file, and no other pixel."""
    if picture.getcolors(COLOURS) is None:
        return picture
    colours, places = numbered(picture)
    return with_palette(places, colours)


def numbered(picture: Image.Image) -> tuple[Numbers, Numbers]:
    """(colours, 3): those of a picture; (height, width): which of them each pixel has."""
    pixels = np.asarray(picture).astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.int32)
    found, places = np.unique(pixels, return_inverse=True)
    return np.stack([found >> 16, found >> 8 & 255, found & 255], 1), places.reshape(pixels.shape)


def with_palette(places: Numbers, colours: Numbers) -> Image.Image:
    """A picture whose pixels are numbers of colours."""
    picture = Image.fromarray(places.astype(np.uint8))
    picture.putpalette(colours.flatten().tolist())
    return picture

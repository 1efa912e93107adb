"""Which renderer made a file of images."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

_SOURCES = (
    "airplanes", "animals", "camera", "cars", "catalogue", "humans", "parts", "renderer", "shadows", "shapes", "trucks",
)  # fmt: skip


_MANY_SOURCES = (
    "airplanes", "animals", "cars", "creatures", "dataset", "draws", "humans", "kinds", "light", "loads", "renderer",
    "tiles", "trucks",
)  # fmt: skip


def renderer_version() -> str:
    """Eight hexadecimal digits that change whenever anything that decides over pixels does: a hash of the source."""
    return _hashed(_SOURCES)


@cache
def generator_version() -> str:
    """The same for `toys-many`, which builds on the toys' sources and has its own."""
    return _hashed((*_SOURCES, *(f"many/{name}" for name in _MANY_SOURCES)))


def _hashed(sources: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in sources:
        digest.update(resources.files("quatcaps.data.toys").joinpath(f"{name}.py").read_bytes())
    return digest.hexdigest()[:8]

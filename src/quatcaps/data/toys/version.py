"""Which renderer made a file of images."""

from __future__ import annotations

import hashlib
from importlib import resources

_SOURCES = (
    "airplanes", "animals", "camera", "cars", "catalogue", "humans", "parts", "renderer", "shadows", "shapes", "trucks",
)  # fmt: skip


def renderer_version() -> str:
    """Eight hexadecimal digits that change whenever anything that decides over pixels does: a hash of the source."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update(resources.files("quatcaps.data.toys").joinpath(f"{name}.py").read_bytes())
    return digest.hexdigest()[:8]

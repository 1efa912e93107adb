"""Rendered images on disk: one file per set, trusted only if it is whole and was made by this very renderer."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from quatcaps.files import explained, make_folder, new_file

_SOURCES = (
    "airplanes", "animals", "camera", "cars", "catalogue", "humans", "parts", "renderer", "shadows", "shapes", "trucks",
)  # fmt: skip


def renderer_version() -> str:
    """Eight hexadecimal digits that change whenever anything that decides over pixels does: a hash of the source."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update(resources.files("quatcaps.data.toys").joinpath(f"{name}.py").read_bytes())
    return digest.hexdigest()[:8]


def check_writable(folder: Path) -> None:
    """Makes the folder if need be; an error, before anything is rendered, if files cannot be written there."""
    make_folder(folder)
    with explained(f"write to the cache folder {folder}"), tempfile.TemporaryFile(dir=folder):
        pass


def read(path: Path, contents: Mapping[str, object], shape: tuple[int, ...]) -> Tensor | None:
    """The images stored at `path`, or None if there are none, or others, or they are damaged.

    contents: what the file must say it holds; shape: of the uint8 images.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("contents") != _described(contents) or list(file.keys()) != ["images"]:
                return None
            images: Tensor = file.get_tensor("images").clone()
    except (OSError, safetensors.SafetensorError):
        return None
    if images.shape != shape or header.get("sha256") != _digest(images):
        return None
    return images


def write(path: Path, contents: Mapping[str, object], images: Tensor) -> None:
    """Stores uint8 images so that `path` holds either all of them or what it held before."""
    header = {"contents": _described(contents), "sha256": _digest(images)}
    data = safetensors.torch.save({"images": images}, metadata=header)
    with new_file(path) as temporary:
        temporary.write_bytes(data)


def _described(contents: Mapping[str, object]) -> str:
    return json.dumps(contents, sort_keys=True)


def _digest(images: Tensor) -> str:
    return hashlib.sha256(images.contiguous().numpy().data).hexdigest()

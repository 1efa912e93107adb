"""Images on disk as the library keeps them: safetensors, trusted only if whole and what was asked for."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
from torch import Tensor

from quatcaps.files import explained, make_folder, new_file
from quatcaps.tensors import save_tensors


class Stored(NamedTuple):
    """What a file holds. The tensors lie in the file: pixels are read when they are used."""

    tensors: dict[str, Tensor]
    notes: dict[str, Any]


def check_writable(folder: Path) -> None:
    """Makes the folder if need be; an error, before any work is done, if files cannot be written there."""
    make_folder(folder)
    with explained(f"write to the data folder {folder}"), tempfile.TemporaryFile(dir=folder):
        pass


def read(path: Path, contents: Mapping[str, object]) -> Stored | None:
    """What is stored at `path`, or None if there is nothing, or something else, or it is damaged.

    contents: what the file must say it holds.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("contents") != _described(contents):
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        if header.get("sha256") != _digest(tensors):
            return None
        return Stored(tensors, json.loads(header.get("notes", "{}")))
    except (OSError, ValueError, safetensors.SafetensorError):
        return None


def write(
    path: Path, contents: Mapping[str, object], tensors: Mapping[str, Tensor], notes: Mapping[str, object] | None = None
) -> None:
    """Stores tensors so that `path` holds either all of them or what it held before."""
    header = {"contents": _described(contents), "sha256": _digest(tensors), "notes": json.dumps(notes or {})}
    with new_file(path) as temporary:
        save_tensors(temporary, tensors, header)


def _described(contents: Mapping[str, object]) -> str:
    return json.dumps(contents, sort_keys=True)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()

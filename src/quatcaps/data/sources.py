"""The files of a dataset: where they may lie, which are missing, and whether they are what was published."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from quatcaps.data.catalogue import DESCRIPTIONS, Description, File
from quatcaps.data.formats.streams import opened
from quatcaps.data.prepared import UNKNOWN
from quatcaps.data.readers import cifar10
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained

INSIDE = ("", "raw", "{title}/raw", "cifar-10-batches-bin", "cifar-10-batches-py")
"""Folders in a dataset's own where its files may lie; the title's as torchvision makes them."""
STEP = 1 << 20


class Judgement(NamedTuple):
    """What a file's content turned out to be: `published`, the words for a known copy, or UNKNOWN."""

    file: str
    digest: str  # sha256 of its content
    words: str


def find(name: str, place: Path) -> dict[str, Path]:
    """The files of a dataset in a folder, or in its usual subfolders: published name without .gz → path."""
    description = DESCRIPTIONS[name]
    folders = [place / inside.format(title=description.title) for inside in INSIDE]
    found: dict[str, Path] = {}
    for wanted in names_of(name):
        for folder in folders:
            paths = (folder / wanted, folder / f"{wanted}.gz")
            if path := next((path for path in paths if path.is_file()), None):
                found.setdefault(wanted, path)
    return found


def names_of(name: str) -> tuple[str, ...]:
    """Every file that a dataset may be read from, by its published name without .gz."""
    if name == "cifar10":
        return tuple(file for version in cifar10.VERSIONS for file in version)
    return tuple(file.name for file in DESCRIPTIONS[name].files)


def missing(name: str, found: Mapping[str, Path]) -> tuple[File, ...]:
    """What is to be downloaded before a dataset can be read from what was found."""
    description = DESCRIPTIONS[name]
    if name == "cifar10" and any(all(file in found for file in version) for version in cifar10.VERSIONS):
        return ()
    return tuple(file for file in description.downloads if file.name not in found)


def judge(description: Description, contents: Mapping[str, str], found: Mapping[str, Path]) -> list[Judgement]:
    """What the files of a dataset are, from the digests of what was read."""
    known = {file.name: file for file in description.files}
    return [Judgement(name, digest, _words(known[name], digest, found.get(name))) for name, digest in contents.items()]


def _words(file: File, digest: str, path: Path | None) -> str:
    if digest in file.contents:
        return file.contents[digest] or "published"
    if path is not None and (has_digest(path, file.published) or has_digest(path, file.published_content, inside=True)):
        return "published"
    return UNKNOWN


def has_digest(path: Path, digests: tuple[str, ...], *, inside: bool = False) -> bool:
    """Whether a file, or what it holds compressed, has one of some digests (`md5:…`, `sha256:…`)."""
    wanted = dict(digest.split(":", 1) for digest in digests)
    if not wanted:
        return False
    sums = {kind: hashlib.new(kind, usedforsecurity=False) for kind in wanted}
    if inside:
        with opened(path, hashed=False) as reader:
            while piece := reader.some(STEP):
                for kind in sums.values():
                    kind.update(piece)
    else:
        with explained(f"read {path}"), path.open("rb") as file:
            while piece := file.read(STEP):
                for kind in sums.values():
                    kind.update(piece)
    return any(sums[kind].hexdigest() == digest for kind, digest in wanted.items())


def check_known(title: str, judgements: list[Judgement]) -> None:
    """Raises where a file is none that is known."""
    for file, digest, words in judgements:
        if words == UNKNOWN:
            raise QuatcapsError(
                f"{file} of {title} is well formed, but its content (sha256 {digest}) is not what was published: "
                "fetch it again, or take it as it is with quatcaps data prepare --unverified"
            )

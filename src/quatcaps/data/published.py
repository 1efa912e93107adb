"""The published datasets: their files are found or downloaded, verified, and converted once to a prepared dataset."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeGuard

import torch

from quatcaps.data import store
from quatcaps.data.catalogue import DESCRIPTIONS, PUBLISHED, SPLITS, Description, File
from quatcaps.data.download import DownloadError, NoNetworkError, download
from quatcaps.data.formats.reader import opened
from quatcaps.data.imageset import VIEWPOINT_FIELDS, ImageSet, Progress, Stage, check_size, concatenate, digest_of
from quatcaps.data.readers import read_split
from quatcaps.data.store import UNKNOWN, Made, Stored
from quatcaps.errors import QuatcapsError

INSIDE = ("", "raw", "{title}/raw", "cifar-10-batches-bin", "cifar-10-batches-py")
"""Folders in a dataset's own where its files may lie; the title's as torchvision makes them."""
STEP = 1 << 20


class Judgement(NamedTuple):
    """What a file's content turned out to be: `published`, the words for a known copy, or UNKNOWN."""

    file: str
    digest: str  # sha256 of its content
    words: str


# What is prepared


def prepared_path(folder: Path, name: str, size: int) -> Path:
    """Where a dataset lies at one size of its images."""
    return folder / "prepared" / f"{name}-{size}.safetensors"


def described(name: str, size: int) -> dict[str, object]:
    """What a prepared file must say it holds."""
    return {"dataset": name, "size": size, "format": store.FORMAT}


def read_prepared(folder: Path, name: str, size: int) -> Stored | None:
    """A dataset that is prepared already, be it verified or not; None where it must be prepared (again)."""
    earlier = partial(_consistent, name, size)
    stored = store.read_prepared(prepared_path(folder, name, size), described(name, size), earlier)
    if stored is not None:
        stored.notes.setdefault("digest", digest_of_files(stored.notes["files"]))
    return stored


def digest_of_files(files: Sequence[Mapping[str, str]]) -> str:
    """What identifies a dataset: its files' names and the digests of their content."""
    return digest_of(sorted([file["file"], file["digest"]] for file in files))


def verified(stored: Stored) -> bool:
    """Whether prepared data were made from files that are known."""
    return all(file["words"] != UNKNOWN for file in stored.notes["files"])


def is_here(name: str, folder: Path, size: int = 0) -> bool:
    """Whether a dataset can be loaded without a download."""
    size = size or DESCRIPTIONS[name].side
    return read_prepared(folder, name, size) is not None or not missing(name, find(name, folder / name))


def load_published(
    name: str, split: str, folder: Path, size: int, seed: int = 0, stage: Stage | None = None
) -> ImageSet:
    """A split of a published dataset, or `all` of it, whatever the seed; prepared first where it is not.

    Data that were prepared unverified are taken: their `source` says so.
    """
    size = size or DESCRIPTIONS[name].side
    check_size(size, DESCRIPTIONS[name].side)
    stored = read_prepared(folder, name, size) or prepare(name, folder, size=size, stage=stage)
    return store.unpack(stored, split, DESCRIPTIONS[name].title)


def prepare(
    name: str,
    folder: Path,
    *,
    size: int = 0,
    source: Path | None = None,
    offline: bool = False,
    mirrors: Sequence[str] = (),
    unverified: bool = False,
    stage: Stage | None = None,
) -> Stored:
    """The prepared dataset, from the file in `folder` where there is one already.

    size: side of the images, 0 for the published one. source: a folder with the published files, which are read
    whatever is prepared, and prepared again where they differ from it. Without it they are looked for in
    `folder`/`name`, and downloaded to there unless `offline`. mirrors: addresses to try first. Content that is neither
    as published nor a known copy is refused unless `unverified`, also where it is prepared already.
    """
    known = DESCRIPTIONS[name]
    size = size or known.side
    stage = stage or (lambda words: lambda done, total: None)
    check_size(size, known.side)  # before anything is downloaded for it
    path = prepared_path(folder, name, size)
    if source is not None and not source.is_dir():
        raise QuatcapsError(f"{source} is not a folder: give the one that holds the files of {known.title}")

    def acceptable(stored: Stored | None) -> TypeGuard[Stored]:
        return source is None and stored is not None and (unverified or verified(stored))

    if acceptable(stored := read_prepared(folder, name, size)):
        return stored
    with store.alone(path):
        if acceptable(stored := read_prepared(folder, name, size)):
            return stored
        if source is None and stored is not None and missing(name, find(name, folder / name)):
            raise QuatcapsError(
                f"{path} was made from files that are not as published: take it as it is with --unverified, name the "
                "folder that has the published files with --source, or remove it"
            )
        files = gather(name, folder / name, source, offline, mirrors, stage)
        images, judgements = read_splits(name, files, size, stage)
        if not unverified:
            check_known(known.title, judgements)
        noted = [judgement._asdict() for judgement in judgements]
        if stored is not None and stored.notes["files"] == noted:
            return stored
        return store.pack(path, described(name, size), lambda: Made(images, known.counts), {"files": noted})


def _consistent(name: str, size: int, stored: Stored) -> bool:
    """Whether a file of an earlier version has what a dataset must have: its checksum does not cover its notes.

    All of them follow from what is known, except the digests of files of unknown content.
    """
    known, notes = DESCRIPTIONS[name], stored.notes
    count = sum(known.counts.values())
    kinds = {"images": (torch.uint8, (count, known.channels, size, size)), "labels": (torch.int64, (count,))}
    if name == "smallnorb":
        kinds |= {f"info/{field}": (torch.int64, (count,)) for field in VIEWPOINT_FIELDS}
    files = {file.name: file for file in known.files}
    return (
        {key: (tensor.dtype, tuple(tensor.shape)) for key, tensor in stored.tensors.items()} == kinds
        and notes.keys() == {"files", "classes", "counts"}
        and notes["classes"] == list(known.classes)
        and notes["counts"] == known.counts
        and [file["file"] for file in notes["files"]] == [each for split in SPLITS for each in known.names(split)]
        and all(_possible(files[file["file"]], **file) for file in notes["files"])
    )


def _possible(known: File, file: str, digest: str, words: str) -> bool:
    if digest in known.contents:
        return words == known.contents[digest]
    unknown = (UNKNOWN, PUBLISHED) if known.published_content else (UNKNOWN,)
    return words in unknown and re.fullmatch("[0-9a-f]{64}", digest) is not None


# Finding


def find(name: str, place: Path) -> dict[str, Path]:
    """The files of a dataset in a folder, or in its usual subfolders: published name without .gz → path."""
    known = DESCRIPTIONS[name]
    folders = [place / inside.format(title=known.title) for inside in INSIDE]
    found: dict[str, Path] = {}
    for wanted in (*(file.name for file in known.files), *(each for form in known.forms for each in form)):
        paths = (folder / file for folder in folders for file in (wanted, f"{wanted}.gz"))
        if path := next((path for path in paths if path.is_file()), None):
            found[wanted] = path
    return found


def missing(name: str, found: Mapping[str, Path]) -> tuple[File, ...]:
    """What is to be downloaded before a dataset can be read from what was found."""
    known = DESCRIPTIONS[name]
    if any(all(file in found for file in form) for form in known.forms):
        return ()
    return tuple(file for file in known.downloads if file.name not in found)


def gather(
    name: str, folder: Path, source: Path | None, offline: bool, mirrors: Sequence[str], stage: Stage
) -> dict[str, Path]:
    """The dataset's files, downloaded where they are missing."""
    known = DESCRIPTIONS[name]
    places = [folder] if source is None else [source, source / name]
    found = max((find(name, place) for place in places), key=len)
    wanted = missing(name, found)
    if wanted and (offline or source is not None):
        raise QuatcapsError(by_hand(known, wanted, source or folder, "they are not there"))
    for file in wanted:
        progress = partial(_in_mebibytes, stage(f"downloading {file.download_name}, MiB"))
        check = partial(check_download, name, file)
        try:
            found[file.name] = download(file, folder, check=check, mirrors=mirrors, progress=progress)
        except NoNetworkError as error:
            left = [other for other in wanted if other.name not in find(name, folder)]
            raise DownloadError(by_hand(known, left, folder, "no server can be reached")) from error
    return found


def by_hand(known: Description, files: Sequence[File], folder: Path, reason: str) -> str:
    """What to fetch, how large it is, and where to put it."""
    listed = ", ".join(f"{file.download_name} ({file.size:,} bytes)" for file in files)
    return (
        f"{known.title} needs {listed}, and {reason}: put them into {folder} (from {known.homepage}), or name the "
        "folder that has them with quatcaps data prepare --source; the rendered toys need no files: --dataset toys"
    )


# Verifying and converting


def read_splits(name: str, files: Mapping[str, Path], size: int, stage: Stage) -> tuple[ImageSet, list[Judgement]]:
    """All images, the training images first, and what their files turned out to be."""
    title, sets, judgements = DESCRIPTIONS[name].title, [], []
    for split in SPLITS:
        images, contents = read_split(name, split, files, size, stage(f"reading the {split} images of {title}"))
        sets.append(images)
        judgements += judge(name, contents, files)
    digest = digest_of_files([judgement._asdict() for judgement in judgements])
    return replace(concatenate(sets, title), digest=digest), judgements


def judge(name: str, contents: Mapping[str, str], found: Mapping[str, Path]) -> list[Judgement]:
    """What the files of a dataset are, from the digests of what was read, or else from those of the files found."""
    judgements = []
    for file in DESCRIPTIONS[name].files:
        if file.name in contents:
            digest, path = contents[file.name], found.get(file.name)
            words = file.contents.get(digest, UNKNOWN)
            if words == UNKNOWN and path is not None:
                whole = has_digest(path, file.published) or has_digest(path, file.published_content, inside=True)
                words = PUBLISHED if whole else UNKNOWN
            judgements.append(Judgement(file.name, digest, words))
    return judgements


def has_digest(path: Path, digest: str, *, inside: bool = False) -> bool:
    """Whether a file, or what it holds compressed, has a digest (`md5:…`, `sha256:…`); none has an empty one."""
    kind, _, value = digest.partition(":")
    if not kind:
        return False
    found = hashlib.new(kind, usedforsecurity=False)
    with opened(path, hashed=False, inflate=inside) as reader:
        while piece := reader.some(STEP):
            found.update(piece)
    return found.hexdigest() == value


def check_known(title: str, judgements: list[Judgement]) -> None:
    """Raises where a file is none that is known."""
    for file, digest, words in judgements:
        if words == UNKNOWN:
            raise QuatcapsError(
                f"{file} of {title} is well formed, but its content (sha256 {digest}) is not what was published: "
                "fetch it again, or take it as it is with quatcaps data prepare --unverified"
            )


def check_download(name: str, file: File, path: Path) -> None:
    """Raises where a downloaded file does not hold the published data, however it was packed."""
    if has_digest(path, file.published):
        return
    known = DESCRIPTIONS[name]
    contents: dict[str, str] = {}
    for split in SPLITS:
        if not file.split or known.names(split) == (file.name,):  # all of a split, to be read as one
            contents |= read_split(name, split, {file.name: path}, known.side)[1]
    if not contents:
        with opened(path) as reader:
            reader.skip(file.content_size)
            reader.end()
            contents[file.name] = reader.digest
    check_known(known.title, judge(name, contents, {file.name: path}))


def _in_mebibytes(progress: Progress, done: int, total: int) -> None:
    progress(done >> 20, total >> 20)

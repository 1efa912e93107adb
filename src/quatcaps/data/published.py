"""The published datasets: their files are found or downloaded, verified, and converted once to a prepared dataset."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from quatcaps.data import store
from quatcaps.data.catalogue import DESCRIPTIONS, Description, File
from quatcaps.data.download import DownloadError, NoNetworkError, download
from quatcaps.data.formats.reader import opened
from quatcaps.data.imageset import VIEWPOINT_FIELDS, ImageSet, concatenate, digest_of
from quatcaps.data.readers import READERS, Cifar10
from quatcaps.data.shrink import check_size
from quatcaps.data.store import UNKNOWN, Made, Stored
from quatcaps.errors import QuatcapsError

Progress = Callable[[int, int], None]
Stage = Callable[[str], Progress]
"""Called with what is being done; gives what to call with what is done of it and what there is to do."""

SPLITS = ("train", "test")
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


def load_published(name: str, split: str, folder: Path, size: int, stage: Stage | None = None) -> ImageSet:
    """A split of a published dataset, or `all` of it; prepared first where it is not.

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
    title, size = DESCRIPTIONS[name].title, size or DESCRIPTIONS[name].side
    check_size(size, DESCRIPTIONS[name].side)  # before anything is downloaded for it
    stage = stage or _silent
    path = prepared_path(folder, name, size)

    def acceptable(stored: Stored | None) -> bool:
        return source is None and stored is not None and (unverified or verified(stored))

    if source is not None and not source.is_dir():
        raise QuatcapsError(f"{source} is not a folder: give the one that holds the files of {title}")
    stored = read_prepared(folder, name, size)
    if stored is not None and acceptable(stored):
        return stored
    with store.alone(path):
        stored = read_prepared(folder, name, size)
        if stored is not None and acceptable(stored):
            return stored
        if source is None and stored is not None and missing(name, find(name, folder / name)):
            raise QuatcapsError(
                f"{path} was made from files that are not as published: take it as it is with --unverified, name the "
                "folder that has the published files with --source, or remove it"
            )
        files = gather(name, folder / name, source, offline, mirrors, stage)
        images, judgements = read_splits(name, files, size, stage)
        if not unverified:
            check_known(title, judgements)
        noted = [judgement._asdict() for judgement in judgements]
        if stored is not None and stored.notes["files"] == noted:
            return stored
        store.pack(path, described(name, size), lambda: Made(images, DESCRIPTIONS[name].counts, {"files": noted}))
        return store.read_back(path, described(name, size))


def _consistent(name: str, size: int, stored: Stored) -> bool:
    """Whether a file of an earlier version has what a dataset must have: its checksum does not cover its notes.

    All of them follow from what is known, except the digests of files of unknown content.
    """
    description, notes = DESCRIPTIONS[name], stored.notes
    count = sum(description.counts.values())
    kinds = {"images": (torch.uint8, (count, description.channels, size, size)), "labels": (torch.int64, (count,))}
    if name == "smallnorb":
        kinds |= {f"info/{field}": (torch.int64, (count,)) for field in VIEWPOINT_FIELDS}
    files = {file.name: file for file in description.files}
    expected = [wanted for split in SPLITS for wanted in READERS[name].splits[split]]
    return (
        {key: (tensor.dtype, tuple(tensor.shape)) for key, tensor in stored.tensors.items()} == kinds
        and notes.keys() == {"files", "classes", "counts"}
        and notes["classes"] == list(description.classes)
        and notes["counts"] == description.counts
        and [file["file"] for file in notes["files"]] == expected
        and all(_possible(files[file["file"]], **file) for file in notes["files"])
    )


def _possible(known: File, file: str, digest: str, words: str) -> bool:
    if digest in known.contents:
        return words == (known.contents[digest] or "published")
    unknown = (UNKNOWN, "published") if known.published_content else (UNKNOWN,)
    return words in unknown and re.fullmatch("[0-9a-f]{64}", digest) is not None


# Finding


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
        return tuple(file for version in Cifar10.versions for file in version)
    return tuple(file.name for file in DESCRIPTIONS[name].files)


def missing(name: str, found: Mapping[str, Path]) -> tuple[File, ...]:
    """What is to be downloaded before a dataset can be read from what was found."""
    description = DESCRIPTIONS[name]
    if name == "cifar10" and any(all(file in found for file in version) for version in Cifar10.versions):
        return ()
    return tuple(file for file in description.downloads if file.name not in found)


def gather(
    name: str, folder: Path, source: Path | None, offline: bool, mirrors: Sequence[str], stage: Stage
) -> dict[str, Path]:
    """The dataset's files, downloaded where they are missing."""
    description = DESCRIPTIONS[name]
    places = [folder] if source is None else [source, source / name]
    found = max((find(name, place) for place in places), key=len)
    wanted = missing(name, found)
    if wanted and (offline or source is not None):
        raise QuatcapsError(by_hand(description, wanted, source or folder, "they are not there"))
    for file in wanted:
        progress = stage(f"downloading {file.download_name}, MiB")
        try:
            path = download(
                file,
                folder,
                accept=partial(unlike_published, name, file),
                mirrors=mirrors,
                progress=partial(_in_mebibytes, progress),
            )
        except NoNetworkError as error:
            left = [other for other in wanted if other.name not in find(name, folder)]
            raise DownloadError(by_hand(description, left, folder, "no server can be reached")) from error
        found[file.name] = path
    return found


def by_hand(description: Description, files: Sequence[File], folder: Path, reason: str) -> str:
    """What to fetch, how large it is, and where to put it."""
    listed = ", ".join(f"{file.download_name} ({file.size:,} bytes)" for file in files)
    return (
        f"{description.title} needs {listed}, and {reason}: put them into {folder} (from {description.homepage}), or "
        "name the folder that has them with quatcaps data prepare --source; the rendered toys need no files: "
        "--dataset toys"
    )


# Verifying and converting


def read_splits(name: str, files: Mapping[str, Path], size: int, stage: Stage) -> tuple[ImageSet, list[Judgement]]:
    """All images, the training images first, and what their files turned out to be."""
    description, sets, judgements = DESCRIPTIONS[name], [], []
    for split in SPLITS:
        progress = stage(f"reading the {split} images of {description.title}")
        read = READERS[name](split, files, size, progress)
        sets.append(ImageSet(f"{description.title} {split}", read.images, read.labels, description.classes, read.info))
        judgements += judge(description, read.contents, files)
    digest = digest_of_files([judgement._asdict() for judgement in judgements])
    return replace(concatenate(sets, description.title), digest=digest), judgements


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
    with opened(path, hashed=False, inflate=inside) as reader:
        while piece := reader.some(STEP):
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


def unlike_published(name: str, file: File, path: Path) -> str | None:
    """Why a downloaded file does not hold the published data, or None if it does, however it was packed."""
    try:
        if name in ("smallnorb", "mnist", "fashionmnist"):
            with opened(path) as reader:
                reader.skip(file.content_size)
                reader.end()
                contents = {file.name: reader.digest}
        else:
            reader_of = READERS[name]
            splits = [split for split in SPLITS if name == "cifar10" or file.name in reader_of.splits[split]]
            contents = {}
            for split in splits:
                contents |= reader_of(split, {file.name: path}, DESCRIPTIONS[name].side).contents
        check_known(DESCRIPTIONS[name].title, judge(DESCRIPTIONS[name], contents, {file.name: path}))
    except QuatcapsError as error:
        return str(error)
    return None


def _in_mebibytes(progress: Progress, done: int, total: int) -> None:
    progress(done >> 20, total >> 20)


def _silent(words: str) -> Progress:
    return lambda done, total: None

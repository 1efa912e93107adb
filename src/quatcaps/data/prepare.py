"""A published dataset from its files: found or downloaded, verified, and kept as one compact file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

from quatcaps.data.catalogue import DESCRIPTIONS, Description, File
from quatcaps.data.download import DownloadError, NoNetworkError, download
from quatcaps.data.formats.shrink import check_size
from quatcaps.data.formats.streams import opened
from quatcaps.data.imageset import ImageSet
from quatcaps.data.prepared import described, prepared_once, prepared_path, unpack
from quatcaps.data.readers import Read, cifar10, mnist, smallnorb, svhn
from quatcaps.data.sources import Judgement, check_known, find, judge, missing
from quatcaps.data.store import Stored
from quatcaps.errors import QuatcapsError

Progress = Callable[[int, int], None]
Stage = Callable[[str], Progress]
"""Called with what is being done; gives what to call with what is done of it and what there is to do."""

READERS: dict[str, ModuleType] = {
    "smallnorb": smallnorb,
    "mnist": mnist,
    "fashionmnist": mnist,
    "svhn": svhn,
    "cifar10": cifar10,
}
SPLITS = ("train", "test")


def load_published(name: str, split: str, folder: Path, size: int, stage: Stage | None = None) -> ImageSet:
    """A split of a published dataset, or `all` of it; prepared first where it is not."""
    return unpack(prepare(name, folder, size=size, stage=stage), split, DESCRIPTIONS[name].title)


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

    size: side of the images, 0 for the published one. source: a folder with the published files; without it they are
    looked for in `folder`/`name`, and downloaded to there unless `offline`. mirrors: addresses to try first. Content
    that is neither as published nor a known copy is refused unless `unverified`.
    """
    size = size or DESCRIPTIONS[name].side
    check_size(size, DESCRIPTIONS[name].side)  # before anything is downloaded for it
    stage = stage or _silent

    def make() -> tuple[dict[str, ImageSet], dict[str, object]]:
        files = gather(name, folder / name, source, offline, mirrors, stage)
        sets, judgements = read_splits(name, files, size, stage)
        if not unverified:
            check_known(DESCRIPTIONS[name].title, judgements)
        return sets, {"files": [judgement._asdict() for judgement in judgements]}

    return prepared_once(prepared_path(folder, name, size), described(name, size), make)


def gather(
    name: str, folder: Path, source: Path | None, offline: bool, mirrors: Sequence[str], stage: Stage
) -> dict[str, Path]:
    """The dataset's files, downloaded where they are missing."""
    description = DESCRIPTIONS[name]
    if source is not None and not source.is_dir():
        raise QuatcapsError(f"{source} is not a folder: give the one that holds the files of {description.title}")
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


def unlike_published(name: str, file: File, path: Path) -> str | None:
    """Why a downloaded file does not hold the published data, or None if it does, however it was packed."""
    try:
        if name in ("smallnorb", "mnist", "fashionmnist"):
            with opened(path) as reader:
                reader.skip(file.content_size)
                reader.end()
                contents = {file.name: reader.digest}
        else:
            splits = [split for split in SPLITS if name == "cifar10" or file.name in svhn.SPLITS[split]]
            contents = {}
            for split in splits:
                contents |= READERS[name].read(split, {file.name: path}, size=DESCRIPTIONS[name].side).contents
        check_known(DESCRIPTIONS[name].title, judge(DESCRIPTIONS[name], contents, {file.name: path}))
    except QuatcapsError as error:
        return str(error)
    return None


def read_splits(
    name: str, files: Mapping[str, Path], size: int, stage: Stage
) -> tuple[dict[str, ImageSet], list[Judgement]]:
    """Both splits, and what their files turned out to be."""
    description, sets, judgements = DESCRIPTIONS[name], {}, []
    for split in SPLITS:
        progress = stage(f"reading the {split} images of {description.title}")
        read: Read = READERS[name].read(split, files, size=size, progress=progress)
        sets[split] = ImageSet(f"{description.title} {split}", read.images, read.labels, description.classes, read.info)
        judgements += judge(description, read.contents, files)
    return sets, judgements


def _in_mebibytes(progress: Progress, done: int, total: int) -> None:
    progress(done >> 20, total >> 20)


def _silent(words: str) -> Progress:
    return lambda done, total: None

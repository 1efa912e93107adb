"""`quatcaps data`: what datasets there are, preparing and verifying them, and a look at them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from quatcaps import data
from quatcaps.console import say, stages
from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.data.clean import clean, leftovers
from quatcaps.data.custom import is_path
from quatcaps.data.published import (
    find,
    gather,
    missing,
    prepare,
    prepared_path,
    read_prepared,
    read_splits,
    verified,
)
from quatcaps.data.store import UNKNOWN, VARIABLE, data_folder, provenance, unpack
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.pipelines import PIPELINES

TOYS = {
    "toys": ("24,300", "24,300", "five categories of rendered toys, in smallNORB's convention"),
    "toys-mini": ("900", "900", "a small part of the toys, made in seconds"),
    "toys-many-mini": ("6,000", "2,000", "for CPUs: 40 kinds of toy a category and 10 others for testing"),
    "toys-one-lamp": ("5,000", "2,000", "the demo's: 50 kinds of toy a category and 10 others, under one lamp"),
    "toys-many": ("100,000", "20,000", "100 kinds of toy a category and 20 others for testing; toys-many-300 has 300"),
}
SHOWN = ("train", "test")


def list_command(data_dir: Path | None, console: Console) -> None:
    """A table of all datasets: what they hold, and what of them is here; then their citations."""
    from quatcaps.report.tables import Table

    folder = data_folder(data_dir)
    rows = []
    for name, description in DESCRIPTIONS.items():
        shape = f"{description.channels}×{description.side}×{description.side}"
        megabytes = f"{sum(file.size for file in description.downloads) / 1e6:,.0f}"
        training, test = (f"{count:,}" for count in description.counts.values())
        rows.append((name, training, test, shape, megabytes, presence(name, folder)))
    for name, (training, test, _) in TOYS.items():
        rows.append((name, training, test, "2×48×48", "0", "rendered where needed"))
    columns = ("name", "training", "test", "shape", "MB to fetch", "here")
    console.print(Table("", columns, tuple(rows)).rich(console.width))
    for name, description in DESCRIPTIONS.items():
        say(console, f"{name}: {description.summary}. Licence: {description.licence}.")
        say(console, f"  {description.citation}. {description.homepage}")
    for name, (_, _, summary) in TOYS.items():
        say(console, f"{name}: {summary}. Licence: MIT.")
    say(console, f"The data folder is {folder} (--data-dir, or {VARIABLE}).")
    say(
        console,
        "A custom dataset: the path of a folder of images by class (train/CLASS and test/CLASS, or CLASS), or of "
        "an .npz file.",
    )


def described(data_dir: Path | None) -> dict[str, Any]:
    """The same for programs."""
    folder = data_folder(data_dir)
    published = [
        {
            "name": name,
            "training": description.counts["train"],
            "test": description.counts["test"],
            "shape": [description.channels, description.side, description.side],
            "bytes_to_fetch": sum(file.size for file in description.downloads),
            "here": presence(name, folder),
            "summary": description.summary,
            "licence": description.licence,
            "citation": description.citation,
            "homepage": description.homepage,
        }
        for name, description in DESCRIPTIONS.items()
    ]
    rendered = [
        {
            "name": name,
            "training": int(training.replace(",", "")),
            "test": int(test.replace(",", "")),
            "shape": [2, 48, 48],
            "bytes_to_fetch": 0,
            "here": "rendered where needed",
            "summary": summary,
            "licence": "MIT",
            "citation": None,
            "homepage": None,
        }
        for name, (training, test, summary) in TOYS.items()
    ]
    return {"folder": str(folder), "datasets": published + rendered}


def presence(name: str, folder: Path) -> str:
    """What of a published dataset is in a data folder."""
    sizes = sorted({PIPELINES[name].image_size, DESCRIPTIONS[name].side})
    here = [size for size in sizes if prepared_path(folder, name, size).is_file()]
    if here:
        return f"prepared, {' and '.join(f'{size}×{size}' for size in here)}"
    found = find(name, folder / name)
    if not missing(name, found):
        return "files, not yet prepared"
    return f"some of its files ({len(found)})" if found else "nothing"


def prepare_command(
    names: Sequence[str],
    data_dir: Path | None,
    source: Path | None,
    size: int | None,
    mirrors: Sequence[str],
    console: Console,
    *,
    offline: bool,
    unverified: bool,
) -> None:
    """Finds or downloads, verifies and converts datasets."""
    folder = data_folder(data_dir)
    for name in names:
        dataset = data.find_dataset(name)
        side = dataset.pipeline.image_size if size is None else size
        if source is not None and name not in DESCRIPTIONS:
            raise QuatcapsError(f"{name} has no published files: --source is for {', '.join(DESCRIPTIONS)}")
        with stages(console) as stage:
            if name not in DESCRIPTIONS:
                sets = [dataset.load(split, folder, side, 0, stage) for split in SHOWN]
                say(console, f"{name}: {len(sets[0]):,} training and {len(sets[1]):,} test images, ready in {folder}")
                continue
            stored = prepare(
                name,
                folder,
                size=side,
                source=source,
                offline=offline,
                mirrors=mirrors,
                unverified=unverified,
                stage=stage,
            )
        path = prepared_path(folder, name, side or DESCRIPTIONS[name].side)
        training, test = (unpack(stored, split, name) for split in SHOWN)
        say(
            console,
            f"{name}: {len(training):,} training and {len(test):,} test images of {training.size[0]}×{training.size[1]}"
            f" in {path} ({path.stat().st_size / 1e6:,.0f} MB); {provenance(stored)}",
        )


def verify_command(names: Sequence[str], data_dir: Path | None, source: Path | None, console: Console) -> None:
    """Checks what is here of some datasets, prepared or as published files; an error where something is damaged."""
    folder, faults, checked = data_folder(data_dir), [], 0
    for name in names or list(DESCRIPTIONS):
        if name not in DESCRIPTIONS:
            if name in data.DATASETS or is_path(name):
                raise QuatcapsError(f"{name} has no published files to verify: it is checked whenever it is read")
            raise unknown_name("dataset", name, DESCRIPTIONS)
        paths = sorted(folder.glob(f"prepared/{name}-*.safetensors"))
        for path in paths if source is None else []:
            checked += 1
            faults += verify_prepared(name, path, console)
        place = [folder / name] if source is None else [source, source / name]
        if any(not missing(name, find(name, each)) for each in place):
            checked += 1
            faults += verify_files(name, folder / name, source, console)
        elif names and not paths:
            raise QuatcapsError(f"nothing of {name} is in {source or folder}: quatcaps data prepare {name}")
    if not checked:
        raise QuatcapsError(f"no published dataset is in {source or folder}: quatcaps data prepare NAME")
    if faults:
        raise QuatcapsError(f"{len(faults)} of {checked} are not as they should be: {'; '.join(faults)}")


def verify_prepared(name: str, path: Path, console: Console) -> list[str]:
    """What is wrong with a prepared file."""
    size = path.stem.rsplit("-", 1)[1]
    stored = read_prepared(path.parent.parent, name, int(size)) if size.isdecimal() else None
    if stored is None:
        return [f"{path} is damaged or of another version: remove it, and it is prepared again"]
    say(console, f"{path}: whole; {provenance(stored)}")
    return [] if verified(stored) else [f"{path} was made from unknown content"]


def verify_files(name: str, folder: Path, source: Path | None, console: Console) -> list[str]:
    """What is wrong with a dataset's published files; reads all of them."""
    description = DESCRIPTIONS[name]
    try:
        with stages(console) as stage:
            files = gather(name, folder, source, True, (), stage)
            judgements = read_splits(name, files, description.side, stage)[1]
    except QuatcapsError as error:
        return [str(error)]
    for file, digest, words in judgements:
        say(console, f"{name}/{file}: {words} (sha256 of its content {digest})")
    return [f"{file} of {name} has unknown content" for file, _, words in judgements if words == UNKNOWN]


def clean_command(data_dir: Path | None, console: Console, *, downloads: bool, yes: bool) -> None:
    """Lists what of the data folder can go; removes it with `yes`."""
    folder = data_folder(data_dir)
    items = leftovers(folder, downloads=downloads)
    for item in items:
        say(console, f"{item.size / 1e6:10,.1f} MB  {item.path}: {item.why}")
    if not items:
        say(console, f"nothing in {folder} can go")
        return
    gone = clean(items) if yes else items
    for item in items:
        if item not in gone:
            say(console, f"kept, as another process is at work on it: {item.path}")
    total = f"{sum(item.size for item in gone) / 1e6:,.1f} MB in {len(gone)} files"
    say(console, f"removed {total}" if yes else f"{total} can go: quatcaps data clean --yes removes them")


def show_command(
    name: str, split: str, data_dir: Path | None, size: int | None, output: Path | None, console: Console
) -> list[Path]:
    """Contact sheets: by class, and of one toy by viewpoint where the dataset has viewpoints."""
    if split not in SHOWN:
        raise unknown_name("split", split, SHOWN)
    dataset = data.find_dataset(name)
    side = dataset.pipeline.image_size if size is None else size
    with stages(console) as stage:
        images = dataset.load(split, data_folder(data_dir), side, 0, stage)
    from quatcaps.report.contact import contact_sheet
    from quatcaps.report.viewpoint_sheet import viewpoint_sheet

    place = output or Path(f"{Path(name).stem}-{split}.png")
    place = place if place.suffix else place.with_suffix(".png")
    written = [place]
    contact_sheet(images, place)
    if "azimuth" in images.info and "elevation" in images.info:
        written.append(place.with_name(f"{place.stem}-viewpoints{place.suffix}"))
        viewpoint_sheet(images, written[1])
    counts = ", ".join(
        f"{class_name} {int((images.labels == label).sum()):,}" for label, class_name in enumerate(images.classes)
    )
    say(console, f"{images.name}: {len(images):,} images of {images.size[0]}×{images.size[1]} ({counts})")
    say(console, f"pictures in {' and '.join(map(str, written))}")
    return written

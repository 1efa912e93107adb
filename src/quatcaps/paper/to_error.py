"""The paper's errors in seconds: the recipe `fast`, trained to its end over many seeds and measured once; and the same
on held-out images, with other settings beside it, to choose that recipe by, or another."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from quatcaps.console import say
from quatcaps.errors import QuatcapsError, at_least_one, unknown_name
from quatcaps.files import make_folder
from quatcaps.paper.ablation import FOLDS
from quatcaps.paper.collection import collect
from quatcaps.paper.miniature import quick
from quatcaps.paper.recipes import RECIPES, configured
from quatcaps.paper.record import read_record
from quatcaps.paper.reproduce import tell
from quatcaps.paper.row import Row, whole
from quatcaps.paper.rows import DATASETS, PUBLISHED
from quatcaps.paper.stopping import stopping_after
from quatcaps.paper.work import DONE, Place, Summary, in_order, perform, state
from quatcaps.paper.workers import perform_side_by_side
from quatcaps.settings import read
from quatcaps.training.config import TrainingConfig
from quatcaps.training.loop import RunInterruptedError
from quatcaps.training.processes import check_alone
from quatcaps.training.run import choose_device

NAME, HELD_OUT = "to-error", "to-error-held-out"
"""Of the tables and of the folders of records, on test images and on held-out ones."""
FIXED = ("dataset", "seed", "data_seed", "validation", "test", "device")
"""Settings that are not to be tried: the command has its own word for them."""
FAST = "fast"
"""The recipe whose seconds are told."""
RECIPE = "recipe"
"""The folder of held-out runs that change nothing."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What was asked for. datasets: all of the paper's without any. validation: the part of the training images to be
    measured on instead of the test images, of which nothing is looked at then; tried: settings, each as
    NAME=VALUE,VALUE, of which every combination is trained; recipe: what they are changes to."""

    datasets: tuple[str, ...] = ()
    seeds: int = 10
    validation: float | None = None
    tried: tuple[str, ...] = ()
    recipe: str = FAST
    quick: bool = False
    again: bool = False
    budget: float | None = None
    side_by_side: int = 1
    device: str = "auto"
    data_dir: Path | None = None
    output: Path = Path("bench")
    work: Path | None = None

    def __post_init__(self) -> None:
        for name in self.datasets:
            if name not in DATASETS:
                raise unknown_name("dataset with an error of the paper's", name, DATASETS)
        at_least_one("seeds", self.seeds)
        if self.tried and self.validation is None:
            raise QuatcapsError(
                "--try without --validation: settings are chosen on held-out images; give --validation 0.1"
            )
        if self.recipe not in RECIPES:
            raise unknown_name("recipe", self.recipe, RECIPES)
        if self.recipe != FAST and self.validation is None:
            raise QuatcapsError(
                f"--recipe {self.recipe} without --validation: seconds to the paper's errors are those of {FAST}; give "
                "--validation 0.1 to compare settings on held-out images"
            )
        if self.validation is not None and not 0 < self.validation < 1:
            raise QuatcapsError(f"validation = {self.validation}: the part to hold out must lie between 0 and 1")
        at_least_one("side by side", self.side_by_side)
        if self.side_by_side > 1 and self.validation is None:
            raise QuatcapsError(
                "--side-by-side without --validation: runs that share a GPU slow each other down, and seconds would "
                "mean nothing; train one after the other, or give --validation 0.1"
            )

    @property
    def name(self) -> str:
        """Of the table; a miniature's never stands among real ones."""
        held_out = HELD_OUT if self.recipe == FAST else f"{self.recipe}-held-out"
        return (NAME if self.validation is None else held_out) + ("-quick" if self.quick else "")

    @property
    def place(self) -> Place:
        return Place(self.output, self.work or Path("runs"), self.data_dir, self.device)

    def asked(self) -> dict[str, Any]:
        """What its rows follow from, for a file."""
        return {name: getattr(self, name) for name in ("datasets", "validation", "tried", "recipe", "quick")}

    def rows(self) -> list[Row]:
        """What is trained, by dataset."""
        rows = [
            self.row(dataset, changes)
            for dataset in dict.fromkeys(self.datasets or DATASETS)
            for changes in combinations(self.tried)
        ]
        for row in rows:
            row.config(0)  # which raises where a setting is not to be had
        return [quick(row) for row in rows] if self.quick else rows

    def with_recorded(self, rows: Sequence[Row]) -> list[Row]:
        """These rows, and those of earlier requests of this kind with records in the same folder, by dataset."""
        known = {row.key: row for row in rows}
        for folder in () if self.quick else sorted((self.output / "runs" / self.name).glob("*/" * self.depth)):
            with contextlib.suppress(QuatcapsError):  # what is none of ours
                row = self.row_of(folder)
                known.setdefault(row.key, row)
        return sorted(known.values(), key=lambda row: DATASETS.index(row.dataset))

    @property
    def depth(self) -> int:
        """Of a row's folder in that of all: a folder for a dataset, and one in it for settings that are tried."""
        return 1 if self.validation is None else 2

    def row_of(self, folder: Path) -> Row:
        """The row whose records a folder holds."""
        if self.validation is None:
            return dataclasses.replace(self, datasets=(folder.name,)).rows()[0]
        settings = () if folder.name == RECIPE else tuple(folder.name.split(","))
        part = self.validation
        for path in sorted(folder.glob("seed-*.json")):
            with contextlib.suppress(QuatcapsError):  # a damaged record: who collects them tells of it
                part = read_record(path).config.validation or part
                break
        return dataclasses.replace(self, datasets=(folder.parent.name,), validation=part, tried=settings).rows()[0]

    def row(self, dataset: str, changes: Mapping[str, Any]) -> Row:
        held_out: dict[str, Any] = {}
        if self.validation is not None:
            held_out = {"validation": self.validation, "test": False}
        words = ",".join(f"{name}={value}" for name, value in changes.items())
        return Row(
            key=f"{self.name}/{dataset}" + (f"/{words or RECIPE}" if held_out else ""),
            tables=(self.name,),
            system=words.replace(",", ", ") or self.recipe,
            recipe=self.recipe,
            dataset=dataset,
            configuration=partial(configure, self.recipe, dataset, {**changes, **held_out}),
            published=None if held_out else PUBLISHED[dataset, "qcn"],
            folds=FOLDS if held_out and dataset == "smallnorb" else (),
            timed=self.recipe == FAST,
        )


def configure(recipe: str, dataset: str, changes: Mapping[str, Any]) -> TrainingConfig:
    return whole(configured(recipe, {"dataset": dataset, **changes}))


def combinations(tried: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination of the values of some settings.

    >>> combinations(["epochs=20,30", "precision=bf16"])
    [{'epochs': 20, 'precision': 'bf16'}, {'epochs': 30, 'precision': 'bf16'}]
    >>> combinations(["epochs=20", "epochs=30,20"])
    [{'epochs': 20}, {'epochs': 30}]
    """
    columns: dict[str, list[Any]] = {}
    for name, values in map(values_of, tried):
        columns[name] = list(dict.fromkeys([*columns.get(name, []), *values]))
    return [dict(zip(columns, values, strict=True)) for values in product(*columns.values())]


def values_of(text: str) -> tuple[str, list[Any]]:
    """A setting and its values from NAME=VALUE,VALUE; `-` and `_` in a name are the same. Whether a recipe can have
    them is not asked here."""
    written, equals, rest = text.partition("=")
    name = written.strip().replace("-", "_")
    defaults = {field.name: getattr(TrainingConfig(), field.name) for field in dataclasses.fields(TrainingConfig)}
    known = [each for each, value in defaults.items() if each not in FIXED and isinstance(value, int | float | str)]
    if not equals or not rest.strip():
        raise QuatcapsError(f"--try {text!r}: write it as NAME=VALUE,VALUE, such as epochs=20,30")
    if name not in known:
        raise unknown_name("setting to try", name, known)
    values = list(dict.fromkeys(read(TrainingConfig, {name: value.strip()}, "")[name] for value in rest.split(",")))
    if bad := next((value for value in values if "/" in str(value)), None):
        raise QuatcapsError(f"--try {name}={bad}: a value with / cannot be the name of a folder")
    return name, values


def to_error(request: Request, console: Console) -> None:
    """Trains what is not recorded yet, writes the tables, and says what was done."""
    check_alone(
        "bench --to-error", "start it {count} times without torchrun: processes that share folders share the work"
    )
    rows, place = request.rows(), request.place
    jobs = in_order(rows, range(request.seeds))
    nothing_to_train = not request.again and all(state(job, place) == DONE for job in jobs)
    if not (request.quick or nothing_to_train or choose_device(request.device).type == "cuda"):
        raise QuatcapsError(
            "--to-error on the CPU would take days and say nothing about seconds on a GPU: give --device cuda, or "
            "--quick for a miniature that shows how it works"
        )
    make_folder(place.output / "runs")  # before training, not after
    with stopping_after(request.budget) as deadline:
        if request.side_by_side > 1:
            many, origin = request.side_by_side, {"to_error": request.asked()}
            summary = perform_side_by_side(jobs, place, console, deadline, many, again=request.again, origin=origin)
        else:
            summary = perform(jobs, place, console, deadline, again=request.again)
    finish(request, rows, console, summary)


def finish(request: Request, rows: Sequence[Row], console: Console, summary: Summary) -> None:
    """Writes the tables and the picture; raises where something was not done that should have been."""
    from quatcaps.paper.seconds import write  # matplotlib is slow to import

    entries, problems = collect(request.with_recorded(rows), request.output)
    if any(entry.records for entry in entries):
        table, written = write(request.name, entries, request.output, quick=request.quick)
        console.print(table.rich(console.width))
        say(console, f"tables and pictures: {', '.join(map(str, written))}")
    for line in tell(summary):
        say(console, line)
    if summary.interrupted:
        again = "; --again would begin with seed 0 once more" if request.again else ""
        raise RunInterruptedError(f"interrupted; the same command goes on with the next run{again}")
    problems = list(dict.fromkeys([*(f"{job}: {why}" for job, why in summary.failed.items()), *problems]))
    if problems:
        raise QuatcapsError("not everything could be done:\n  " + "\n  ".join(problems))

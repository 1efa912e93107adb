"""Reproduction: trains what is missing of the paper's tables, and renders them from what there is."""

from __future__ import annotations

import difflib
import fnmatch
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from quatcaps.console import say
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.files import make_folder
from quatcaps.paper.collection import collect
from quatcaps.paper.cost import Times, cost_of
from quatcaps.paper.launch import LAUNCHERS, launch
from quatcaps.paper.miniature import quick
from quatcaps.paper.render import render
from quatcaps.paper.row import Row
from quatcaps.paper.rows import ROWS, TABLES
from quatcaps.paper.stopping import stopping_after
from quatcaps.paper.work import DONE, Job, Place, Summary, in_order, perform, standing, state
from quatcaps.paper.workers import perform_side_by_side
from quatcaps.report.tables import NOTHING, Table
from quatcaps.training.loop import RunInterruptedError
from quatcaps.training.processes import check_alone
from quatcaps.training.run import choose_device

FEW_ROWS = 12
"""Whose keys an error names."""


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line. seeds: which ones; rows: patterns, none for the default ones."""

    tables: tuple[str, ...]
    rows: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    budget: float | None = None
    quick: bool = False
    again: bool = False
    launcher: str = "here"
    launcher_options: dict[str, str] = field(default_factory=dict)
    processes: int = 1
    side_by_side: int = 1
    device: str = "auto"
    data_dir: Path | None = None
    output: Path | None = None
    work: Path | None = None

    def __post_init__(self) -> None:
        for name in self.tables:
            if name not in TABLES:
                raise unknown_name("table", name, TABLES)
        if self.budget is not None and not 0 < self.budget < math.inf:
            raise QuatcapsError(f"budget = {self.budget:g} minutes: it must be above 0 and finite")
        if self.processes < 1:
            raise QuatcapsError(f"processes = {self.processes}: at least 1 is needed")
        if self.launcher not in LAUNCHERS:
            raise unknown_name("launcher", self.launcher, LAUNCHERS)
        if self.side_by_side < 1:
            raise QuatcapsError(f"side by side = {self.side_by_side}: at least 1 is needed")
        if self.side_by_side > 1 and (self.launcher != "here" or self.processes > 1):
            raise QuatcapsError(
                "--side-by-side trains runs on this machine, each by one process: leave out --launcher "
                "and --processes, or leave out --side-by-side"
            )

    @property
    def place(self) -> Place:
        return Place(
            output=self.output or Path("results-quick" if self.quick else "results"),
            work=self.work or Path("runs", "quick" if self.quick else "reproduce"),
            data_dir=self.data_dir,
            device=self.device,
            processes=self.processes,
            rows={key: quick(row) if self.quick else row for key, row in ROWS.items()},
        )

    def all_rows(self) -> list[Row]:
        """Every row of the tables, in their order."""
        rows = [row for row in ROWS.values() if set(row.tables) & set(self.tables)]
        return [quick(row) for row in rows] if self.quick else rows

    def chosen_rows(self) -> list[Row]:
        """Those to train."""
        rows = self.all_rows()
        return select(rows, self.rows) if self.rows else [row for row in rows if row.default]


def seeds_of(count: int | None, exact: Sequence[int]) -> tuple[int, ...]:
    """The seeds that `--seeds` or `--seed` ask for; 0 alone without either."""
    if count is not None and exact:
        raise QuatcapsError("--seeds and --seed: give one of them, how many or which")
    if count is not None and count < 1:
        raise QuatcapsError(f"seeds = {count}: at least 1 is needed")
    if any(seed < 0 for seed in exact):
        raise QuatcapsError(f"seed = {min(exact)}: it must be 0 or more")
    return tuple(dict.fromkeys(exact)) or tuple(range(count or 1))


def select(rows: Sequence[Row], patterns: Sequence[str]) -> list[Row]:
    """The rows whose keys match a shell pattern, or begin with its parts; every pattern must match something. Quiet
    rows are chosen by a pattern that matches no others, such as `smallnorb/*/published`."""
    wanted: set[str] = set()
    for pattern in patterns:
        matching = [row for row in rows if fnmatch.fnmatchcase(row.key, pattern) or row.key.startswith(f"{pattern}/")]
        found = {row.key for row in matching if not row.quiet} or {row.key for row in matching}
        if not found:
            raise QuatcapsError(f"--rows {pattern!r} matches no row of these tables; {nearest(pattern, rows)}")
        wanted |= found
    return [row for row in rows if row.key in wanted]


def nearest(pattern: str, rows: Sequence[Row]) -> str:
    """What there is instead of rows that a pattern does not match: all, where they are few, else those alike."""
    keys = [row.key for row in rows]
    near = keys if len(keys) <= FEW_ROWS else difflib.get_close_matches(pattern, keys, n=FEW_ROWS, cutoff=0.5)
    if near:
        words = "there are" if len(near) == len(keys) else f"of {len(keys)} these are alike"
        return f"{words}:\n  " + "\n  ".join(near)
    return f"their keys begin with {', '.join(dict.fromkeys(key.split('/')[0] for key in keys))}"


def reproduce(request: Request, console: Console, *, only_render: bool = False, only_list: bool = False) -> None:
    """Trains, records, renders; says in the end what was done and what is left."""
    rows, place = request.chosen_rows(), request.place
    jobs = in_order(rows, request.seeds)
    if only_list:
        table, damaged = listing(jobs, place, request.tables)
        console.print(table.rich(console.width))
        for line in (*damaged, *left_over(rows, jobs, place)):
            say(console, line)
        return
    if only_render:
        finish(request, console, Summary())
        return
    if not jobs:
        most = max(row.wanted for row in rows)
        raise QuatcapsError(f"seed {min(request.seeds)}: the rows asked for want no seed beyond {most - 1}")
    make_folder(place.output / "runs")  # before hours of training, not after
    check_alone("reproduce", "give --processes {count}, and each run is trained by torchrun")
    choose_device(request.device)
    if request.launcher != "here":
        launch(request, [job for job in jobs if state(job, place) != DONE], console)
        finish(request, console, Summary())
        return
    with stopping_after(request.budget) as deadline:
        if request.side_by_side > 1:
            many, origin = request.side_by_side, {"quick": request.quick}
            summary = perform_side_by_side(jobs, place, console, deadline, many, again=request.again, origin=origin)
        else:
            summary = perform(jobs, place, console, deadline, again=request.again)
    finish(request, console, summary)


def finish(request: Request, console: Console, summary: Summary) -> None:
    """Renders the tables and raises where something was not done that should have been."""
    output, problems = request.place.output, []
    for name in request.tables:
        made, unreadable = render(name, request.all_rows(), output, quick=request.quick)
        problems += unreadable
        say(console, f"{made.title}: {output / name}.md, .csv and .png")
        for table in made.measured:
            console.print(table.rich(console.width))
    for line in tell(summary):
        say(console, line)
    if summary.interrupted:
        raise RunInterruptedError("interrupted; the same command goes on where this one stopped")
    problems = list(dict.fromkeys([*reasons(summary), *problems]))
    if problems:
        raise QuatcapsError("not everything could be done:\n  " + "\n  ".join(problems))


def tell(summary: Summary) -> list[str]:
    """What was done, in lines."""
    lines = []
    total = sum(map(len, (summary.before, summary.trained, summary.held, summary.failed, summary.left)))
    if total:
        lines.append(
            f"{total} {'run' if total == 1 else 'runs'} asked for: {len(summary.before)} done before, "
            f"{len(summary.trained)} trained now ({summary.seconds / 60:.1f} min), {len(summary.held)} held by other "
            f"processes, {len(summary.failed)} not possible, {len(summary.left)} left"
        )
    if summary.left and not summary.interrupted:
        lines.append(f"the time is up; left: {listed(summary.left)}; the same command goes on")
    if summary.held:
        lines.append(f"held by other processes: {listed(summary.held)}")
    return lines


def reasons(summary: Summary) -> list[str]:
    """Why runs could not be done, a line for each reason."""
    return [
        f"{listed([job for job, other in summary.failed.items() if other == why])}: {why}"
        for why in dict.fromkeys(summary.failed.values())
    ]


def listed(jobs: Sequence[Job], most: int = 4) -> str:
    """The first few of them."""
    more = f" and {len(jobs) - most} more" if len(jobs) > most else ""
    return "; ".join(map(str, jobs[:most])) + more


def left_over(rows: Sequence[Row], jobs: Sequence[Job], place: Place) -> list[str]:
    """What is left of the runs asked for, and of all seeds that their rows want, with how long it will take."""
    entries, _ = collect(ROWS.values(), place.output)
    times, lines = Times(entries), []
    wanted = {Job(row, seed) for row in rows for seed in range(row.wanted)}
    if wanted - set(jobs):
        lines.append(f"all seeds that these rows want: {cost_of(sorted(wanted, key=str), place, times)}")
    return [*lines, f"asked for: {cost_of(jobs, place, times)}"]


def listing(jobs: Sequence[Job], place: Place, tables: Sequence[str]) -> tuple[Table, list[str]]:
    """Every run with its state and how long it took, with its table where several were asked for; and what is wrong
    with those that are damaged."""
    lines, damaged = [], []
    for job in jobs:
        found, minutes, published = standing(job, place), NOTHING, job.row.published
        if found.record is not None and found.state == DONE:
            minutes = f"{found.record.seconds / 60:.1f}"
        if found.problem:
            damaged.append(f"{job} is damaged: {found.problem}; --again trains it again")
        lines.append(
            {
                "row": job.row.key,
                "tables": ", ".join(name for name in job.row.tables if name in tables),
                "seed": str(job.seed),
                "published (%)": NOTHING if published is None else f"{published.error:g}",
                "state": found.state,
                "minutes": minutes,
            }
        )
    left_out = {"tables"} if len(set(tables)) == 1 else set[str]()
    left_out |= {"published (%)"} if all(line["published (%)"] == NOTHING for line in lines) else set()
    names = [name for name in ("row", "tables", "seed", "published (%)", "state", "minutes") if name not in left_out]
    return Table("", tuple(names), tuple(tuple(line[name] for name in names) for line in lines)), damaged

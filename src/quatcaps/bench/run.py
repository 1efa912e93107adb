"""A whole benchmark: everything that a plan asks for, measured, and written to a folder at the end."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import TaskID

from quatcaps.bench.cases import FULL
from quatcaps.bench.cold import empty_caches
from quatcaps.bench.data_path import measure_data
from quatcaps.bench.figures import scaling_figure, throughput_figure
from quatcaps.bench.machine import describe
from quatcaps.bench.measure import measure_networks, measure_scaling
from quatcaps.bench.plan import Plan
from quatcaps.bench.rows import Results, Row, ScalingRow
from quatcaps.bench.steps import SETTINGS
from quatcaps.bench.tables import precision_words
from quatcaps.console import bar, say
from quatcaps.errors import QuatcapsError
from quatcaps.files import make_folder, write_json


def measure_plan(
    plan: Plan,
    device: torch.device,
    machine: str,
    output: Path,
    console: Console,
    *,
    networks: bool = True,
    scaling: bool = False,
    data: bool = False,
) -> Results:
    """Measures what the plan has of networks, single layers and data paths; an error where nothing could be. The folder
    `output` is made before anything is measured, so that what was measured can be kept."""
    plan.check(device)
    cases, sized = plan.cases(device) if networks else [], plan.scaling(device) if scaling else []
    paths = plan.data_cases(device) if data else []
    if paths and plan.precision != FULL:
        raise QuatcapsError(f"--data with --precision {plan.precision}: the data path is measured in float32 alone")
    if not cases and not sized and not paths:
        raise QuatcapsError("nothing to measure: leave out --no-networks, or add --scaling or --data")
    make_folder(output)
    description = describe(machine, device) | {"cold": plan.cold, "precision": plan.precision, "settings": SETTINGS}
    counted = plan.counted(device)
    caches = empty_caches() if plan.cold else nullcontext()
    with caches, BenchProgress(console, len(cases) + len(sized)) as watcher:
        rows = measure_networks(cases, device, counted, watcher, plan.against) if cases else []
        scaling_rows = measure_scaling(sized, device, counted, watcher) if sized else []
        data_rows = measure_data(paths, device, counted, watcher.doing) if paths else []
    results = Results(description, rows, scaling_rows, data_rows)
    if not any(row.timing for row in results.all):
        raise QuatcapsError(f"nothing could be measured; {results.all[0].label}: {results.all[0].note}")
    return results


def write_results(results: Results, folder: Path) -> list[Path]:
    """The numbers as JSON, and pictures of what was measured."""
    written = [folder / "bench.json"]
    write_json(written[0], results.to_json())
    computed = FULL if results.machine["precision"] == FULL else f"convolutions in {results.machine['precision']}"
    title = f"{results.machine['machine']}\ntorch {results.machine['versions']['torch']}, {computed}"
    if any(row.timing for row in results.rows):
        throughput_figure(results.rows, f"{title}{precision_words(results.rows)}", folder / "bench.png")
        written.append(folder / "bench.png")
    if any(row.timing for row in results.scaling):
        scaling_figure(results.scaling, f"{title}{precision_words(results.scaling)}", folder / "scaling.png")
        written.append(folder / "scaling.png")
    return written


class BenchProgress:
    """What is being measured: a bar on a terminal, a line for each row elsewhere."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self.bar = bar(console, "{task.description}")
        self.task: TaskID = self.bar.add_task("starting", total=total)

    def __enter__(self) -> BenchProgress:
        self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.stop()

    def doing(self, words: str) -> None:
        self.bar.update(self.task, description=words)

    def done(self, row: Row | ScalingRow) -> None:
        self.bar.advance(self.task)
        if not self.console.is_terminal:
            subject = row.case if isinstance(row, Row) else row.sized
            found = f"{1000 * row.timing.median:.3f} ms" if row.timing else row.note
            say(self.console, f"{subject.words}: {found}")

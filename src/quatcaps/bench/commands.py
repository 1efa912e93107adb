"""`quatcaps bench`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import TaskID

from quatcaps.bench.cold import empty_caches
from quatcaps.bench.data_path import measure_data
from quatcaps.bench.machine import describe
from quatcaps.bench.measure import measure_networks, measure_scaling
from quatcaps.bench.plan import Plan
from quatcaps.bench.rows import Results, Row, ScalingRow
from quatcaps.bench.steps import SETTINGS
from quatcaps.errors import QuatcapsError
from quatcaps.files import make_folder, write_json
from quatcaps.training.progress import bar
from quatcaps.training.run import choose_device


def bench_command(
    plan: Plan,
    device_name: str,
    machine: str,
    output: Path,
    console: Console,
    *,
    networks: bool,
    scaling: bool,
    data: bool,
) -> None:
    """Measures, prints the tables, and leaves the numbers and the pictures in `output`, all at the end."""
    device = choose_device(device_name)
    plan.check(device)
    cases, sized = plan.cases(device) if networks else [], plan.scaling(device) if scaling else []
    paths = plan.data_cases(device) if data else []
    if not cases and not sized and not paths:
        raise QuatcapsError("nothing to measure: leave out --no-networks, or add --scaling or --data")
    make_folder(output)
    description = describe(machine, device) | {"cold": plan.cold, "settings": SETTINGS}
    counted = plan.counted(device)
    caches = empty_caches() if plan.cold else nullcontext()
    with caches, BenchProgress(console, len(cases) + len(sized)) as watcher:
        rows = measure_networks(cases, device, counted, watcher, plan.against) if cases else []
        scaling_rows = measure_scaling(sized, device, counted, watcher) if sized else []
        data_rows = measure_data(paths, device, counted, watcher.doing) if paths else []
    results = Results(description, rows, scaling_rows, data_rows)
    check_measured(results)
    written = write_results(results, output)
    show_tables(results, console)
    console.print(f"numbers and pictures in {', '.join(map(str, written))}", highlight=False, soft_wrap=True)


def write_results(results: Results, folder: Path) -> list[Path]:
    """The numbers as JSON, and pictures of what was measured."""
    from quatcaps.report.benchmark_figures import scaling_figure, throughput_figure
    from quatcaps.report.benchmarks import precision_words

    written = [folder / "bench.json"]
    write_json(written[0], results.to_json())
    title = f"{results.machine['machine']}\ntorch {results.machine['versions']['torch']}, float32"
    if any(row.timing for row in results.rows):
        throughput_figure(results.rows, f"{title}{precision_words(results.rows)}", folder / "bench.png")
        written.append(folder / "bench.png")
    if any(row.timing for row in results.scaling):
        scaling_figure(results.scaling, f"{title}{precision_words(results.scaling)}", folder / "scaling.png")
        written.append(folder / "scaling.png")
    return written


def show_tables(results: Results, console: Console) -> None:
    from quatcaps.report.benchmarks import benchmark_tables, data_table, remarks, scaling_tables

    tables = [*benchmark_tables(results.rows), *scaling_tables(results.scaling)]
    tables += [data_table(results.data)] if results.data else []
    for table in tables:
        console.print(table.rich(console.width))
    for line in remarks(results):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def check_measured(results: Results) -> None:
    """Raises where nothing at all could be measured."""
    rows = results.all
    if not any(row.timing for row in rows):
        raise QuatcapsError(f"nothing could be measured; {rows[0].label}: {rows[0].note}")


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
            self.console.print(f"{subject.words}: {found}", highlight=False, markup=False, soft_wrap=True)

"""How a run gets on, for a person: a bar on a terminal, a line per epoch everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def bar(console: Console, before: str, after: str = "") -> Progress:
    """A bar with what is done, the time it took and the time left; nothing where nobody watches."""
    return Progress(
        TextColumn(before),
        BarColumn(),
        MofNCompleteColumn(),
        *([TextColumn(after)] if after else []),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class TrainingProgress:
    """Draws what `Trainer` reports."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = bar(console, "epoch {task.fields[epoch]}", "loss {task.fields[loss]}  error {task.fields[error]}")
        self.task = self.bar.add_task("training", total=None, epoch="–", loss="–", error="–")

    def __enter__(self) -> TrainingProgress:
        self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.stop()

    def step(self, step: int, steps: int, epoch: int, loss: float, error: float) -> None:
        self.bar.update(
            self.task, total=steps, completed=step, epoch=epoch + 1, loss=f"{loss:.4f}", error=f"{100 * error:.1f}%"
        )

    def epoch(self, epoch: int, epochs: int, loss: float, error: float, measured: dict[str, float]) -> None:
        errors = "  ".join(f"{name} {100 * found:5.2f}%" for name, found in {"training": error, **measured}.items())
        width = len(str(epochs))
        self.console.print(
            f"epoch {epoch + 1:>{width}}/{epochs}  loss {loss:.4f}  error: {errors}", highlight=False, soft_wrap=True
        )


@contextmanager
def stages(console: Console) -> Iterator[Callable[[str], Counter]]:
    """Bars for work in several stages: called with what is being done, gives what to report it to."""
    with bar(console, "{task.description}") as drawn:
        yield lambda doing: Counter(drawn, doing)


@contextmanager
def counting(console: Console, doing: str) -> Iterator[Counter]:
    """A bar for work that reports (done, total); off a terminal, one line when it begins."""
    with bar(console, doing) as drawn:
        yield Counter(drawn, doing)


class Counter:
    """Called with what is done and what there is to do."""

    def __init__(self, bar: Progress, doing: str) -> None:
        self.bar, self.doing = bar, doing
        self.task: int | None = None

    def __call__(self, done: int, total: int) -> None:
        if self.task is None:
            self.task = self.bar.add_task(self.doing, total=total)
            if not self.bar.console.is_terminal:
                self.bar.console.print(f"{self.doing}: {total:,}", highlight=False)
        self.bar.update(self.task, completed=done, total=total)  # type: ignore[arg-type]

"""What people read on a terminal: plain lines, and bars for long work.

Words come from paths, class names and files, and are printed as they are: brackets are not rich's markup, characters
that the terminal's encoding lacks become `?`, and control characters become visible, so that no name moves a cursor.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def standard_output() -> Console:
    """The terminal, or wherever standard output goes; a character that its encoding lacks is no error."""
    forgive(sys.stdout)
    return Console()


def standard_error() -> Console:
    """The same for what is said beside the output of a program."""
    forgive(sys.stderr)
    return Console(stderr=True)


def forgive(stream: object) -> None:
    """Lets a stream replace what its encoding lacks."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


def say(console: Console, words: str) -> None:
    """A line, or several; never folded, so that paths can be copied."""
    console.print(printable(words), highlight=False, markup=False, soft_wrap=True)


def printable(words: str) -> str:
    r"""The words with control characters made visible; line ends stay.

    >>> printable("a\x1b[31mred\n")
    'a\\x1b[31mred\n'
    """
    return "".join(letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1] for letter in words)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Shows each of Python's warnings in one printable line, without the line of source that it came from."""

    def line(message: Warning | str, *place: object, **more: object) -> str:
        return f"warning: {printable(str(message))}\n"

    before = warnings.formatwarning
    warnings.formatwarning = line
    try:
        yield
    finally:
        warnings.formatwarning = before


def bar(console: Console, before: str, after: str = "") -> Progress:
    """A bar with what is done, the time it took and the time left; nothing where nobody watches."""
    return Progress(
        TextColumn(before, markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        *([TextColumn(after, markup=False)] if after else []),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def stages(console: Console) -> Iterator[Callable[[str], Counter]]:
    """Bars for work in several stages: called with what is being done, gives what to report it to."""
    with bar(console, "{task.description}") as drawn:
        yield lambda doing: Counter(drawn, doing)


@contextmanager
def counting(console: Console, doing: str) -> Iterator[Counter]:
    """A bar for work that reports (done, total); off a terminal, one line when it begins."""
    with bar(console, "{task.description}") as drawn:
        yield Counter(drawn, doing)


class Counter:
    """Called with what is done and what there is to do."""

    def __init__(self, bar: Progress, doing: str) -> None:
        self.bar, self.doing = bar, printable(doing)
        self.task: int | None = None

    def __call__(self, done: int, total: int) -> None:
        if self.task is None:
            self.task = self.bar.add_task(self.doing, total=total)
            if not self.bar.console.is_terminal:
                say(self.bar.console, f"{self.doing}: {total:,}")
        self.bar.update(self.task, completed=done, total=total)  # type: ignore[arg-type]

"""The one table printer: a table of text, for the terminal, Markdown, CSV and HTML."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from quatcaps.console import printable
from quatcaps.errors import QuatcapsError
from quatcaps.training.measure import Evaluation, Rate

if TYPE_CHECKING:
    from rich.table import Table as RichTable
else:
    RichTable = Any  # rich is imported by whoever prints with it

NOTHING = "–"
"""The cell of a number that does not exist."""
MANY_CLASSES = 20
"""The most classes that a confusion matrix has cells for; of more, the pairs that are confused most often are told."""

_NUMBER = re.compile(r"[+−-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?")


@dataclass(frozen=True)
class Table:
    """A titled table whose cells are ready to print; the first column names the row.

    >>> print(Table("Errors", ("network", "error (%)"), (("qcn", "2.10"),)).markdown())
    **Errors**
    <BLANKLINE>
    | network | error (%) |
    | :--- | ---: |
    | qcn | 2.10 |
    <BLANKLINE>
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.columns):
                raise QuatcapsError(
                    f"row {number} of the table {self.title!r} has {len(row)} cells: "
                    f"give one for each of its {len(self.columns)} columns"
                )

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers and nothing else."""
        columns = [[row[index] for row in self.rows] for index in range(len(self.columns))]
        return tuple(
            any(is_number(cell) for cell in cells) and all(is_number(cell) or cell == NOTHING for cell in cells)
            for cells in columns
        )

    def rich(self, width: int) -> RichTable:
        """For `rich.console.Console.print` on so many columns of characters; names that look like rich's markup are
        printed as they are, control characters visibly."""
        from rich import box
        from rich.table import Table as Printed
        from rich.text import Text

        shown = self.printable()
        title = Text(shown.title, style="bold") if shown.title else None
        printed = Printed(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
        room = width - 2 * len(self.columns)  # two spaces belong to each column
        for column, numeric, fitted in zip(shown.columns, shown.numeric, shown.widths(room), strict=True):
            justify: Literal["left", "right"] = "right" if numeric else "left"
            printed.add_column(Text(column), justify=justify, overflow="fold", width=fitted)
        for row in shown.rows:
            printed.add_row(*map(Text, row))
        return printed

    def printable(self) -> Table:
        """The same table without a character that a terminal would obey."""
        rows = tuple(tuple(map(printable, row)) for row in self.rows)
        return Table(printable(self.title), tuple(map(printable, self.columns)), rows)

    def widths(self, room: int) -> list[int]:
        """Of the columns, in characters, of `room` in all. Where there is little, the names of columns are broken
        between words first, then cells; then words are, those of the columns' names first."""
        cells = [[row[index] for row in self.rows] for index in range(len(self.columns))]
        whole_cells = [longest(column) for column in cells]
        cell_words = [longest(" ".join(column).split()) for column in cells]
        name_words = [longest(name.split()) for name in self.columns]
        names = [longest([name]) for name in self.columns]
        stages = (
            [max(pair) for pair in zip(whole_cells, names, strict=True)],
            [max(pair) for pair in zip(whole_cells, name_words, strict=True)],
            [max(pair) for pair in zip(cell_words, name_words, strict=True)],
            cell_words,
            [1] * len(cells),
        )
        for upper, lower in pairwise(stages):
            if sum(lower) <= room:
                return narrowed(list(upper), lower, room)
        return list(stages[-1])

    def markdown(self) -> str:
        """A table in GitHub's Markdown under its title in bold."""
        rules = ("---:" if numeric else ":---" for numeric in self.numeric)
        lines = [
            " | ".join(cells)
            for cells in (map(markdown_text, self.columns), rules, *(map(markdown_text, row) for row in self.rows))
        ]
        title = f"**{markdown_text(self.title)}**\n\n" if self.title else ""
        return title + "".join(f"| {line} |\n" for line in lines)

    def csv(self) -> str:
        """The columns' names and the rows, numbers as programs read them: no separators between thousands."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_plain(cell) for cell in row] for row in self.rows)
        return text.getvalue()

    def html(self) -> str:
        """A `<table>` with its title as the caption, everything escaped; cells of numbers have the class `number`."""
        kinds = [' class="number"' if numeric else "" for numeric in self.numeric]
        caption = f"<caption>{escape(self.title)}</caption>\n" if self.title else ""
        head = "".join(
            f'<th scope="col"{kind}>{escape(column)}</th>' for column, kind in zip(self.columns, kinds, strict=True)
        )
        body = "".join(f"<tr>{''.join(_html_cells(row, kinds))}</tr>\n" for row in self.rows)
        return f"<table>\n{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def longest(texts: Sequence[str]) -> int:
    """The cells of a terminal that the widest text takes, at least 1."""
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=0) or 1


def narrowed(widths: list[int], least: Sequence[int], room: int) -> list[int]:
    """The widths, the widest made narrower until all are in `room`, none below its least."""
    while sum(widths) > room:
        _, index = max((width, index) for index, width in enumerate(widths) if width > least[index])
        widths[index] -= 1
    return widths


def is_number(cell: str) -> bool:
    """Whether a cell is a number as these tables write them."""
    return _NUMBER.fullmatch(cell) is not None


def evaluation_tables(evaluation: Evaluation) -> tuple[Table, ...]:
    """Error by class and in total, the confusion matrix (of more than `MANY_CLASSES` the pairs that are confused most
    often), and error by azimuth and by elevation where known."""
    tables = (
        _error_by_class(evaluation),
        _confusion(evaluation) if len(evaluation.classes) <= MANY_CLASSES else _confused_pairs(evaluation),
        _error_by_angle(evaluation, "azimuth", evaluation.by_azimuth),
        _error_by_angle(evaluation, "elevation", evaluation.by_elevation),
    )
    return tuple(table for table in tables if table.rows)


def percent(rate: Rate | None) -> str:
    """An error in % to two places."""
    return NOTHING if rate is None else f"{rate.percent:.2f}"


def markdown_text(text: str) -> str:
    """Text on one line that Markdown shows as it is, also inside a table."""
    return re.sub(r"([\\|*_`\[])", r"\\\1", " ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;")


def _error_by_class(evaluation: Evaluation) -> Table:
    named = [*zip(evaluation.classes, evaluation.by_class, strict=True), ("all classes", evaluation.total)]
    return Table(
        f"{evaluation.name}: error by class",
        ("class", "images", "errors", "error (%)"),
        tuple((name, *_counts(rate)) for name, rate in named),
    )


def _confusion(evaluation: Evaluation) -> Table:
    return Table(
        f"{evaluation.name}: images of each class (rows) by the class that was named (columns)",
        ("class shown", *evaluation.classes),
        tuple(
            (name, *(f"{count:,}" for count in counts))
            for name, counts in zip(evaluation.classes, evaluation.confusion, strict=True)
            if any(counts)
        ),
    )


def confused_pairs(evaluation: Evaluation, most: int = MANY_CLASSES) -> list[tuple[int, int, int]]:
    """The class shown, another that was named, and for how many images; those of most images first."""
    pairs = [
        (shown, named, count)
        for shown, row in enumerate(evaluation.confusion)
        for named, count in enumerate(row)
        if count and shown != named
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[:2]))[:most]


def _confused_pairs(evaluation: Evaluation) -> Table:
    names, sizes = evaluation.classes, [sum(row) for row in evaluation.confusion]
    return Table(
        f"{evaluation.name}: the classes that are confused most often",
        ("class shown", "class named", "images", "of the class shown (%)"),
        tuple(
            (names[shown], names[named], f"{count:,}", f"{100 * count / sizes[shown]:.2f}")
            for shown, named, count in confused_pairs(evaluation)
        ),
    )


def _error_by_angle(evaluation: Evaluation, field: str, rates: Mapping[int, Rate]) -> Table:
    return Table(
        f"{evaluation.name}: error by {field}",
        (f"{field} (°)", "images", "errors", "error (%)"),
        tuple((str(angle), *_counts(rates[angle])) for angle in sorted(rates)),
    )


def _counts(rate: Rate | None) -> tuple[str, str, str]:
    return ("0", "0", NOTHING) if rate is None else (f"{rate.images:,}", f"{rate.errors:,}", percent(rate))


def _html_cells(row: tuple[str, ...], kinds: list[str]) -> list[str]:
    cells = [f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)]
    if row:
        cells[0] = f'<th scope="row"{kinds[0]}>{escape(row[0])}</th>'
    return cells


def _plain(cell: str) -> str:
    if cell == NOTHING:
        return ""
    return cell.replace(",", "").replace("−", "-") if is_number(cell) else cell

from __future__ import annotations

import csv
import io
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from quatcaps.errors import QuatcapsError
from quatcaps.report.tables import MANY_CLASSES, Table, evaluation_tables, is_number
from quatcaps.training.measure import Evaluation, Rate

NASTY = Table("a|b <i>", ("name", "count"), (("[red]x|y*\\", "1,234"), ('<script>"&', "–"), ("two\nlines", "−5")))


def test_markdown_escapes_what_would_break_the_table() -> None:
    title, blank, head, rule, first, second, third = NASTY.markdown().splitlines()
    assert title == r"**a\|b &lt;i>**"
    assert blank == ""
    assert head == "| name | count |"
    assert rule == "| :--- | ---: |"
    assert first == r"| \[red]x\|y\*\\ | 1,234 |"
    assert second == '| &lt;script>"&amp; | – |'
    assert third == "| two lines | −5 |"


def test_csv_has_plain_numbers_and_survives_a_round_trip() -> None:
    assert list(csv.reader(io.StringIO(NASTY.csv()))) == [
        ["name", "count"],
        ["[red]x|y*\\", "1234"],
        ['<script>"&', ""],
        ["two\nlines", "-5"],
    ]


def test_html_shows_every_cell_as_text_and_marks_numbers() -> None:
    tags: list[str] = []
    texts: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag + ("#" if ("class", "number") in attrs else ""))

        def handle_data(self, data: str) -> None:
            texts.append(data)

    Reader().feed(NASTY.html())
    assert [text for text in texts if text.strip()] == [
        NASTY.title,
        *NASTY.columns,
        *(c for row in NASTY.rows for c in row),
    ]
    assert set(tags) == {"table", "caption", "thead", "tbody", "tr", "th", "th#", "td#"}
    assert tags.count("td#") == 3


def test_rich_prints_names_that_look_like_markup_and_aligns_numbers_right() -> None:
    console = Console(file=io.StringIO(), width=60, record=True)
    console.print(NASTY.rich(60))
    text = console.export_text()
    assert "[red]x|y*\\" in text
    ends = [line.rstrip().rfind(end) + len(end) for line in text.splitlines() for end in ("1,234", "−5") if end in line]
    assert len(ends) == 2
    assert ends[0] == ends[1]
    assert [column.justify for column in NASTY.rich(60).columns] == ["left", "right"]


def printed(table: Table, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(table.rich(width))
    return console.export_text().splitlines()


def test_rich_keeps_the_words_of_rows_and_all_digits_where_there_is_little_room() -> None:
    table = Table("T", ("class", *(f"column {index}" for index in range(9))), (("four-legged animal", *["123"] * 9),))
    lines = printed(table, 70)
    assert max(map(len, lines)) <= 70
    (row,) = [line for line in lines if "four-legged" in line]
    assert row.count("123") == 9
    assert any("animal" in line for line in lines)


def test_long_names_of_rows_break_between_words_before_a_number_does() -> None:
    words = "fewer capsules, on a coarser grid behind deeper branches, and more words still"
    table = Table("", ("settings", "parameters", "published error (%)"), ((words, "4,253,349", "17.45 ± 0.76 (3)"),))
    lines = printed(table, 50)
    assert max(map(len, lines)) <= 50
    text = " ".join(" ".join(lines).split())
    assert "4,253,349 17.45 ± 0.76 (3)" in text
    assert all(word in text for word in words.split())


def test_names_of_wide_characters_have_room() -> None:
    table = Table("", ("類別", "error (%)"), (("四足動物", "2.10"), ("car", "1.05")))
    (row,) = [line for line in printed(table, 80) if "2.10" in line]
    assert "四足動物" in row


@pytest.mark.parametrize(
    ("room", "widths"),
    [
        (99, [14, 7, 16]),  # nothing is broken
        (35, [14, 7, 14]),  # the last name, between its words
        (27, [14, 7, 6]),
        (24, [11, 7, 6]),  # the first cell, between its words
        (21, [10, 7, 4]),
        (19, [10, 5, 4]),  # the second name, within its word
        (17, [9, 4, 4]),  # the first cell, within a word
        (3, [1, 1, 1]),
        (0, [1, 1, 1]),
    ],
)
def test_widths_of_columns(room: int, widths: list[int]) -> None:
    table = Table("", ("row", "numbers", "a very long name"), (("qcn something-", "1234", "a word"),))
    assert table.widths(room) == widths


@pytest.mark.parametrize("cell", ["0", "12", "1,234", "1,234,567.89", "-3.5", "−2", "+1.0"])
def test_numbers(cell: str) -> None:
    assert is_number(cell)


@pytest.mark.parametrize("cell", ["", "1,23", "12 px", "1.", "–", "v1", "48×48", "300°"])
def test_what_is_no_number(cell: str) -> None:
    assert not is_number(cell)


def test_a_column_is_numeric_only_if_all_its_cells_are() -> None:
    assert Table("", ("a", "b", "c"), (("1", "1", "–"), ("x", "–", "–"))).numeric == (False, True, False)
    assert Table("", ("a",), ()).numeric == (False,)


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(QuatcapsError, match="row 2 of the table 'T' has 1 cells"):
        Table("T", ("a", "b"), (("1", "2"), ("3",)))


def test_evaluation_tables_hold_the_numbers_of_the_evaluation(evaluation: Evaluation) -> None:
    by_class, confusion, by_azimuth, by_elevation = evaluation_tables(evaluation)
    *classes, total = by_class.rows
    assert total == ("all classes", "1,620", str(evaluation.total.errors), f"{evaluation.total.percent:.2f}")
    for row, name, rate in zip(classes, evaluation.classes, evaluation.by_class, strict=True):
        assert rate is not None
        assert row == (name, "324", str(rate.errors), f"{rate.percent:.2f}")
    assert [[int(cell) for cell in row[1:]] for row in confusion.rows] == [list(row) for row in evaluation.confusion]
    assert confusion.columns[1:] == tuple(row[0] for row in confusion.rows) == evaluation.classes
    assert [int(row[0]) for row in by_azimuth.rows] == list(range(0, 360, 20))
    assert [int(row[2]) for row in by_azimuth.rows] == [evaluation.by_azimuth[a].errors for a in range(0, 360, 20)]
    assert [int(row[0]) for row in by_elevation.rows] == list(range(30, 75, 5))


def test_tables_without_data_are_left_out_and_classes_without_images_say_so(evaluation: Evaluation) -> None:
    bare = replace(evaluation, by_azimuth={}, by_elevation={}, by_class=(None, *evaluation.by_class[1:]))
    by_class, confusion = evaluation_tables(bare)
    assert by_class.rows[0] == ("four-legged animal", "0", "0", "–")
    assert "named" in confusion.title


def test_of_many_classes_the_most_confused_pairs_are_told(of_many_classes: Evaluation) -> None:
    """A matrix would have 22,500 cells."""
    by_class, pairs = evaluation_tables(of_many_classes)
    assert len(by_class.rows) == 151
    assert pairs.columns == ("class shown", "class named", "images", "of the class shown (%)")
    assert len(pairs.rows) == MANY_CLASSES
    assert pairs.rows[0] == ("kind 3 of a thing", "kind 100 of a thing", "9", "45.00")
    assert pairs.rows[1] == ("kind 6 of a thing", "kind 7 of a thing", "6", "30.00")
    assert pairs.rows[2] == ("kind 13 of a thing", "kind 14 of a thing", "6", "30.00")


def test_without_confusion_no_pair_is_told(of_many_classes: Evaluation) -> None:
    diagonal = tuple(tuple(20 * (shown == named) for named in range(150)) for shown in range(150))
    assert [table.title for table in evaluation_tables(replace(of_many_classes, confusion=diagonal))] == [
        "many test: error by class"
    ]


@pytest.mark.parametrize(("classes", "cells"), [(MANY_CLASSES, MANY_CLASSES + 1), (MANY_CLASSES + 1, 4)])
def test_the_matrix_has_a_column_for_each_class_while_there_are_few(classes: int, cells: int) -> None:
    counts = tuple(tuple(1 for _ in range(classes)) for _ in range(classes))
    rate = Rate(classes - 1, classes)
    names = tuple(map(str, range(classes)))
    evaluation = Evaluation("test", names, rate, (rate,) * classes, counts, {}, {})
    assert len(evaluation_tables(evaluation)[1].columns) == cells

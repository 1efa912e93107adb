"""What README.md shows runs as it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from quatcaps.report.tables import NOTHING

RESULTS = Path(__file__).parents[1] / "results"
README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_python_blocks_run() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert names["found"].name == "1"
    assert f"{sum(p.numel() for p in names['network'].parameters()):,} parameters" in README


def test_it_is_read_in_minutes() -> None:
    assert len(README.split()) < 1100


def test_linked_files_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    for link in links:
        assert (Path(__file__).parents[1] / link).exists(), link


def test_the_map_for_contributors_names_every_room_on_a_line_of_its_own() -> None:
    root = Path(__file__).parents[1]
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = text[text.index("    src/quatcaps/\n") : text.index("\n\nTo add\n")]
    named = [re.match(r" {6}((?:[\w.]+/? )+)", line) for line in block.splitlines()]
    shown = {name.rstrip("/") for line in named if line for name in line[1].split()}
    paths = [path for path in (root / "src/quatcaps").iterdir() if not path.name.startswith(("_", "py.typed"))]
    assert {path.name for path in paths} - shown == set()


def test_the_demo_has_the_figures_of_its_results() -> None:
    results = json.loads((RESULTS / "demo" / "results.json").read_text(encoding="utf-8"))
    shown = {row[0].strip("`"): row[1:] for row in rows(README[: README.index("## Results")])}
    for network in results["networks"]:
        test, poses = network["test"]["error"], network["test"]["poses"]
        assert shown[network["name"]] == [
            f"{network['parameters']:,}",
            f"{100 * test['errors'] / test['images']:.2f}",
            f"{poses['median_degrees']:.1f}",
            f"{100 * poses['within_30']:.1f}",
            f"{network['training_seconds'] / 60:.1f}",
        ]


def rows(text: str) -> list[list[str]]:
    """The cells of Markdown tables, by line."""
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split(" | ")] for line in lines]


PAGE = (Path(__file__).parents[1] / "docs" / "results.md").read_text(encoding="utf-8")


def results_section() -> list[str]:
    """What docs/results.md shows of Table II, of Table I, and of Table III."""
    return re.split(r"Table I(?:II)?, ", PAGE)


def test_the_readme_shows_rows_of_table_2() -> None:
    shown = rows(README[README.index("## Results") : README.index("New viewpoints are")])
    assert len(shown) >= 4
    assert [row for row in shown if row not in rows(results_section()[0])] == []


SHOWN_EXPERIMENTS = (
    "Azimuth, strict",
    "Elevation, strict",
    "Whole smallNORB",
    "Azimuth, pooled",
    "Elevation, pooled",
)
ARROWS = {"QCN is worse": " ↓", "QCN is better": " ↑"}


def test_the_readme_shows_evidence_of_new_viewpoints() -> None:
    _, *shown = rows(README[README.index("New viewpoints are") :])
    tables = (RESULTS / "evidence.md").read_text(encoding="utf-8").replace("\\", "").split("\n**")
    assert len(shown) == 5
    for place, experiment in enumerate(SHOWN_EXPERIMENTS, start=1):
        (table,) = (each for each in tables if each.startswith(f"{experiment}: error at the end"))
        heads, *found = rows(table)
        column = heads.index("novel (%)" if "novel (%)" in heads else "test (%)")
        by_system = {row[0]: row for row in found}
        for system, *cells in shown:
            row = by_system[system]
            assert row[2] == "10"
            assert cells[place - 1] == row[column].split(" ")[0] + ARROWS.get(row[-1], ""), (experiment, system)


def test_the_readme_says_who_trails_qcn() -> None:
    """Under both strict protocols, of the systems that have no row of their own."""
    tables = (RESULTS / "evidence.md").read_text(encoding="utf-8").replace("\\", "").split("\n**")
    told = []
    for experiment in ("Azimuth, strict", "Elevation, strict"):
        (table,) = (each for each in tables if each.startswith(f"{experiment}: error at the end"))
        (row,) = (row for row in rows(table) if row[0] == "EM*")
        assert row[-1] == "QCN is better"
        told.append(f"{float(row[4].split(' ')[0]):.1f}")
    assert f"EM* ({' and '.join(told)}%) trail QCN" in README


def test_the_page_of_evidence_shows_pairs_over_both_viewpoints() -> None:
    """A pair in each row; its difference and its chance among all, strict and pooled, or that it was not measured."""
    page = (Path(__file__).parents[1] / "docs" / "evidence.md").read_text(encoding="utf-8")
    shown = rows(page[page.index("| | other toys (strict)") : page.index("### Other toys from novel viewpoints")])[1:]
    text = (RESULTS / "evidence.md").read_text(encoding="utf-8").replace("\\", "")
    table = rows(text[text.index("**Azimuths and elevations together") : text.index("**Errors by toy")])
    found = {(title, f"{first} less {second}"): (cells[0], cells[-1]) for title, first, second, *cells in table}
    assert len(shown) == 8
    for pair, *cells in shown:
        assert tuple(cells) == (*found["Strict", pair], *found.get(("Pooled", pair), (NOTHING, NOTHING)))


def test_the_page_of_evidence_tells_what_was_measured_of_photographs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "evidence.md").read_text(encoding="utf-8")
    told = page[page.index("### Photographs") : page.index("## What is compared")].replace("−", "-")
    text = (RESULTS / "evidence.md").read_text(encoding="utf-8").replace("\\", "").replace("−", "-")
    _, *found = rows(text[text.index("**CIFAR-10: error at the end") : text.index("**Other pairs")])
    assert [row[2] for row in found] == ["5"] * 5
    assert [row[3].split(" ")[0] for row in found if row[3].split(" ")[0] not in told] == []
    ahead = [row for row in found if row[-1] == "QCN is worse"]
    assert [row[0] for row in ahead] == ["ResNet 153K", "ResNet 272K"]
    for row in ahead:
        less, low, high = re.findall(r"-(\d\.\d+)", row[4])
        assert f"{less} points ({high} to {low})" in told or f"{less} ({high} to {low})" in told


@pytest.mark.parametrize(("part", "table"), [(0, "table2"), (2, "table3")])
def test_results_are_those_of_tables_2_and_3(part: int, table: str) -> None:
    shown = rows(results_section()[part])
    rendered = rows((RESULTS / f"{table}.md").read_text(encoding="utf-8"))
    assert len(shown) >= 3
    assert [row for row in shown if row not in rendered] == []


def test_results_are_those_of_table_1() -> None:
    """Column by column: the page has an experiment in each, the table one below the other."""
    experiments, *shown = rows(results_section()[1])
    assert len(shown) >= 4
    parts = re.split(r"\*\*(\w+, \w+) protocol.*\*\*", (RESULTS / "table1.md").read_text(encoding="utf-8"))
    tables = {name.lower(): rows(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    for column, experiment in enumerate(experiments[1:], start=1):
        for name, *cells in shown:
            system, _, source = name.partition(", ")
            source, _, recipe = source.partition(", ")
            recipe = recipe or {"QCN": "best", "CNN": "control"}.get(system, "paper")
            (found,) = (row for row in tables[experiment] if row[:2] == [system, recipe])
            assert cells[column - 1] == found[3 if source == "published" else 4], (experiment, name)

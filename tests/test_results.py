"""What stands in results/ is what its records say, and the records are of the rows as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quatcaps.recipes.tables import ROWS
from quatcaps.reproduction.collection import collect, outdated
from quatcaps.reproduction.render import render

RESULTS = Path(__file__).parents[1] / "results"


def test_records_have_the_settings_of_their_rows() -> None:
    entries, problems = collect(ROWS.values(), RESULTS)
    assert sum(len(entry.records) for entry in entries) == len(list((RESULTS / "runs").rglob("*.json"))) > 0
    assert problems == []
    assert outdated(entries) == []


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "ablation"])
def test_tables_are_rendered_from_the_records(name: str, tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "runs", tmp_path / "runs")
    render(name, list(ROWS.values()), tmp_path)
    for suffix in (".md", ".csv"):
        assert (tmp_path / f"{name}{suffix}").read_text() == (RESULTS / f"{name}{suffix}").read_text(), name

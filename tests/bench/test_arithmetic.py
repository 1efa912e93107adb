"""`benchmarks/arithmetic.py`, whose table the documents have."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import arithmetic
import pytorch_blocks
from quatcaps.errors import QuatcapsError
from quatcaps.layers.fused import trunk
from quatcaps.paper.collection import collect, outdated
from quatcaps.paper.to_error import Request

ROOT = Path(__file__).parents[2]


def test_the_documents_have_the_tables() -> None:
    text = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    for table in arithmetic.tables():
        for cells in table.rows:
            assert "| " + " | ".join(cells) + " |\n" in text


@pytest.mark.parametrize("folder", ["kernels", "pytorch-blocks", "settings"])
def test_records_are_of_the_recipe_as_it_is(folder: str) -> None:
    output = arithmetic.RESULTS / folder
    found, problems = collect(Request(validation=0.1, output=output).with_recorded([]), output)
    assert problems == outdated(found) == []
    assert sum(len(entry.records) for entry in found) == len(list((output / "runs").rglob("seed-*.json"))) > 0


def test_differences_are_those_of_shared_seeds(tmp_path: Path) -> None:
    default = arithmetic.folder_of(*arithmetic.ARITHMETIC[arithmetic.DEFAULT], "cifar10")
    template = arithmetic.RESULTS / default / "seed-0.json"
    record = json.loads(template.read_text(encoding="utf-8"))
    made = {arithmetic.DEFAULT: {0: 10, 1: 20, 2: 30}, "kernels, bf16": {0: 12, 1: 24, 3: 99}}
    for name, errors in made.items():
        folder = tmp_path / arithmetic.folder_of(*arithmetic.ARITHMETIC[name], "cifar10")
        folder.mkdir(parents=True)
        for seed, wrong in errors.items():
            key = "/".join(folder.parts[-3:])
            changed = record | {"key": key, "seed": seed, "final": {"validation": {"errors": wrong, "images": 100}}}
            changed["config"] = record["config"] | {"seed": seed}
            (folder / f"seed-{seed}.json").write_text(json.dumps(changed), encoding="utf-8")
    by_arithmetic, by_settings = arithmetic.tables(tmp_path)
    rows = {cells[1]: cells[2:] for cells in by_arithmetic.rows if cells[0] == "CIFAR-10"}
    assert rows[arithmetic.DEFAULT] == ("3", "20.00", "–")
    assert rows["kernels, bf16"] == ("3", "45.00", "+3.00 ± 1.00")
    assert rows["kernels, float32"] == ("0", "–", "–")
    assert by_settings.rows[0][2:] == rows[arithmetic.DEFAULT]
    assert by_settings.rows[1][2:] == ("0", "–", "–")
    with pytest.raises(QuatcapsError, match="no record of arithmetic: give the folder"):
        arithmetic.tables(tmp_path / "nothing")


def test_no_block_runs_by_kernels_where_pytorchs_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trunk, "can_run", trunk.can_run)  # put back after the test
    monkeypatch.setattr(sys, "argv", ["quatcaps", "--version"])
    with pytest.raises(SystemExit):
        pytorch_blocks.run()
    assert trunk.can_run is pytorch_blocks.never

"""What README.md shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parents[1] / "results"
README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_python_blocks_run() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block.replace("360", "2"), "README.md", "exec"), names)
    assert names["capsules"].poses.shape == (8, 5, 3)
    assert sum(p.numel() for p in names["network"].parameters()) == 187_762
    assert names["Mine"]()(torch.randn(2, 3, 32, 32)).activations.shape == (2, 10)


def test_linked_files_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    for link in links:
        assert (Path(__file__).parents[1] / link).exists(), link


def test_results_are_those_of_the_tables() -> None:
    """Lines of Table II as they were rendered; of Table I, every cell."""
    section = README[README.index("## Results") : README.index("## Weights")]
    second, first = (
        [line for line in part.splitlines() if line.startswith("|") and "---" not in line]
        for part in section.split("Table I, ")
    )
    rendered = {name: (RESULTS / f"{name}.md").read_text(encoding="utf-8") for name in ("table1", "table2")}
    assert len(second) >= 3
    assert [line for line in second if line not in rendered["table2"].splitlines()] == []
    cells = {cell.strip() for line in first[1:] for cell in line.strip("|").split(" | ")[1:]}
    assert len(cells) >= 8
    assert [cell for cell in cells if f"| {cell} |" not in rendered["table1"]] == []

"""What README.md shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

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

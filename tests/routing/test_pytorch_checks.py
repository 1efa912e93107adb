"""PyTorch's own check of operators, and its compiler: networks and routings are one graph."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from quatcaps.routing.native import libraries

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NATIVE = pytest.mark.skipif(
    libraries.problem(torch.float32, 1, 3) is not None, reason=f"native {libraries.problem(torch.float32, 1, 3)}"
)


@pytest.fixture(scope="module")
def said() -> str:
    """What one process says of all checks: its imports take as long as any of them."""
    script = Path(__file__).parent / "pytorch_checks.py"
    return subprocess.run(
        [sys.executable, script, DEVICE], stdout=subprocess.PIPE, text=True, timeout=600, check=True
    ).stdout


@pytest.mark.parametrize(
    "check",
    [
        "operators of triton",
        pytest.param("operators of native", marks=NATIVE),
        pytest.param("one graph of native", marks=NATIVE),
        "one graph of a network on triton",
        pytest.param("one graph of a network on native", marks=NATIVE),
    ],
)
def test_it_holds(check: str, said: str) -> None:
    if DEVICE == "cuda" and check.endswith("on native"):
        pytest.skip("native runs on a CPU")
    assert f"{check}: passed\n" in said, said

"""Every example in a docstring says what happens."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import quatcaps

ROOT = Path(quatcaps.__file__).parent
MODULES = sorted(
    ".".join(("quatcaps", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_say_what_happens(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0

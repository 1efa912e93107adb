from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name", ["quatcaps", "quatcaps.errors", "quatcaps.losses", "quatcaps.layers.capsules", "quatcaps.models"]
)
def test_examples_say_what_happens(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0

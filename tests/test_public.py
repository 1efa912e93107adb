"""What the package shows is what it means to show, and is loaded when it is used."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import quatcaps

ROOMS = ("layers", "models", "poses", "quaternion", "routing", "testing")


def python(code: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(Path(quatcaps.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_dir_shows_the_public_names_and_no_others() -> None:
    assert dir(quatcaps) == sorted(quatcaps.__all__)
    assert {"build", "load", "register_pose", "list_models", *ROOMS} <= set(dir(quatcaps))


@pytest.mark.parametrize("name", quatcaps.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(quatcaps, name) is not None


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_room_says_what_is_public(room: str) -> None:
    module = importlib.import_module(f"quatcaps.{room}")
    assert len(set(module.__all__)) == len(module.__all__) > 0
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_torch_is_loaded_at_first_use() -> None:
    code = "import sys, quatcaps, quatcaps.cli; dir(quatcaps); print('torch' in sys.modules); "
    assert python(code + "quatcaps.layers; print('torch' in sys.modules)").split() == ["False", "True"]

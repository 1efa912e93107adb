"""What is asked of a network before a run, and of all networks for a table, computes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from quatcaps.errors import QuatcapsError
from quatcaps.layers import use_backend
from quatcaps.models import build
from quatcaps.models.operations import multiply_adds
from quatcaps.native.build import COMPILERS
from quatcaps.training.config import TrainingConfig
from quatcaps.training.start import check_network

QUESTIONS = """
from quatcaps.models import MODELS, build
from quatcaps.models.operations import multiply_adds
from quatcaps.training.start import check_network
from quatcaps.training.config import TrainingConfig
for name in MODELS:
    check_network(TrainingConfig(model=name), (32, 32))
for name in ("qcn-small", "vb"):
    assert multiply_adds(build(name, channels=2, classes=5), 2, (32, 32)) > 0
"""
HUGE = 100_000
"""Pixels: one channel of one such image takes 37 GiB."""


def test_no_compiler_is_needed_or_asked(tmp_path: Path) -> None:
    """With compilers that do nothing but note that they were asked."""
    places = {name: tmp_path / name for name in ("XDG_CACHE_HOME", "TMPDIR", "TRITON_CACHE_DIR", "HOME")}
    for place in (*places.values(), tmp_path / "bin"):
        place.mkdir()
    for name in COMPILERS:
        compiler = tmp_path / "bin" / name
        compiler.write_text(f"#!/bin/sh\n: > {tmp_path}/HOME/asked\nexit 1\n")
        compiler.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "TRITON_INTERPRET")}
    environment |= {name: str(place) for name, place in places.items()} | {"PATH": str(tmp_path / "bin")}
    command = [sys.executable, "-W", "error", "-c", QUESTIONS]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert finished.stderr == ""
    assert finished.returncode == 0
    files = [path for place in places.values() for path in place.rglob("*") if not path.is_dir()]
    assert files == []  # nothing was built; PyTorch's compiler, where it is imported, makes an empty folder


def test_no_memory_is_taken() -> None:
    check_network(TrainingConfig(model="cnn-small"), (HUGE, HUGE))
    per_pixel = multiply_adds(build("cnn-small", channels=2, classes=5), 2, (64, 64)) // 64**2
    huge = multiply_adds(build("cnn-small", channels=2, classes=5), 2, (HUGE, HUGE)) // HUGE**2
    assert huge == pytest.approx(per_pixel, rel=0.01)


def test_what_does_not_fit_is_found() -> None:
    with pytest.raises(QuatcapsError, match="input 9×9 is too small"):
        check_network(TrainingConfig(model="qcn"), (9, 9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counting_leaves_the_network_as_it_was(dtype: torch.dtype) -> None:
    network = use_backend(build("qcn-small", channels=2, classes=5, seed=0), "native").to(dtype)
    before = {name: (value.data_ptr(), value.clone()) for name, value in network.state_dict().items()}
    expected = multiply_adds(build("qcn-small", channels=2, classes=5), 2, (32, 32))
    assert multiply_adds(network, 2, (32, 32)) == expected
    assert network.training
    for name, value in network.state_dict().items():
        place, values = before[name]
        assert value.data_ptr() == place
        assert torch.equal(value, values)
    assert not any(module._forward_hooks for module in network.modules())

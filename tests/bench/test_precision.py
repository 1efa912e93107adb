"""How PyTorch and the compilers are set while something is measured, and that they are as before after."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from quatcaps.bench.cold import empty_caches
from quatcaps.bench.machine import flags
from quatcaps.bench.plan import Plan
from quatcaps.bench.precision import TF32, as_training

CUDA = torch.device("cuda")
ON, OFF = TF32(True, True), TF32(False, False)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("tf32", [ON, OFF, TF32(False, True), TF32(True, False)])
def test_tf32_is_as_asked_while_measuring_and_as_before_after(tf32: TF32) -> None:
    before, seen = TF32.now(), []

    def measure() -> None:
        with as_training(tf32):
            seen.extend([TF32.now(), torch.backends.cudnn.deterministic])
            raise StoppedError

    with pytest.raises(StoppedError):
        measure()
    assert seen == [tf32, True]
    assert TF32.now() == before
    assert not torch.backends.cudnn.deterministic


@pytest.mark.parametrize("tf32", [ON, OFF])
def test_the_default_is_as_pytorch_is_set(tf32: TF32) -> None:
    with as_training(tf32):
        assert Plan().cases(CUDA)[0].tf32 == tf32
        assert (flags()["cudnn_allow_tf32"], flags()["matmul_allow_tf32"]) == tf32


def test_a_cold_run_leaves_the_compilers_caches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "mine")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    folders: list[Path] = []

    def measure() -> None:
        with empty_caches():
            folders.append(Path(os.environ["TRITON_CACHE_DIR"]).parent)
            assert list(folders[0].iterdir()) == []
            raise StoppedError

    with pytest.raises(StoppedError):
        measure()
    assert not folders[0].exists()
    assert os.environ["TRITON_CACHE_DIR"] == "mine"
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ

"""Checkpoints that are damaged, foreign or cannot be written."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from quatcaps import files
from quatcaps.errors import QuatcapsError
from quatcaps.models import build
from quatcaps.training import checkpoint
from quatcaps.training.checkpoint import Position


class Parts:
    """What a checkpoint is saved from."""

    def __init__(self, classes: int = 3) -> None:
        self.network: nn.Module = build("qcn-small", channels=2, classes=classes, seed=0)
        self.optimiser = torch.optim.AdamW(self.network.parameters())
        images = torch.randn(2, 2, 28, 28, generator=torch.Generator().manual_seed(0))
        self.network(images).activations.square().sum().backward()
        self.optimiser.step()

    def save(self, folder: Path, position: Position) -> Path:
        return checkpoint.save(folder, self.network, self.optimiser, position)

    def restore(self, path: Path) -> Position:
        return checkpoint.restore(path, self.network, self.optimiser)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return Parts().save(tmp_path, Position(step=7, epoch=1, batch=2, loss_sum=0.1, errors=4, seconds=1.5))


def test_round_trip(saved: Path) -> None:
    before, after = Parts(), Parts()
    with torch.no_grad():
        for parameter in after.network.parameters():
            parameter.zero_()
    assert after.restore(saved) == Position(step=7, epoch=1, batch=2, loss_sum=0.1, errors=4, seconds=1.5)
    for name, tensor in before.network.state_dict().items():
        assert torch.equal(after.network.state_dict()[name], tensor), name
    old, new = before.optimiser.state_dict()["state"], after.optimiser.state_dict()["state"]
    assert old.keys() == new.keys()
    assert all(torch.equal(old[i][key], new[i][key]) for i in old for key in old[i])


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    parts = Parts()
    for step in (1, 2, 100, 20):
        parts.save(tmp_path, Position(step=step))
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == ["step-00000020", "step-00000100"]


@pytest.mark.parametrize("name", ["weights.safetensors", "training.safetensors", "state.json"])
@pytest.mark.parametrize("length", [0, 7, 100])
def test_truncated_file_is_named(saved: Path, name: str, length: int) -> None:
    (saved / name).write_bytes((saved / name).read_bytes()[:length])
    with pytest.raises(QuatcapsError, match=name):
        Parts().restore(saved)


@pytest.mark.parametrize("name", ["weights.safetensors", "training.safetensors", "state.json"])
def test_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(QuatcapsError, match=f"{name}: No such file"):
        Parts().restore(saved)


@pytest.mark.parametrize("name", ["weights.safetensors", "training.safetensors", "state.json"])
def test_foreign_file_is_refused(saved: Path, name: str) -> None:
    (saved / name).write_bytes(b"\x80\x04cos\nsystem\n(S'exit 1'\ntR.")  # a pickle
    with pytest.raises(QuatcapsError, match=name):
        Parts().restore(saved)


@pytest.mark.parametrize("change", [{"step": "7"}, {"extra": 1}, {"format": 99}, {"format": None}])
def test_foreign_state_is_refused(saved: Path, change: dict[str, object]) -> None:
    state = json.loads((saved / "state.json").read_text())
    (saved / "state.json").write_text(json.dumps(state | change))
    with pytest.raises(QuatcapsError):
        Parts().restore(saved)


def test_class_count_that_does_not_fit(saved: Path) -> None:
    with pytest.raises(QuatcapsError, match=r"classify.* has shape \(1, 12, 3\S*\), the network's \(1, 12, 5"):
        checkpoint.load_weights(saved, build("qcn-small", channels=2, classes=5))


def test_weights_of_another_network(saved: Path) -> None:
    with pytest.raises(QuatcapsError, match="does not fit the network: classify"):
        checkpoint.load_weights(saved, build("cnn-small", channels=2, classes=3))


def test_optimiser_state_of_another_network(saved: Path) -> None:
    tensors = safetensors.torch.load_file(saved / "training.safetensors")
    wrong = tensors | {"optimiser/0/exp_avg": torch.zeros(5)}
    safetensors.torch.save_file(wrong, saved / "training.safetensors")
    with pytest.raises(QuatcapsError, match=r"exp_avg of parameter 0 has shape \(5,\), the parameter"):
        Parts().restore(saved)
    safetensors.torch.save_file({"generator": torch.zeros(5)}, saved / "training.safetensors")
    with pytest.raises(QuatcapsError, match="does not fit this run: it holds 'generator'"):
        Parts().restore(saved)
    safetensors.torch.save_file({"optimiser/999/exp_avg": torch.zeros(5)}, saved / "training.safetensors")
    with pytest.raises(QuatcapsError, match="does not fit this run: it holds the state of 1 parameters, not of"):
        Parts().restore(saved)


@pytest.mark.parametrize("failing", ["state.json", "training.safetensors"])
def test_full_disk_leaves_earlier_checkpoints(saved: Path, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = files.flush

    def full(path: Path) -> None:
        if failing in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(path)

    monkeypatch.setattr(files, "flush", full)
    with pytest.raises(QuatcapsError, match="step-00000008: the disk is full: free some space"):
        Parts().save(saved.parent, Position(step=8))
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert Parts().restore(saved).step == 7


def test_safetensors_own_write_error_is_explained(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(OSError, match="No such file"):
        checkpoint.save_tensors(tmp_path / "gone" / "x.safetensors", {"a": torch.zeros(1)})


def test_saving_the_same_step_again_renews_the_position_alone(saved: Path) -> None:
    tensors = {path: path.stat().st_mtime_ns for path in saved.glob("*.safetensors")}
    assert tensors
    assert Parts().save(saved.parent, Position(step=7, epoch=2)) == saved
    assert checkpoint.read_position(saved) == Position(step=7, epoch=2)
    assert {path: path.stat().st_mtime_ns for path in saved.glob("*.safetensors")} == tensors
    assert sorted(path.name for path in saved.iterdir()) == [
        "state.json",
        "training.safetensors",
        "weights.safetensors",
    ]

"""Prepared data: whole, or prepared again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from quatcaps.data import store
from quatcaps.data.imageset import ImageSet
from quatcaps.data.store import Made, pack, read, read_prepared, unpack, write
from quatcaps.errors import QuatcapsError

CONTENTS = {"custom": "00ff", "size": 4, "format": 1}
TENSORS = {
    "images": torch.arange(48, dtype=torch.uint8).view(3, 1, 4, 4),
    "info/azimuth": torch.tensor([0, 2, 34]),
    "labels": torch.tensor([0, 1, 1]),
}
NOTES = {
    "source": "/data/flowers",
    "digest": "ab" * 32,
    "classes": ["aster", "rose"],
    "counts": {"train": 2, "test": 1},
}


def test_every_flipped_bit_of_a_header_is_seen_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write(path, CONTENTS, TENSORS, NOTES)
    whole = path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    harmless = 0
    for bit in range(8 * length):
        place = bit // 8
        with path.open("r+b") as file:  # a byte in its place: many times faster than a new file
            file.seek(max(place - 1, 0))
            file.write(whole[max(place - 1, 0) : place] + bytes([whole[place] ^ 1 << bit % 8]))
        stored = read(path, CONTENTS)
        if stored is not None:
            harmless += 1
            assert stored.notes == NOTES, bit
            assert stored.tensors.keys() == TENSORS.keys(), bit
            for name, tensor in TENSORS.items():
                assert stored.tensors[name].dtype == tensor.dtype, bit
                assert torch.equal(stored.tensors[name], tensor), bit
    assert harmless < length  # white space at most
    path.write_bytes(whole)
    assert read(path, CONTENTS) is not None


def test_what_is_asked_for_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write(path, CONTENTS, TENSORS, NOTES)
    assert read(path, {**CONTENTS, "size": 5}) is None
    assert read(tmp_path / "y.safetensors", CONTENTS) is None
    stored = read_prepared(path, CONTENTS)
    assert stored is not None
    test = unpack(stored, "test", "flowers")
    assert (test.digest, test.classes, test.labels.tolist()) == ("ab" * 32, ("aster", "rose"), [1])
    assert test.source == "read from /data/flowers"
    write(path, CONTENTS, TENSORS, NOTES | {"counts": {"train": 2, "test": 2}})
    assert read_prepared(path, CONTENTS) is None


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_too_little_memory_is_one_line(error: Exception, tmp_path: Path) -> None:
    def make() -> Made:
        raise error

    with pytest.raises(QuatcapsError, match=r"out of memory while x is prepared: give fewer or smaller images"):
        pack(tmp_path / "x.safetensors", CONTENTS, make, {})


def test_other_errors_stay_their_own(tmp_path: Path) -> None:
    def make() -> Made:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        pack(tmp_path / "x.safetensors", CONTENTS, make, {})


def test_packed_images_come_back(noise_images: ImageSet, tmp_path: Path) -> None:
    chosen = noise_images.select(torch.arange(0, 60, 2))
    path = tmp_path / "x.safetensors"
    pack(path, CONTENTS, lambda: Made(chosen, {"all": 30}), {"source": "noise"})
    stored = read_prepared(path, CONTENTS)
    assert stored is not None
    assert torch.equal(unpack(stored, "all", "noise").images, chosen.images)
    assert json.dumps(store.header_of(path), sort_keys=True) == json.dumps(
        {"contents": CONTENTS, "notes": stored.notes}, sort_keys=True
    )

"""Image sets and their viewpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quatcaps import data
from quatcaps.data.imageset import ImageSet, concatenate
from quatcaps.data.splits import hold_out
from quatcaps.data.store import data_folder
from quatcaps.data.viewpoints import degrees, split_viewpoints
from quatcaps.errors import QuatcapsError

IMAGES = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("images", "labels", "info", "words"),
    [
        (IMAGES.float(), torch.zeros(4, dtype=torch.int64), {}, "torch.float32 of shape"),
        (IMAGES[0], torch.zeros(1, dtype=torch.int64), {}, "of shape \\(1, 8, 8\\)"),
        (IMAGES, torch.zeros(3, dtype=torch.int64), {}, "labels of x has shape \\(3,\\): one entry for each of the 4"),
        (IMAGES, torch.zeros(4, dtype=torch.int64), {"azimuth": torch.zeros(2)}, "azimuth of x"),
        (IMAGES, torch.tensor([0, 1, 2, 3]), {}, "run from 0 to 3: with 3 classes they must lie in 0 … 2"),
        (IMAGES, torch.tensor([0, -1, 2, 1]), {}, "run from -1 to 2"),
    ],
)
def test_what_does_not_fit_is_refused(
    images: torch.Tensor, labels: torch.Tensor, info: dict[str, torch.Tensor], words: str
) -> None:
    with pytest.raises(QuatcapsError, match=words):
        ImageSet("x", images, labels, ("a", "b", "c"), info)


def test_select_keeps_rows_together(noise_images: ImageSet) -> None:
    chosen = noise_images.select(torch.tensor([5, 3]))
    assert torch.equal(chosen.images, noise_images.images[[5, 3]])
    assert chosen.info["azimuth"].tolist() == [10, 6]
    assert chosen.labels.tolist() == [2, 0]


def test_concatenate(noise_images: ImageSet) -> None:
    joined = concatenate([noise_images, noise_images.select(torch.tensor([1]))], "both")
    assert len(joined) == 61
    assert joined.info["azimuth"][-1] == 2
    with pytest.raises(QuatcapsError, match="their classes or info differ"):
        concatenate([noise_images, ImageSet("x", IMAGES, torch.zeros(4, dtype=torch.int64), ("a",))], "both")


@pytest.mark.parametrize(
    ("experiment", "familiar", "novel"),
    [
        ("azimuth", {300, 320, 340, 0, 20, 40}, set(range(60, 300, 20))),
        ("elevation", {30, 35, 40}, {45, 50, 55, 60, 65, 70}),
    ],
)
def test_familiar_and_novel_viewpoints(
    experiment: str, familiar: set[int], novel: set[int], noise_images: ImageSet
) -> None:
    parts = split_viewpoints(noise_images, experiment)
    seen = [{degrees(experiment, code) for code in part.info[experiment].tolist()} for part in parts]
    assert seen == [familiar, novel]
    assert sum(map(len, parts)) == len(noise_images)


def test_viewpoints_that_are_not_there(noise_images: ImageSet) -> None:
    with pytest.raises(QuatcapsError, match="unknown viewpoint experiment 'tilt'"):
        split_viewpoints(noise_images, "tilt")
    plain = ImageSet("plain", noise_images.images, noise_images.labels, noise_images.classes)
    with pytest.raises(QuatcapsError, match="plain has no azimuth info"):
        split_viewpoints(plain, "azimuth")


def test_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("QUATCAPS_DATA_DIR", raising=False)
    assert data_folder() == tmp_path / "quatcaps"
    monkeypatch.setenv("QUATCAPS_DATA_DIR", str(tmp_path / "here"))
    assert data_folder() == tmp_path / "here"
    assert data_folder(tmp_path / "there") == tmp_path / "there"


def test_unknown_dataset(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="unknown dataset 'toy': did you mean 'toys'"):
        data.load("toy", "train", folder=tmp_path)


def test_the_digest_is_that_of_the_whole(noise_images: ImageSet) -> None:
    images = replace(noise_images, digest="a" * 64)
    parts = [images.select(torch.arange(5)), images.part(5, 20, "part"), *hold_out(images, 0.2, 0)]
    assert {part.digest for part in parts} == {"a" * 64}
    assert concatenate(parts, "joined").digest == "a" * 64
    other = replace(noise_images, digest="b" * 64)
    joined = concatenate([images, other, images], "joined").digest
    assert joined == concatenate([images, other], "again").digest
    assert joined not in (images.digest, other.digest, concatenate([other, images], "turned").digest)
    assert len(joined) == 64
    assert concatenate([images, noise_images], "one unknown").digest == ""

"""Verifying: the same error passes, another one does not, and missing data are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quatcaps.data.imageset import ImageSet
from quatcaps.data.published import described, prepared_path
from quatcaps.data.store import Made, pack
from quatcaps.training.config import TrainingConfig
from quatcaps.training.measure import Rate
from quatcaps.training.run import Run
from quatcaps.weights.cards import Card, rate_json, read_card
from quatcaps.weights.export import export_run
from quatcaps.weights.verify import Verdict, compare, missing_data, verify

CPU = torch.device("cpu")
PLACE = Path("nowhere")


@pytest.fixture
def source(noise_run: Callable[..., Run], noise_images: ImageSet, tmp_path: Path) -> Path:
    export_run(noise_run(), "a", tmp_path / "out", lambda split: noise_images, CPU)
    return tmp_path / "out" / "a.safetensors"


def change_errors(source: Path, more: int) -> Rate:
    path = source.with_suffix(".json")
    card = read_card(path)
    rate = Rate(card.error["test"].errors + more, card.error["test"].images)
    path.write_text(json.dumps(card.to_json() | {"error": {"test": rate_json(rate)}}))
    return rate


def test_as_on_the_card(source: Path, noise_images: ImageSet) -> None:
    verdict = verify(source, PLACE, lambda config, split: noise_images, CPU)
    assert verdict.faults == []
    assert verdict.found[0].startswith("the file is the card's")
    assert verdict.found[1].endswith("of 60) on cpu, as on the card")


def test_another_error_is_a_fault(source: Path, noise_images: ImageSet) -> None:
    rate = change_errors(source, -1)
    verdict = verify(source, PLACE, lambda config, split: noise_images, CPU)
    assert len(verdict.faults) == 1
    assert f"({rate.errors} of 60) on cpu by the card: more than rounding, 0.02% of the images" in verdict.faults[0]


def test_other_images_are_a_fault(source: Path, noise_images: ImageSet) -> None:
    fewer = noise_images.part(0, 59, "fewer")
    verdict = verify(source, PLACE, lambda config, split: fewer, CPU)
    assert "not the same images" in verdict.faults[0]


def test_error_is_not_held_against_images_from_elsewhere(source: Path, noise_images: ImageSet) -> None:
    change_errors(source, -1)
    copied = replace(noise_images, source="a copy")
    verdict = verify(source, PLACE, lambda config, split: copied, CPU)
    assert verdict.faults == []
    assert "these are not the card's images: a copy here" in verdict.found[1]
    assert "as on the card" not in verdict.found[2]


def test_digests_say_which_images_are_the_cards(source: Path, noise_images: ImageSet) -> None:
    """Wherever they came from; where a card or the images have none, the provenance decides."""
    value = json.loads(source.with_suffix(".json").read_text())
    value["data"]["digests"] = {"training": "a" * 64, "test": "a" * 64}
    source.with_suffix(".json").write_text(json.dumps(value))
    assert read_card(source.with_suffix(".json")).to_json() == value
    change_errors(source, -1)
    moved = replace(noise_images, source="a copy", digest="a" * 64)
    assert len(verify(source, PLACE, lambda config, split: moved, CPU).faults) == 1
    other = replace(noise_images, digest="b" * 64)
    verdict = verify(source, PLACE, lambda config, split: other, CPU)
    assert verdict.faults == []
    assert "these are not the card's images: the card was made with other training images" in verdict.found[1]
    assert "digest aaaaaaaaaaaa" in verdict.found[1]
    assert "digest bbbbbbbbbbbb" in verdict.found[1]
    unknown = verify(source, PLACE, lambda config, split: noise_images, CPU)
    assert len(unknown.faults) == 1


def test_images_that_do_not_fit_are_a_fault(source: Path, noise_images: ImageSet) -> None:
    other = replace(noise_images, classes=("x", "y", "z", "w"))
    verdict = verify(source, PLACE, lambda config, split: other, CPU)
    assert "the error cannot be measured: noise has 2 channels and 4 classes" in verdict.faults[0]


def test_damaged_file_is_a_fault_and_nothing_is_measured(source: Path) -> None:
    source.write_bytes(source.read_bytes()[:-1])
    verdict = verify(source, PLACE, lambda config, split: pytest.fail("measured"), CPU)
    assert verdict.found == []
    assert "it is truncated" in verdict.faults[0]


@pytest.mark.parametrize(
    ("errors", "faults", "words"),
    [(100, 0, "as on the card"), (102, 0, "within rounding"), (98, 0, "within rounding"), (103, 1, ""), (97, 1, "")],
)
def test_rounding(errors: int, faults: int, words: str, source: Path) -> None:
    """Of 10,000 images two may differ."""
    card: Card = replace(
        read_card(source.with_suffix(".json")), images={"test": 10_000}, error={"test": Rate(100, 10_000)}
    )
    verdict = Verdict("a")
    compare(card, {"test": Rate(errors, 10_000)}, None, "cuda", verdict)
    assert len(verdict.faults) == faults
    assert words in " ".join(verdict.found)


def test_set_that_was_not_measured_is_a_fault(source: Path) -> None:
    card = read_card(source.with_suffix(".json"))
    verdict = Verdict("a")
    compare(card, {}, None, "cpu", verdict)
    assert "test: nothing on cpu" in verdict.faults[0]


def test_missing_data_are_named(tmp_path: Path) -> None:
    remedy = missing_data(TrainingConfig(dataset="smallnorb"), tmp_path)
    assert remedy is not None
    assert remedy.endswith(f"quatcaps data prepare smallnorb --data-dir {tmp_path}")
    sized = missing_data(TrainingConfig(dataset="smallnorb", image_size=96), tmp_path)
    assert "smallnorb --size 96" in (sized or "")
    assert "there is no folder or file" in (missing_data(TrainingConfig(dataset=f"{tmp_path}/x"), tmp_path) or "")
    assert missing_data(TrainingConfig(dataset=str(tmp_path)), tmp_path) is None
    assert missing_data(TrainingConfig(dataset="toys"), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_prepared_data_are_there(tmp_path: Path) -> None:
    images = ImageSet("x", torch.zeros(2, 1, 28, 28, dtype=torch.uint8), torch.tensor([0, 1]), ("0", "1"))
    path = prepared_path(tmp_path, "mnist", 28)
    path.parent.mkdir()
    pack(path, described("mnist", 28), lambda: Made(images, {"train": 1, "test": 1}), {"files": []})
    config = TrainingConfig(dataset="mnist", image_size=28, crop=28)
    assert missing_data(config, tmp_path) is None
    path.write_bytes(path.read_bytes()[:-1])
    assert missing_data(config, tmp_path) is not None

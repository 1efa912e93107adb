"""Cards: written, read back, and refused where anything in them is not as it should be."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quatcaps.errors import QuatcapsError
from quatcaps.training.config import TrainingConfig
from quatcaps.training.measure import Rate
from quatcaps.weights.cards import Card, read_card
from quatcaps.weights.page import facts_of

CARD = Card(
    name="qcn-x",
    config=TrainingConfig(dataset="smallnorb", model_settings={"iterations": 3}),
    channels=2,
    classes=("cat", "dog"),
    size=(48, 48),
    parameters=1000,
    images={"training": 50, "test": 30},
    provenance="content as published",
    error={"test": Rate(7, 30)},
    measured_on="cpu",
    chosen="after the last of 300 epochs, seed 0",
    command="quatcaps train",
    seconds=1.5,
    machine="abacus",
    versions={"torch": "2"},
    sha256="0" * 64,
    bytes=4321,
    licence="MIT",
)
PATHS = [
    *((name,) for name in CARD.to_json()),
    ("data", "dataset"),
    ("data", "provenance"),
    ("data", "images"),
    ("data", "images", "test"),
    ("error", "test"),
    ("error", "test", "percent"),
    ("error", "test", "errors"),
    ("error", "test", "images"),
    ("training", "seconds"),
    ("training", "versions"),
    ("file", "sha256"),
    ("file", "bytes"),
    ("classes", 0),
    ("size", 1),
    ("configuration", "crop"),
    ("configuration", "model_settings"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    values = copy.deepcopy(CARD.to_json())
    place: Any = values
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return values


def test_a_card_comes_back_as_it_was() -> None:
    values = json.loads(json.dumps(CARD.to_json()))
    assert Card.from_json(values) == CARD
    assert values["error"]["test"] == {"percent": 23.3333, "errors": 7, "images": 30}
    assert (values["model"], values["data"]["dataset"]) == ("qcn", "smallnorb")


@pytest.mark.parametrize("name", CARD.to_json())
def test_every_entry_is_needed(name: str) -> None:
    values = CARD.to_json()
    del values[name]
    with pytest.raises(QuatcapsError, match=f"a card has no entry '{name}'"):
        Card.from_json(values)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("secret",), 1, "a card has a foreign entry 'secret'"),
        (("file", "md5"), "x", "file has a foreign entry 'md5'"),
        (("format",), 2, "format 2: this version reads format 1"),
        (("channels",), True, "channels of a card is True: it must be a whole number"),
        (("channels",), 0, "channels = 0: a whole number from 1"),
        (("classes",), ["one"], "classes = 1: a whole number from 2"),
        (("classes", 0), 3, "classes holds 3: each entry must be text"),
        (("size",), [48], "size has 1 numbers"),
        (("size", 1), 0, "width = 0: a whole number from 1"),
        (("name",), "../x", "name '../x'"),
        (("model",), "cnn", "model is 'cnn': by the other entries it must be 'qcn'"),
        (("data", "dataset"), "toys", "data.dataset is 'toys': by the other entries it must be 'smallnorb'"),
        (("data", "images", "test"), 31, "7 errors of 30 images in test: its data have 31"),
        (("error", "test", "percent"), 1.0, "error.test.percent is 1.0: by the other entries it must be 23.3333"),
        (("error", "test", "errors"), 31, "31 errors of 30 images"),
        (("error",), {}, "error: at least one set"),
        (("file", "sha256"), "0" * 63, "64 digits"),
        (("file", "bytes"), 1_000_000, "1,000,000 bytes: from 1 up to, but without, 1,000,000"),
        (("training", "seconds"), float("nan"), "seconds nan"),
        (("measured_on",), "abacus", "measured on 'abacus': cpu or cuda"),
        (("configuration", "modle"), "qcn", "unknown setting 'modle'"),
        (("configuration", "batch"), "many", "batch = 'many'"),
    ],
)
def test_what_is_wrong_is_named(path: tuple[Any, ...], value: Any, words: str) -> None:
    with pytest.raises(QuatcapsError, match=words):
        Card.from_json(changed(path, value))


@given(st.sampled_from(PATHS), JSON)
def test_no_entry_gets_past_with_another_error(path: tuple[Any, ...], value: Any) -> None:
    try:
        card = Card.from_json(changed(path, value))
    except QuatcapsError:
        return
    assert Card.from_json(card.to_json()) == card


def test_a_card_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "qcn-x.json"
    path.write_text(json.dumps(CARD.to_json()))
    assert read_card(path) == CARD
    path.write_text(json.dumps(changed(("size",), [])))
    with pytest.raises(QuatcapsError, match=r"qcn-x\.json is not a card of weights: size has 0 numbers"):
        read_card(path)
    path.write_text(json.dumps(changed(("name",), "qcn-y")))
    with pytest.raises(QuatcapsError, match="is the card of qcn-y: rename it"):
        read_card(path)
    path.write_text("[1]")
    with pytest.raises(QuatcapsError, match="is not a card of weights: it holds a list"):
        read_card(path)


def test_images_are_prepared_as_for_testing() -> None:
    images = torch.randint(256, (3, 2, 48, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    seen = CARD.prepare(images)
    middle = images[:, :, 8:40, 8:40].float()
    wanted = (middle - middle.mean((2, 3), keepdim=True)) / middle.std((2, 3), keepdim=True, correction=0)
    assert torch.allclose(seen, wanted, atol=1e-3)
    for bad in (images[:, :1], images[0], images.float(), images[..., :32]):
        with pytest.raises(QuatcapsError, match=r"qcn-x takes uint8 of shape \(N, 2, 48, 48\)"):
            CARD.prepare(bad)
        with pytest.raises(QuatcapsError, match=r"qcn-x takes uint8 of shape \(N, 2, 48, 48\)"):
            CARD.views(bad)


def test_views_are_what_the_error_was_measured_by() -> None:
    images = torch.randint(256, (3, 2, 48, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    (middle,) = CARD.views(images)
    assert torch.equal(middle, CARD.prepare(images))
    assert "windows" not in facts_of(CARD)["images"]
    several = replace(CARD, config=CARD.config.changed({"test_crops": 3}))
    views = several.views(images)
    assert [tuple(view.shape) for view in views] == [(3, 2, 32, 32)] * 9
    assert torch.equal(views[4], middle)
    assert torch.equal(several.prepare(images), middle)
    assert facts_of(several)["images"].endswith("32×32, the error by the mean activations of 3×3 windows")
    mirrored = replace(CARD, config=CARD.config.changed({"flip": True, "test_mirrored": True}))
    assert facts_of(mirrored)["images"].endswith("by the mean activations of the image and its mirror image")

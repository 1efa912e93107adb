"""Shapes have names: published weights fit a network that is built from its model's name alone, and what says `qcn`
with settings, as cards and runs have said it, is still read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import quatcaps
from quatcaps import weights
from quatcaps.data.imageset import ImageSet
from quatcaps.models import MODELS, Model, register_model, shape_of
from quatcaps.models.variants import DEEP
from quatcaps.training.run import Run
from quatcaps.weights import zoo
from quatcaps.weights.export import export_run

CARDS = {name: weights.card(name) for name in weights.names()}
DEEP_NAMES = [name for name, card in CARDS.items() if card.model == "qcn-deep"]


def test_published_weights_are_of_three_shapes() -> None:
    assert {card.model for card in CARDS.values()} == {"qcn-deep", "qcn-rotor-deep", "qcn-rotor"}
    assert all(card.config.model_settings == {} for card in CARDS.values())


@pytest.mark.parametrize("name", CARDS)
def test_a_model_of_the_cards_name_takes_the_weights(name: str) -> None:
    card = CARDS[name]
    network = quatcaps.build(card.model, channels=card.channels, classes=len(card.classes))
    network.load_state_dict(load_file(zoo.PUBLISHED / f"{name}.safetensors"))
    wanted = quatcaps.load(name).state_dict()
    assert all(torch.equal(tensor, wanted[key]) for key, tensor in network.state_dict().items())


@pytest.mark.parametrize("name", DEEP_NAMES[:2])
def test_cards_of_qcn_with_settings_are_read(name: str, tmp_path: Path) -> None:
    values: dict[str, Any] = CARDS[name].to_json()
    values["model"] = values["configuration"]["model"] = "qcn"
    values["configuration"]["model_settings"] = DEEP
    (tmp_path / f"{name}.json").write_text(json.dumps(values))
    shutil.copy(zoo.PUBLISHED / f"{name}.safetensors", tmp_path)
    before, now = quatcaps.load(tmp_path / f"{name}.safetensors"), quatcaps.load(name)
    assert before.settings == now.settings
    assert all(torch.equal(tensor, now.state_dict()[key]) for key, tensor in before.state_dict().items())


def test_runs_of_qcn_with_settings_become_cards_of_the_shape(
    noise_run: Callable[..., Run], noise_images: ImageSet, tmp_path: Path
) -> None:
    run = noise_run(model="qcn", model_settings=DEEP)
    assert quatcaps.load(run.folder).model == "qcn"
    card = export_run(run, "a", tmp_path / "out", lambda split: noise_images, torch.device("cpu"))
    assert (card.model, card.config.model_settings) == ("qcn-deep", {})
    before, now = quatcaps.load(run.folder), quatcaps.load(tmp_path / "out" / "a.safetensors")
    assert before.settings == now.settings
    assert all(torch.equal(tensor, now.state_dict()[key]) for key, tensor in before.state_dict().items())


@pytest.mark.usefixtures("own_names")
def test_a_shape_is_named_by_models_of_the_package_alone() -> None:
    changes = {"primary": 7}
    register_model("mine", Model("one's own", MODELS["qcn"].module, quatcaps.models.settings_of("qcn", changes)))
    assert shape_of("qcn", changes) == ("qcn", changes)
    assert shape_of("qcn", {"routing.iterations": 1}) == ("qcn-no-routing", {})
    assert shape_of("qcn", {"iterations": 1, **DEEP}) == ("qcn", {"iterations": 1, **DEEP})
    assert shape_of("qcn-small", {}) == ("qcn-small", {})

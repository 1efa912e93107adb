"""Networks that are saved, in a file or a folder, come back as they were; what is not whole or foreign is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import quatcaps
from quatcaps.errors import QuatcapsError
from quatcaps.models import CapsuleNetwork, Network
from quatcaps.poses import MATRIX, PoseType
from quatcaps.routing import EM
from quatcaps.weights import saved
from quatcaps.weights.saved import Description

SMALL: dict[str, Any] = {"primary": 2, "pose_blocks": ((2, 4),), "activation_blocks": ((2, 4),), "capsules": ()}
NAMES = ("a", "b", "c")


def small(**settings: Any) -> Network:
    return quatcaps.build("qcn-small", channels=1, classes=3, seed=1, **{**SMALL, **settings})


def trained() -> Network:
    """As `load` gives one."""
    return quatcaps.load("qcn-mnist", classes=list(NAMES))


def assert_same(found: Network, wanted: Network) -> None:
    assert not found.training
    assert (found.model, found.settings, found.class_names) == (wanted.model, wanted.settings, wanted.class_names)
    assert found.preprocessing == wanted.preprocessing
    assert found.state_dict().keys() == wanted.state_dict().keys()
    for name, tensor in wanted.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


@pytest.mark.parametrize("settings", [{}, {"pose": "matrix", "routing": EM(3)}, {"iterations": 1, "branched": False}])
def test_networks_that_were_built(settings: dict[str, Any], tmp_path: Path) -> None:
    network = small(**settings)
    assert network.save(tmp_path / "made" / "a.safetensors") == tmp_path / "made" / "a.safetensors"
    assert_same(quatcaps.load(tmp_path / "made" / "a.safetensors"), network)
    assert_same(quatcaps.load(network.save_pretrained(tmp_path / "folder")), network)
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["a.safetensors"]


def test_a_pose_that_was_given_as_an_object_is_saved_by_its_name(tmp_path: Path) -> None:
    network = small(pose=MATRIX)
    assert quatcaps.load(network.save(tmp_path / "a.safetensors")).settings.pose == "matrix"


def test_trained_networks_predict_as_before(tmp_path: Path) -> None:
    network, pictures = trained(), list(torch.randint(256, (3, 1, 30, 30), dtype=torch.uint8))
    wanted = quatcaps.predict(network, pictures, device="cpu")
    assert {prediction.name for prediction in wanted} <= set(NAMES)
    network.save(tmp_path / "a.safetensors")
    network.save_pretrained(tmp_path / "folder")
    for path in (tmp_path / "a.safetensors", tmp_path / "folder"):
        assert_same(quatcaps.load(path), network)
        assert quatcaps.predict(path, pictures, device="cpu") == wanted
        assert quatcaps.load(path, classes=4).classes == 4


def test_a_network_that_was_built_cannot_predict(tmp_path: Path) -> None:
    path = small().save(tmp_path / "a.safetensors")
    with pytest.raises(QuatcapsError, match="was saved without preprocessing, from a network that was built"):
        quatcaps.predict(path, torch.zeros(1, 30, 30, dtype=torch.uint8))


def test_saving_replaces_what_was_there_or_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small().save(tmp_path / "a.safetensors")
    other = small(routing=EM(3))
    other.save(path)
    assert_same(quatcaps.load(path), other)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saved, "save_tensors", full)
    with pytest.raises(QuatcapsError, match="the disk is full"):
        small().save(path)
    assert_same(quatcaps.load(path), other)
    assert [found.name for found in tmp_path.iterdir()] == ["a.safetensors"]


def test_half_precision_is_saved_as_single(tmp_path: Path) -> None:
    path = small().half().save(tmp_path / "a.safetensors")
    kinds = {tensor.dtype for tensor in load_file(path).values() if tensor.is_floating_point()}
    assert kinds == {torch.float32}


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match=r"a\.pt: a saved network ends in \.safetensors"):
        small().save(tmp_path / "a.pt")
    with pytest.raises(QuatcapsError, match=r"a CapsuleNetwork that quatcaps\.build did not make"):
        CapsuleNetwork(1, 3, small().settings).save(tmp_path / "a.safetensors")
    own = small()
    own.preprocessing = lambda pictures: pictures
    with pytest.raises(QuatcapsError, match="preprocessing is a function of one's own, which a file cannot hold"):
        own.save(tmp_path / "a.safetensors")
    unknown = PoseType("unregistered", MATRIX.rows, MATRIX.columns, MATRIX.maps)
    with pytest.raises(QuatcapsError, match="the pose 'unregistered' is not registered"):
        small(pose=unknown).save_pretrained(tmp_path / "folder")
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(QuatcapsError, match=r"a\.json exists, and would be taken for the card"):
        small().save(tmp_path / "a.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def changed_header(path: Path, change: dict[str, Any] | str) -> None:
    with safe_open(path, framework="pt") as file:
        said = json.loads(file.metadata()[saved.HEADER])
    text = change if isinstance(change, str) else json.dumps({**said, **change})
    save_file(load_file(path), path, {"format": "pt", saved.HEADER: text})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"secret": 1}, "a saved network has a foreign entry 'secret'"),
        ({"format": 2}, "format 2: this version reads format 1"),
        ({"library_name": "timm"}, "library_name is 'timm'"),
        ({"classes": 1}, "classes = 1: a whole number from 2"),
        ({"classes": 4}, "does not fit its description"),
        ({"class_names": ["a"]}, "1 class_names for 3 classes"),
        ({"class_names": [1, 2, 3]}, "class_names holds 1"),
        ({"size": [28, 28]}, "all of them are needed to use a trained network"),
        ({"model": "qnc"}, "unknown model 'qnc'"),
        ({"settings": {"primary": 10**30}}, "at most 1,000,000"),
        ({"settings": {"primary": 10**5}}, "does not fit its description"),
        ({"parameters": 5}, "does not fit its description"),
        ("[]", "it holds a list"),
        ("{", "does not describe a saved network"),
    ],
)
def test_descriptions_that_are_wrong(change: dict[str, Any] | str, words: str, tmp_path: Path) -> None:
    path = small().save(tmp_path / "a.safetensors")
    changed_header(path, change)
    with pytest.raises(QuatcapsError, match=words):
        quatcaps.load(path)


def test_files_that_are_not_whole(tmp_path: Path) -> None:
    path = small().save(tmp_path / "a.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(QuatcapsError, match="is truncated or not a safetensors file"):
        quatcaps.load(path)
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(QuatcapsError, match=r"a\.json is missing: the card of a must lie there"):
        quatcaps.load(path)
    folder = small().save_pretrained(tmp_path / "folder")
    (folder / "model.safetensors").unlink()
    with pytest.raises(QuatcapsError, match=r"model\.safetensors is missing"):
        quatcaps.load(folder)


DESCRIPTION = Description.of(trained()).to_json()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(sorted(DESCRIPTION)), JSON)
def test_no_entry_gets_past_with_another_error(name: str, value: Any) -> None:
    try:
        found = Description.from_json({**copy.deepcopy(DESCRIPTION), name: value})
    except QuatcapsError:
        return
    assert Description.from_json(found.to_json()) == found

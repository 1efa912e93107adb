"""Weights by name and by path: the network comes back, and what is not whole is refused."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import quatcaps
from quatcaps import data, weights
from quatcaps.errors import QuatcapsError
from quatcaps.training.run import Run
from quatcaps.weights import zoo
from quatcaps.weights.cards import LIMIT

NAME = "qcn-toys"


def edit_card(folder: Path, **changes: object) -> None:
    path = folder / f"{NAME}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_everything_published_is_whole() -> None:
    """Holds for whatever lies in the package, and that the folder is installed with it."""
    folder = importlib.resources.files("quatcaps.weights") / "published"
    assert Path(str(folder)) == zoo.PUBLISHED
    assert (folder / "README.md").is_file()
    files = {Path(str(path)).name for path in folder.iterdir()} - {"README.md"}
    assert files == {f"{name}{suffix}" for name in weights.names() for suffix in (".json", ".safetensors")}
    for name in weights.names():
        assert weights.card(name).bytes < LIMIT
        assert not weights.load(name).training


def test_network_of_a_name_is_the_runs(published: Path, toys_run: Run, toys_folder: Path) -> None:
    network, card = quatcaps.load(NAME), weights.card(NAME)
    assert weights.names() == [NAME]
    assert not network.training
    wanted = toys_run.trained_network()
    for name, tensor in wanted.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor), name
    images = data.load("toys-mini", "test", folder=toys_folder)
    with torch.no_grad():
        activations = network(card.prepare(images.images[:4])).activations
    assert activations.shape == (4, 5)
    assert card.classes == images.classes


def test_by_path_and_by_run(exported: Path, toys_run: Run, nothing_published: Path) -> None:
    source = exported / f"{NAME}.safetensors"
    for given in (source, str(source), toys_run.folder, str(toys_run.folder)):
        assert not quatcaps.load(given).training
    assert weights.card(source).name == NAME
    with pytest.raises(QuatcapsError, match="is a folder, and weights are a file with a card"):
        weights.card(toys_run.folder)
    with pytest.raises(QuatcapsError, match="is not a run"):
        quatcaps.load(exported)
    with pytest.raises(QuatcapsError, match=r"qcn-toys\.json is not a \.safetensors file"):
        quatcaps.load(exported / f"{NAME}.json")
    with pytest.raises(QuatcapsError, match=r"nowhere\.safetensors is missing: the weights of nowhere"):
        quatcaps.load("nowhere.safetensors")


def test_loading_leaves_the_global_generator_alone(published: Path) -> None:
    state = torch.get_rng_state()
    quatcaps.load(NAME)
    assert torch.equal(state, torch.get_rng_state())


def test_unknown_name_lists_the_known(published: Path) -> None:
    with pytest.raises(QuatcapsError, match="unknown weights 'qcn-toy': did you mean 'qcn-toys'"):
        quatcaps.load("qcn-toy")


def test_unknown_name_where_there_are_none(nothing_published: Path) -> None:
    with pytest.raises(QuatcapsError, match="unknown weights 'qcn-toys': this version has none; make some"):
        quatcaps.load(NAME)


def test_truncated_file(published: Path) -> None:
    path = published / f"{NAME}.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    with pytest.raises(QuatcapsError, match=f"has 1,000 bytes, its card says {len(whole):,}: it is truncated"):
        quatcaps.load(NAME)


def test_one_changed_bit(published: Path) -> None:
    path = published / f"{NAME}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(QuatcapsError, match=r"has sha256 .* its card says .*: it is damaged"):
        quatcaps.load(NAME)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_one_file_without_the_other(suffix: str, exported: Path, published: Path) -> None:
    (published / f"{NAME}{suffix}").unlink()
    with pytest.raises(QuatcapsError, match=rf"qcn-toys\{suffix} is missing: the (card|weights) of qcn-toys"):
        quatcaps.load(published / f"{NAME}.safetensors")


def test_file_that_is_no_safetensors(published: Path) -> None:
    path = published / f"{NAME}.safetensors"
    path.write_bytes(b"\x80\x04" + bytes(len(path.read_bytes()) - 2))
    entry = {"sha256": zoo.digest(path), "bytes": path.stat().st_size}
    edit_card(published, file=entry)
    with pytest.raises(QuatcapsError, match="is truncated or not a safetensors file"):
        quatcaps.load(NAME)


def test_weights_of_another_network(published: Path) -> None:
    path = published / f"{NAME}.safetensors"
    tensors = load_file(path)
    save_file({"x" + name: tensor for name, tensor in tensors.items()}, path)
    edit_card(published, file={"sha256": zoo.digest(path), "bytes": path.stat().st_size})
    with pytest.raises(QuatcapsError, match="does not fit the network"):
        quatcaps.load(NAME)


def test_card_of_an_enormous_network_takes_no_memory(published: Path) -> None:
    values = json.loads((published / f"{NAME}.json").read_text())
    for settings, words in (({"primary": 10**4}, "does not fit its card"), ({"primary": 10**30}, "cannot be built")):
        values["configuration"]["model_settings"] = settings
        edit_card(published, configuration=values["configuration"])
        with pytest.raises(QuatcapsError, match=words):
            quatcaps.load(NAME)


def test_card_with_other_parameters(published: Path) -> None:
    edit_card(published, parameters=12)
    with pytest.raises(QuatcapsError, match=r"the card says 12 parameters in .* and its network has 29,682"):
        quatcaps.load(NAME)

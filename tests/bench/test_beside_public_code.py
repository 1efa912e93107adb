"""`benchmarks/beside_public_code.py`: it finds differences where there are some, and in the right layer. Public code is
no part of the tests; a network of ours stands in its place."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import beside_public_code
import beside_tensorflow
from beside_public_code import (
    NETWORKS,
    Public,
    Reader,
    compare,
    layers_of,
    main,
    modules_of,
    parsed,
    take,
)
from narrow import NARROW
from public_clones import commit_of, recorded
from quatcaps.capsules import Capsules
from quatcaps.console import standard_output
from quatcaps.errors import QuatcapsError
from quatcaps.layers import use_backend
from quatcaps.models import build

pytestmark = pytest.mark.usefixtures("unchecked")
MODELS = Path(__file__).parents[2] / "docs" / "models.md"


def tensors(theirs: nn.Module, of: Reader) -> dict[str, Tensor]:
    return {name: of(parameter) for name, parameter in theirs.named_parameters()}


def public(capsules: Any = layers_of, tensors: Any = tensors) -> Public:
    """A network of ours in the place of public code."""
    settings = {"channels": 2, "classes": 5, **NARROW}
    made = lambda folder: use_backend(build("qcn", **settings), "reference")  # noqa: E731
    return Public("theirs", "someone/something", ("qcn", NARROW), made, tensors, capsules)


def test_a_network_beside_itself_has_no_difference(tmp_path: Path) -> None:
    found = compare(public(), tmp_path, 4, 0)
    assert found.found.keys() == {"reference", "native"}
    assert found.found["reference"] == {"poses": [0.0] * 4, "activations": [0.0] * 4, "gradients": 0.0}
    native = found.found["native"]
    assert max(*native["poses"], *native["activations"], native["gradients"]) < 1e-12
    assert found.commit == "unknown"


def test_another_number_is_seen_from_its_layer_on(tmp_path: Path) -> None:
    def changed(theirs: Any, images: Tensor) -> list[Capsules]:
        with torch.no_grad():
            theirs.layers[1].routing.beta_a[0] += 0.5
        found = layers_of(theirs, images)
        with torch.no_grad():
            theirs.layers[1].routing.beta_a[0] -= 0.5
        return found

    found = compare(public(changed), tmp_path, 4, 0).found["reference"]
    assert found["poses"][:2] == found["activations"][:2] == [0.0, 0.0]
    assert all(number > 1e-6 for number in (*found["poses"][3:], *found["activations"][2:]))
    assert found["poses"][2] > 0
    assert found["gradients"] > 1e-6


def test_other_gradients_are_seen(tmp_path: Path) -> None:
    def detached(theirs: Any, images: Tensor) -> list[Capsules]:
        *others, last = layers_of(theirs, images)
        return [*others, Capsules(last.poses.detach(), last.activations)]

    found = compare(public(detached), tmp_path, 4, 0).found["reference"]
    assert found["activations"] == [0.0] * 4
    assert found["gradients"] > 1e-3

    def halved(theirs: nn.Module, of: Reader) -> dict[str, Tensor]:
        """All their gradients are half of ours."""
        values = tensors(theirs, of)
        weights = all(torch.equal(values[name], parameter) for name, parameter in theirs.named_parameters())
        return values if weights else {name: value / 2 for name, value in values.items()}

    for backend in ("reference", "native"):
        assert compare(public(tensors=halved), tmp_path, 4, 0).found[backend]["gradients"] == pytest.approx(1)


def test_numbers_that_are_not_finite_are_no_agreement(tmp_path: Path) -> None:
    def broken(theirs: nn.Module, of: Reader) -> dict[str, Tensor]:
        values = tensors(theirs, of)
        if not torch.equal(values["classify.maps.angle"], theirs.get_parameter("classify.maps.angle")):
            values["classify.routing.beta_a"] = values["classify.routing.beta_a"] * torch.nan
        return values

    with pytest.raises(QuatcapsError, match="a number is not finite"):
        compare(public(tensors=broken), tmp_path, 4, 0)


def test_a_backend_that_the_reference_stands_in_for_is_left_out(tmp_path: Path) -> None:
    least = {"pose": "matrix", "routing": {"name": "vb", "least_density": 1e-11}, **NARROW}
    made = lambda folder: use_backend(build("qcn", channels=2, classes=5, **least), "reference")  # noqa: E731
    found = compare(Public("theirs", "someone/something", ("qcn", least), made, tensors, layers_of), tmp_path, 4, 0)
    assert found.found.keys() == {"reference"}


def test_routing_without_the_fourth_number() -> None:
    given: list[tuple[Tensor, ...]] = []

    def routing(votes: Tensor, activations: Tensor, size: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
        given.append((votes, activations))
        assert size == (2, 6, 3, 1)
        return votes.mean(1).unsqueeze(-1), activations, activations

    votes, activations = torch.rand(2, 5, 6, 4), torch.rand(2, 6)
    poses, same, _ = beside_public_code.without_fourth(routing)(votes, activations, (2, 6, 4, 1))
    assert torch.equal(given[0][0], votes[..., 1:])
    assert same is activations
    assert torch.equal(poses[..., 1:, 0], votes.mean(1)[..., 1:])
    assert not poses[..., 0, 0].any()


def test_a_network_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    def fewer(theirs: nn.Module, of: Reader) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in tensors(theirs, of).items() if name != "classify.maps.axis"}

    def other(theirs: nn.Module, of: Reader) -> dict[str, Tensor]:
        return {
            name: tensor[None] if name == "classify.maps.axis" else tensor
            for name, tensor in tensors(theirs, of).items()
        }

    with pytest.raises(QuatcapsError, match=r"nothing for classify\.maps\.axis"):
        compare(public(tensors=fewer), tmp_path, 4, 0)
    with pytest.raises(QuatcapsError, match=r"classify\.maps\.axis has shape .* in the public code"):
        compare(public(tensors=other), tmp_path, 4, 0)
    assert torch.get_default_dtype() == torch.float32


def test_modules_of_public_code_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / "modules.py").write_text(
        "import torch\nfrom torchvision import datasets\nsmall = torch.ones(1).dtype\n"
    )
    before = dict(sys.modules)
    with modules_of(tmp_path):
        import modules

        assert modules.small == torch.float64
    assert torch.get_default_dtype() == torch.float32
    assert str(tmp_path) not in sys.path
    assert {"modules", "torchvision"}.isdisjoint(sys.modules.keys() - before.keys())


@pytest.mark.parametrize("network", ["vb", "em", "qcn"])
def test_other_folders_are_told(network: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    options = ["--output", str(tmp_path)]
    with pytest.raises(QuatcapsError, match=r"is not the public code that this was written for: .*No module named"):
        main(parsed([network, str(tmp_path), *options]), standard_output())
    with pytest.raises(QuatcapsError, match=f"{tmp_path / 'no'}.* is no folder: clone the public code"):
        main(parsed([network, str(tmp_path / "no"), *options]), standard_output())
    assert not (tmp_path / beside_public_code.NAME).exists()


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    for arguments, words in (
        ([], "give a network and where its public code lies"),
        (["--tables"], "has no comparisons: compare a network first"),
        (["vb", "folder", "--images", "1"], "1 images: public code takes two or more at once"),
    ):
        with pytest.raises(QuatcapsError, match=words):
            main(parsed([*arguments, "--output", str(tmp_path)]), standard_output())
    (tmp_path / beside_public_code.NAME).write_text('{"format": 7}')
    with pytest.raises(QuatcapsError, match="no comparisons with public code in format 1"):
        recorded(tmp_path / beside_public_code.NAME)


def test_the_commit_is_that_of_the_clone_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=one", "-c", "user.email=one@example.org")
        done = subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert commit_of(tmp_path) == "unknown"
    git("init", "--quiet")
    (tmp_path / "inside").mkdir()
    (tmp_path / "layers.py").write_text("one = 1\n")
    git("add", "layers.py")
    git("commit", "--quiet", "--message", "one")
    assert commit_of(tmp_path) == git("rev-parse", "HEAD")
    assert commit_of(tmp_path / "inside") == "unknown", "a copy in another repository"
    (tmp_path / "layers.py").write_text("one = 2\n")
    assert commit_of(tmp_path) == git("rev-parse", "HEAD") + ", modified"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) == "unknown", "no git on this machine"


def test_the_page_of_models_has_what_was_found() -> None:
    """Each line of its table: the network, what is largest over layers and backends."""
    text = MODELS.read_text(encoding="utf-8")
    shown = re.findall(r"^\| (?:VB|EM\\\*|EM-IBM|QCN)[^|]*\|.*", text[text.index("Largest differences") :], re.M)
    networks = recorded(beside_public_code.RESULTS / beside_public_code.NAME)
    assert networks.keys() == NETWORKS.keys()
    assert len(shown) == len(networks)
    for line, network in zip(shown, networks.values(), strict=True):
        title, ours, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
        assert (title.replace("\\", ""), ours.replace("`", "")) == (network["network"], network["ours"])
        largest = [
            max(
                max(found[name]) if isinstance(found[name], list) else found[name]
                for found in network["found"].values()
            )
            for name in ("poses", "activations", "gradients")
        ]
        assert numbers == [f"{number:.0e}".replace("e-0", "e-").replace("e+00", "") for number in largest]


def test_weights_for_tensorflow_are_all_of_ours(tmp_path: Path) -> None:
    """Without TensorFlow, whose part is the routing alone."""
    theirs = beside_tensorflow.Gritzman(tmp_path, beside_public_code.CHANNELS, beside_public_code.CLASSES, 32)
    name, settings = NETWORKS["em-ibm"].ours
    network = build(name, channels=beside_public_code.CHANNELS, classes=beside_public_code.CLASSES, **settings)
    take(network, beside_tensorflow.tensors(theirs, lambda tensor: tensor.detach()))
    own = dict(network.named_parameters())
    assert torch.equal(own["layers.1.maps.weight"][4, 3, 7], theirs.maps[1][0, 4 * 16 + 3, 7].T), "place 4, child 3"
    assert torch.equal(own["classify.routing.beta_u"], theirs.beta_v[2].flatten())
    assert sum(each.numel() for each in theirs.parameters()) == 68_754


def test_rows_of_poses_change_places() -> None:
    poses = torch.arange(16.0).expand(2, 5, 16)
    found = beside_tensorflow.as_ours(poses, torch.zeros(2, 5)).poses[1, 4].tolist()
    assert found == [4, 5, 6, 7, 0, 1, 2, 3, *range(8, 16)]
    grid = torch.rand(2, 3, 4, 6, 16)
    again = beside_tensorflow.as_ours(grid, torch.rand(2, 3, 4, 6, 1))
    assert torch.equal(again.poses[0, 5, :, 2, 1], grid[0, 2, 1, 5].view(4, 4)[[1, 0, 2, 3]].flatten())
    assert again.activations.shape == (2, 6, 3, 4)


@pytest.mark.skipif(find_spec("tensorflow") is not None, reason="tells what to do without TensorFlow")
def test_what_tensorflow_is_needed_for_is_told(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="needs TensorFlow: pip install tensorflow-cpu"):
        main(parsed(["em-ibm", str(tmp_path), "--output", str(tmp_path)]), standard_output())

"""Exported files say what the network says, are what they say they are, and are there whole or not at all."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from torch.export import Dim

import quatcaps
from quatcaps import weights
from quatcaps.errors import QuatcapsError
from quatcaps.exporting import Exported, export, onnx_file, program
from quatcaps.exporting.exported import chosen_format, named, wrapped
from quatcaps.exporting.portable import Standardised
from quatcaps.layers import use_backend
from quatcaps.models import Network
from quatcaps.models.logits import Logits
from quatcaps.training.preprocess import Preprocessing
from quatcaps.training.run import create_run

ALL = "QUATCAPS_TEST_EXPORTS"
"""Set in the environment, every published weight is exported: tens of seconds each, nearly all of them PyTorch's."""
SMALL = "small"
CHOSEN = [SMALL, *(weights.names() if os.environ.get(ALL) else [])]
TOLERANCE = 1e-5

onnxruntime = pytest.importorskip("onnxruntime")


def tiny(name: str = "cnn-small", **settings: Any) -> Network:
    return quatcaps.build(name, channels=1, classes=3, seed=0, **settings).eval()


def tiny_capsules(**settings: Any) -> Network:
    """Few capsules, and unless told otherwise no layer between the primary ones and the classes."""
    blocks = {"pose_blocks": ((2, 4),), "activation_blocks": ((2, 4),)}
    return tiny("qcn-small", **{"primary": 2, "capsules": (), **blocks, **settings})


def network_of(name: str) -> Network:
    """Published weights, or a small network with preprocessing like theirs."""
    if name != SMALL:
        return quatcaps.load(name)
    network = tiny_capsules()
    network.class_names, config = ("one", "two", "three"), quatcaps.TrainingConfig(image_size=20, crop=16)
    network.preprocessing = Preprocessing(config, 1, (20, 20))
    return network


@pytest.fixture
def unchecked() -> Iterator[None]:
    """While PyTorch traces, sizes are symbols, and no whole numbers to who checks annotations."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module", params=CHOSEN)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Exported, Exported]:
    """A network with preprocessing inside, in both formats, from one program."""
    folder, name = tmp_path_factory.mktemp("exported"), request.param
    given = name if name in weights.names() else network_of(name)
    jaxtyping.config.update("jaxtyping_disable", True)
    made = program.program_of(wrapped(named(given)[1], True, None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "program_of", lambda module: made)
        files = [export(given, folder / f"{name}{ending}", preprocessing=True) for ending in (".onnx", ".pt2")]
    jaxtyping.config.update("jaxtyping_disable", False)
    return name, files[0], files[1]


def images_of(network: Network, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    size = network.preprocessing.size  # type: ignore[union-attr]
    return torch.randint(256, (count, network.channels, *size), generator=generator, dtype=torch.uint8)


@torch.no_grad()
def assert_same(network: Network, run: Callable[[torch.Tensor], dict[str, torch.Tensor]]) -> None:
    for count in (1, 7):
        images = images_of(network, count)
        wanted, found = network(network.preprocess(list(images))), run(images)
        assert found.keys() == {"activations", "poses"}
        for name, values in found.items():
            assert torch.allclose(values, getattr(wanted, name), rtol=0, atol=TOLERANCE), (name, count)


def test_onnx_files_say_what_the_network_says(exported: tuple[str, Exported, Exported]) -> None:
    name, made, _ = exported
    assert made.difference is not None
    assert made.difference <= TOLERANCE
    assert_same(network_of(name), lambda images: onnx_file.outputs(made.path, images))


def test_programs_of_torch_say_what_the_network_says(exported: tuple[str, Exported, Exported]) -> None:
    name, _, made = exported
    extra = {program.METADATA: ""}
    loaded = torch.export.load(made.path, extra_files=extra)
    assert json.loads(extra[program.METADATA])["model"] == network_of(name).model
    called = {str(node.target) for node in loaded.graph.nodes if node.op == "call_function"}
    assert {name for name in called if not name.startswith(("aten.", "<built-in function"))} == set()
    assert_same(network_of(name), loaded.module())


def test_onnx_files_say_what_they_are(exported: tuple[str, Exported, Exported]) -> None:
    import onnx

    name, made, _ = exported
    network = network_of(name)
    size = network.preprocessing.size  # type: ignore[union-attr]
    model = onnx.load(made.path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(made.path, providers=["CPUExecutionProvider"])
    (images,), outputs = session.get_inputs(), session.get_outputs()
    assert (images.name, images.type) == ("images", "tensor(uint8)")
    assert images.shape == ["batch", network.channels, *size]
    assert [(output.name, output.shape[:2]) for output in outputs] == [
        (each, ["batch", network.classes]) for each in ("activations", "poses")
    ]
    said = session.get_modelmeta().custom_metadata_map
    assert json.loads(said["classes"]) == list(network.class_names)
    assert json.loads(said["input"]) == {"shape": ["batch", network.channels, *size], "dtype": "uint8"}
    assert said["name"] == (name if name in weights.names() else network.model)
    assert (said["model"], said["version"]) == (network.model, quatcaps.__version__)
    assert model.opset_import[0].version == 20
    content = made.path.read_bytes()
    assert str(Path(quatcaps.__file__).parent).encode() not in content, "no paths of this machine"


@pytest.mark.parametrize("name", weights.names())
def test_preprocessing_inside_is_the_networks(name: str) -> None:
    network = quatcaps.load(name)
    images = images_of(network, 3)
    found = Standardised(network.preprocessing.config)(images)  # type: ignore[union-attr]
    assert torch.allclose(found, network.preprocess(list(images)), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("standardise", ["none", "view"])
def test_preprocessing_of_other_kinds(standardise: str) -> None:
    network = quatcaps.load("qcn-mnist")
    made = network.preprocessing
    config = made.config.changed({"standardise": standardise, "mean": (), "deviation": (), "crop": 0, "pad": 0})  # type: ignore[union-attr]
    object.__setattr__(made, "config", config)
    images = images_of(network, 3)
    assert torch.allclose(Standardised(config)(images), network.preprocess(list(images)), rtol=0, atol=TOLERANCE)
    whole = config.changed({"crop": 20, "standardise_from": "whole"})
    object.__setattr__(made, "config", whole)
    assert torch.allclose(Standardised(whole)(images), network.preprocess(list(images)), rtol=0, atol=TOLERANCE)


def test_networks_that_were_built(tmp_path: Path) -> None:
    network = tiny().train()
    made = quatcaps.export(network, tmp_path / "a.pt2", size=(28, 28))
    written = made.path.stat().st_size
    assert made == Exported(tmp_path / "a.pt2", "torch-export", written, (1, 28, 28), ("activations",), made.difference)
    assert network.training, "the network is left as it was"
    assert all(parameter.requires_grad for parameter in network.parameters())
    images = torch.randn(5, 1, 28, 28)
    found = torch.export.load(made.path).module()(images)["activations"]
    assert torch.allclose(found, network.eval()(images).activations, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("path", "changes", "words"),
    [
        ("a.onnx", {"format": "onxn"}, "unknown format 'onxn': did you mean 'onnx'"),
        ("a.onnx", {"format": "torch-export"}, r"a\.onnx: a file of the format torch-export ends in \.pt2"),
        ("a.bin", {}, r"a\.bin: an exported file ends in \.onnx or \.pt2"),
        ("there.onnx", {}, r"there\.onnx exists: give another path, or --force"),
        ("folder.onnx", {"force": True}, "is a folder: give the path of a file"),
        ("a.onnx", {"opset": 9}, "opset 9: give one from 18 to 23"),
        ("a.onnx", {"size": None}, r"give size=\(height, width\)"),
        ("a.onnx", {"preprocessing": True}, "has no preprocessing to export"),
    ],
)
def test_what_cannot_be_exported(path: str, changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "there.onnx").write_text("precious")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(QuatcapsError, match=words):
        export(tiny(), tmp_path / path, **{"size": (28, 28), **changes})
    assert sorted(found.name for found in tmp_path.iterdir()) == ["folder.onnx", "there.onnx"]
    assert (tmp_path / "there.onnx").read_text() == "precious"


def test_networks_that_pytorch_cannot_export(tmp_path: Path) -> None:
    class Choosy(Network):
        def __init__(self) -> None:
            super().__init__(1, 3)
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, images: torch.Tensor) -> Logits:
            return Logits(images.mean((2, 3)) * (self.scale if images.sum() > 0 else -self.scale))

    with pytest.raises(QuatcapsError, match=r"^torch\.export cannot export this network: .+$"):
        export(Choosy(), tmp_path / "a.onnx", size=(8, 8))
    with pytest.raises(QuatcapsError, match="input 3×3 is too small for capsule layers"):
        export(tiny_capsules(capsules=((3, 2, 1),)), tmp_path / "a.onnx", size=(3, 3))
    assert not list(tmp_path.iterdir())


def test_sizes_that_a_trained_network_does_not_take(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match=r"size = \(30, 30\): this network takes images of 28×28"):
        export("qcn-mnist", tmp_path / "a.onnx", size=(30, 30))


def test_packages_that_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name))
    with pytest.raises(QuatcapsError, match=r"need the package onnxscript: pip install 'quatcaps\[export\]'"):
        export(tiny(), tmp_path / "a.onnx", size=(28, 28))


def test_a_file_that_differs_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        program, "outputs", lambda made, path, images: {"activations": made.module()(images)["activations"] + 1e-4}
    )
    (tmp_path / "a.pt2").write_text("precious")
    with pytest.raises(QuatcapsError, match=r"a\.pt2 was not written: activations of the exported network differs by"):
        export(tiny(), tmp_path / "a.pt2", size=(28, 28), force=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.usefixtures("unchecked")
def test_a_program_made_by_hand_is_of_pytorchs_operators() -> None:
    """Whatever backend the device has; and the backend that was asked for, where one was."""
    network = tiny_capsules(iterations=1)
    images = torch.randn(2, 1, 12, 12)
    made = torch.export.export(network, (images,), dynamic_shapes=({0: Dim.DYNAMIC},))
    names = [str(node.target) for node in made.graph.nodes if node.op == "call_function"]
    assert not [name for name in names if name.startswith("quatcaps")]
    more = torch.randn(5, 1, 12, 12)
    found = made.module()(more)
    assert isinstance(found, quatcaps.Capsules)
    assert torch.allclose(found.activations, network(more).activations, atol=TOLERANCE)
    by_name = torch.export.export(use_backend(network, "native"), (images,))
    assert "quatcaps" in str(by_name.graph)


def test_the_command(command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise_images: Any) -> None:
    from quatcaps.training import checkpoint
    from quatcaps.training.checkpoint import Position
    from quatcaps.training.config import TrainingConfig

    monkeypatch.chdir(tmp_path)
    config = TrainingConfig(model="cnn-small", image_size=32, crop=28)
    run = create_run(tmp_path / "run", config, noise_images)
    outcome = command("export", run.folder)
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "has no checkpoint yet" in outcome.err
    network = run.network()
    checkpoint.save(run.checkpoints, network, torch.optim.Adam(network.parameters()), Position(step=1, epoch=1))
    outcome = command("export", run.folder, "--format", "torch-export", "--preprocessing")
    assert outcome.code == 0, outcome.err
    assert "run.pt2 (" in outcome.out
    assert "images (batch, 2, 32, 32) uint8 → activations" in outcome.out
    assert "checked: outputs differ from the network's by at most" in outcome.out
    outcome = command("export", run.folder, "--output", "run.pt2")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "run.pt2 exists" in outcome.err
    assert "--force" in outcome.err
    monkeypatch.setattr(onnx_file, "runtime", lambda: None)
    outcome = command("export", run.folder, "--opset", 18)
    assert outcome.code == 0, outcome.err
    assert "not checked: onnxruntime is not installed" in outcome.out
    assert onnxruntime.InferenceSession(tmp_path / "run.onnx").get_inputs()[0].shape == ["batch", 2, 28, 28]
    import onnx

    assert onnx.load(tmp_path / "run.onnx").opset_import[0].version == 18
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.onnx", "run.pt2"]


def test_formats_by_ending() -> None:
    assert [chosen_format(Path(name), None) for name in ("a.onnx", "b/c.pt2")] == ["onnx", "torch-export"]

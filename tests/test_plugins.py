"""Names from other packages: found by the command line, by files and by `build`, without a change here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import quatcaps
from quatcaps import plugins
from quatcaps.errors import QuatcapsError
from quatcaps.models import MODELS, CapsuleNetwork, CapsuleSettings, Model
from quatcaps.models.logits import Logits
from quatcaps.poses import POSES, PoseType
from quatcaps.poses.free import FreeMaps
from quatcaps.registry import Registry
from quatcaps.routing import EM, ROUTINGS

pytestmark = pytest.mark.usefixtures("own_names")

SOURCE = """
from dataclasses import dataclass

from torch import Tensor, nn

import quatcaps
from quatcaps.models import Model, Network
from quatcaps.models.logits import Logits
from quatcaps.poses import PoseType
from quatcaps.poses.free import FreeMaps


@dataclass(frozen=True)
class Settings:
    width: int = 4


class Tiny(Network):
    def __init__(self, channels: int, classes: int, settings: Settings) -> None:
        super().__init__(channels, classes, settings)
        self.features = nn.Conv2d(channels, settings.width, 3)
        self.classify = nn.Linear(settings.width, classes)

    def forward(self, images: Tensor) -> Logits:
        return Logits(self.classify(self.features(images).relu().mean((2, 3))))


quatcaps.register_model("tiny", Model("a network of one convolution", Tiny, Settings()))
quatcaps.register_pose(PoseType("loose", rows=1, columns=3, maps=FreeMaps))
"""
SAME = PoseType("same", rows=1, columns=3, maps=FreeMaps)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages with one that extends quatcaps."""
    folder = tmp_path / "packages"
    information = folder / "tiny_capsules-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "tiny_capsules.py").write_text(SOURCE)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-capsules\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[quatcaps.plugins]\ntiny = tiny_capsules\n")
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("tiny_capsules", None)


def test_nothing_is_imported_before_it_is_needed(installed: Path) -> None:
    quatcaps.build("qcn-small", channels=1, classes=3, pose="free", routing="em")
    assert "tiny_capsules" not in sys.modules
    quatcaps.build("tiny", channels=1, classes=3)
    assert "tiny_capsules" in sys.modules


def test_names_of_installed_packages_are_listed(installed: Path) -> None:
    assert "loose" in quatcaps.list_poses()
    assert "tiny" in quatcaps.list_models()
    assert quatcaps.list_routings() == ["em", "vb"]


def test_training_and_evaluating_a_network_from_another_package(
    installed: Path, toys_folder: Path, tmp_path: Path, command: Callable
) -> None:
    data = ("--data-dir", toys_folder)
    flags = ("--dataset", "toys-mini", "--model", "tiny", "--model-setting", "width=6", "--loss", "cross-entropy")
    trained = command("train", *flags, "--epochs", 1, "--device", "cpu", "--output", tmp_path / "run", *data)
    assert trained.code == 0, trained.err
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert (config["model"], config["model_settings"]) == ("tiny", {"width": 6})
    evaluated = command("evaluate", tmp_path / "run", "--device", "cpu", *data)
    assert evaluated.code == 0, evaluated.err
    assert command("train", *flags, "--model-setting", "with=6", *data).err.startswith(
        "error: unknown setting of tiny 'with': did you mean 'width'?"
    )


def test_a_broken_package_is_a_warning(installed: Path) -> None:
    (installed / "tiny_capsules.py").write_text("import nothing_of_this_name")
    with pytest.warns(plugins.PluginWarning, match=r"plug-in tiny = tiny_capsules cannot be imported: No module named"):
        assert "qcn" in quatcaps.list_models()
    with pytest.raises(QuatcapsError, match="unknown model 'tiny'"):
        quatcaps.build("tiny", channels=1, classes=3)


@pytest.mark.parametrize("by_path", [True, False])
def test_plug_ins_of_the_command_line(
    by_path: bool, installed: Path, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (installed / "tiny_capsules-1.0.dist-info" / "entry_points.txt").unlink()
    assert "tiny" not in MODELS
    monkeypatch.chdir(installed)
    name = "tiny_capsules.py" if by_path else "tiny_capsules"
    outcome = command("--plugin", name, "models")
    assert outcome.code == 0, outcome.err
    assert "tiny: a network of one convolution" in outcome.out
    assert os.environ[plugins.VARIABLE] == (str(installed / name) if by_path else name), "for processes started here"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing_of_this_name", "the plug-in nothing_of_this_name cannot be imported: No module named"),
        ("nothing.py", "nothing.py cannot be imported: there is no such file"),
        ("broken.py", "broken.py cannot be imported: division by zero"),
        ("json.py", "json.py cannot be imported: a module named json is imported already: rename the file"),
    ],
)
def test_a_plug_in_that_was_asked_for_must_be_there(
    name: str, words: str, tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for written in ("broken.py", "json.py"):
        (tmp_path / written).write_text("1 / 0")
    for _ in range(2):
        outcome = command("--plugin", name, "train", "--model", "tiny")
        assert outcome.code == 1
        assert words in outcome.err
    assert "broken" not in sys.modules


@pytest.mark.parametrize("name", ["two words", "", " qcn", "a=b", "a/b", "-flag", "a\nb", "a\n"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(QuatcapsError, match=r"a thing named .*: give letters, digits"):
        Registry("thing", {}).register(name, 1)


def test_a_name_is_given_once() -> None:
    quatcaps.register_pose(SAME)
    quatcaps.register_pose(SAME)
    with pytest.raises(QuatcapsError, match="there is another pose named 'same' already: choose another name"):
        quatcaps.register_pose(PoseType("same", rows=2, columns=3, maps=FreeMaps))
    with pytest.raises(QuatcapsError, match="there is another routing named 'vb' already"):
        quatcaps.register_routing("vb", EM)
    with pytest.raises(QuatcapsError, match="there is another model named 'qcn' already"):
        quatcaps.register_model("qcn", MODELS["em"])
    assert POSES["same"] is SAME
    assert ROUTINGS["vb"] is not EM


def test_only_what_can_be_used_is_registered() -> None:
    class Loose:
        iterations = 1

    with pytest.raises(QuatcapsError, match="give the class of a frozen dataclass"):
        quatcaps.register_routing("loose", Loose)
    with pytest.raises(QuatcapsError, match="the routing 'shape' has no iterations"):
        quatcaps.register_routing("shape", CapsuleSettings)
    with pytest.raises(QuatcapsError, match="the settings of the model 'mine' are None: give a frozen dataclass"):
        quatcaps.register_model("mine", Model("mine", CapsuleNetwork, None))


def test_settings_of_ours_make_a_model() -> None:
    settings = CapsuleSettings(primary=4, capsules=((4, 3, 2),), pose=SAME)
    quatcaps.register_model("mine", Model("a narrow one", CapsuleNetwork, settings))
    assert quatcaps.build("mine", channels=1, classes=3, **{"routing.iterations": 1}).settings.primary == 4


def test_a_module_that_is_no_network() -> None:
    quatcaps.register_model("plain", Model("no network", lambda *_: torch.nn.Linear(2, 2), CapsuleSettings()))
    with pytest.raises(QuatcapsError, match=r"'plain' builds a Linear: derive that from quatcaps\.models\.Network"):
        quatcaps.build("plain", channels=1, classes=3)


def test_logits_are_an_output() -> None:
    assert isinstance(Logits(torch.zeros(1, 2)), quatcaps.models.Output)

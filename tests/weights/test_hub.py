"""Folders as the Hugging Face Hub has them: written, read back, and what would be uploaded. Nothing is sent."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import quatcaps
from quatcaps import weights
from quatcaps.errors import QuatcapsError
from quatcaps.models import Network
from quatcaps.weights import hub

FILES = {"README.md", "card.json", "config.json", "model.safetensors"}


class Recorder:
    """Stands in for `HfApi`: keeps what it is told, and the files it would send."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[str, bytes] = {}
        self.fails = fails

    def create_repo(self, repo_id: str, **options: Any) -> str:
        self.calls.append(("create_repo", {"repo_id": repo_id, **options}))
        return f"https://hub.example/{repo_id}"

    def upload_folder(self, *, folder_path: str, **options: Any) -> None:
        if self.fails:
            raise self.fails
        self.calls.append(("upload_folder", options))
        self.files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}


@pytest.fixture(scope="module")
def mnist() -> Network:
    return quatcaps.load("qcn-mnist")


def metadata(text: str) -> dict[str, Any]:
    """Each line of the Hub's metadata is a name and a value of JSON, which is YAML too."""
    block = re.match(r"---\n(.*?)---\n", text, re.S)
    assert block
    return {name: json.loads(value) for name, value in (line.split(": ", 1) for line in block[1].splitlines())}


def test_published_weights_have_the_figures_of_their_card(mnist: Network, tmp_path: Path) -> None:
    folder, card = mnist.save_pretrained(tmp_path / "mine", repo_id="me/mine"), weights.card("qcn-mnist")
    assert {path.name for path in folder.iterdir()} == FILES
    text = (folder / "README.md").read_text(encoding="utf-8")
    rate = card.error["test"]
    for words in (
        f"| test | {rate.percent:.2f} | {rate.errors} | 10,000 |",
        card.chosen,
        card.command,
        card.licence,
        'quatcaps.from_pretrained("me/mine")',
        f"`qcn-deep`, with {card.parameters:,} parameters",
    ):
        assert words in text, words
    said = metadata(text)
    assert (said["library_name"], said["pipeline_tag"]) == ("quatcaps", "image-classification")
    (result,) = said["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": pytest.approx(1 - rate.errors / rate.images, abs=1e-6)}]
    assert "license" not in said, "the images have a licence of their own"
    assert weights.Card.from_json(json.loads((folder / "card.json").read_text(encoding="utf-8"))) == card
    assert (folder / "model.safetensors").read_bytes() == (weights.zoo.PUBLISHED / "qcn-mnist.safetensors").read_bytes()


def test_a_folder_comes_back(mnist: Network, tmp_path: Path) -> None:
    folder = mnist.save_pretrained(tmp_path / "mine")
    images = torch.randint(256, (2, 1, 28, 28), dtype=torch.uint8)
    wanted = mnist(mnist.preprocess(list(images)))
    for found in (quatcaps.from_pretrained(folder), Network.from_pretrained(str(folder)), quatcaps.load(folder)):
        assert found.class_names == mnist.class_names
        assert torch.equal(found(found.preprocess(list(images))).activations, wanted.activations)


def test_weights_that_were_changed_have_no_figures(tmp_path: Path) -> None:
    network = quatcaps.load("qcn-toys")
    network.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert metadata((tmp_path / "README.md").read_text(encoding="utf-8"))["license"] == "mit"
    with torch.no_grad():
        next(network.parameters()).add_(1e-3)
    with pytest.raises(QuatcapsError, match="the card of qcn-toys is of other weights"):
        network.save_pretrained(tmp_path, card=weights.card("qcn-toys"))
    assert {path.name for path in tmp_path.iterdir()} == FILES, "as it was"
    network.save_pretrained(tmp_path, licence="cc0-1.0")
    assert {path.name for path in tmp_path.iterdir()} == FILES - {"card.json"}
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "error" not in text
    assert "model-index" not in metadata(text)
    assert metadata(text)["license"] == "cc0-1.0"


def test_a_folder_that_is_not_whole_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = quatcaps.build("cnn-small", channels=1, classes=3, seed=0)
    network.save_pretrained(tmp_path)
    monkeypatch.setattr(hub, "page", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        network.save_pretrained(tmp_path)
    with pytest.raises(QuatcapsError, match=r"config\.json is missing"):
        quatcaps.from_pretrained(tmp_path)


def test_what_is_pushed(mnist: Network) -> None:
    api = Recorder()
    assert mnist.push_to_hub("me/mine", private=True, revision="next", api=api) == "https://hub.example/me/mine"
    (made, create), (sent, upload) = api.calls
    assert (made, sent) == ("create_repo", "upload_folder")
    assert create == {"repo_id": "me/mine", "repo_type": "model", "private": True, "exist_ok": True}
    assert upload == {
        "repo_id": "me/mine",
        "repo_type": "model",
        "revision": "next",
        "commit_message": "Upload a network of quatcaps",
    }
    assert api.files.keys() == FILES
    assert b'quatcaps.from_pretrained("me/mine")' in api.files["README.md"]
    assert json.loads(api.files["config.json"])["class_names"] == list(mnist.class_names)


def test_a_repository_is_downloaded_as_a_snapshot(
    mnist: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, asked = mnist.save_pretrained(tmp_path / "cache"), []

    class Library:
        @staticmethod
        def snapshot_download(repo_id: str, **options: Any) -> str:
            asked.append((repo_id, options))
            return str(folder)

    monkeypatch.setattr(hub, "hub", lambda: Library)
    assert quatcaps.from_pretrained("me/mine", revision="v1").class_names == mnist.class_names
    allowed = ["config.json", "model.safetensors"]
    assert asked == [("me/mine", {"revision": "v1", "token": None, "allow_patterns": allowed})]


def test_what_goes_wrong_is_one_line(mnist: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QuatcapsError, match=r"cannot upload to me/mine: no connection$"):
        mnist.push_to_hub("me/mine", api=Recorder(OSError("no connection\nat all")))
    for name in ("mine", "/nowhere/at/all", "a/b/c", "./a"):
        with pytest.raises(QuatcapsError, match="is neither a folder nor a repository: give OWNER/NAME"):
            quatcaps.from_pretrained(name)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(QuatcapsError, match=r"needs the package huggingface_hub: pip install 'quatcaps\[hub\]'"):
        quatcaps.from_pretrained("me/mine")


def test_the_library_has_what_is_called() -> None:
    """The stub stands in for functions that take these arguments."""
    import inspect

    library = pytest.importorskip("huggingface_hub")
    create, upload = (inspect.signature(getattr(library.HfApi, name)) for name in ("create_repo", "upload_folder"))
    create.bind(None, "me/mine", repo_type="model", private=None, exist_ok=True)
    upload.bind(None, repo_id="me/mine", repo_type="model", folder_path=".", revision=None, commit_message="")
    inspect.signature(library.snapshot_download).bind("me/mine", revision=None, token=None, allow_patterns=[])

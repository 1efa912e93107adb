"""`quatcaps weights`, and the commands that take weights for a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from quatcaps import data
from quatcaps.training.run import Run

NAME = "qcn-toys"


def one_line(text: str, *words: str) -> None:
    assert text.count("\n") == 1, text
    assert text.startswith("error: ")
    for word in words:
        assert word in text


@pytest.mark.parametrize("name", ["list", "verify"])
def test_nothing_is_published(name: str, nothing_published: Path, command: Callable) -> None:
    outcome = command("weights", name)
    assert outcome.code == 0
    assert "no weights come with this version" in outcome.out
    assert "quatcaps weights export RUN --name NAME" in outcome.out


def test_list(published: Path, command: Callable) -> None:
    outcome = command("weights", "list")
    assert outcome.code == 0, outcome.err
    card = json.loads((published / f"{NAME}.json").read_text())
    error, chosen = card["error"]["test"]["percent"], f"{NAME}: {card['chosen']}"
    for words in (NAME, "qcn-small", "toys-mini", "29,682", f"{error:.2f}", chosen):
        assert words in outcome.out


def test_show_is_markdown_with_everything(published: Path, command: Callable) -> None:
    outcome = command("weights", "show", NAME)
    assert outcome.code == 0, outcome.err
    card = json.loads((published / f"{NAME}.json").read_text())
    assert outcome.out.startswith(f"# {NAME}\n")
    for words in (
        card["file"]["sha256"],
        card["data"]["provenance"],
        card["training"]["command"],
        card["licence"],
        card["chosen"],
        "| learning\\_rate | 0.003 |",
        f"| test | {card['error']['test']['percent']:.2f} | {card['error']['test']['errors']} | 900 |",
    ):
        assert words in outcome.out, words


def test_export_verify_and_fail(toys_run: Run, toys_folder: Path, tmp_path: Path, command: Callable) -> None:
    folder = tmp_path / "out"
    arguments = ("--output", folder, "--device", "cpu", "--data-dir", toys_folder)
    outcome = command("weights", "export", toys_run.folder, "--name", "mine", *arguments)
    assert outcome.code == 0, outcome.err
    assert "test: " in outcome.out
    source = folder / "mine.safetensors"
    outcome = command("weights", "verify", source, "--device", "cpu", "--data-dir", toys_folder)
    assert outcome.code == 0, outcome.err
    assert "mine: the file is the card's" in outcome.out
    assert "of 900) on cpu, as on the card" in outcome.out
    source.write_bytes(source.read_bytes()[:-1])
    outcome = command("weights", "verify", source, "--device", "cpu", "--data-dir", toys_folder)
    assert outcome.code == 1
    one_line(outcome.err, "1 not as on the card: mine:", "it is truncated")


def test_verify_downloads_nothing(
    published: Path, tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quatcaps.data.published.download", lambda *arguments, **more: pytest.fail("downloaded"))
    path = published / f"{NAME}.json"
    card = json.loads(path.read_text())
    card["configuration"]["dataset"] = card["data"]["dataset"] = "smallnorb"
    path.write_text(json.dumps(card))
    outcome = command("weights", "verify", NAME, "--data-dir", tmp_path / "data")
    assert outcome.code == 0, outcome.err
    assert "the error was not measured: smallNORB is not in" in outcome.out
    assert f"quatcaps data prepare smallnorb --data-dir {tmp_path / 'data'}" in outcome.out
    assert not (tmp_path / "data").exists()


def test_evaluate_weights(published: Path, toys_run: Run, toys_folder: Path, tmp_path: Path, command: Callable) -> None:
    before = set(tmp_path.rglob("*"))
    arguments = ("--data-dir", toys_folder, "--device", "cpu")
    by_name = command("evaluate", "--weights", NAME, *arguments)
    assert by_name.code == 0, by_name.err
    assert set(tmp_path.rglob("*")) == before, "nothing is left unless it is asked for"
    card = json.loads((published / f"{NAME}.json").read_text())
    assert f"({card['error']['test']['errors']} of 900 images)" in by_name.out
    by_run = command("evaluate", toys_run.folder, "--output", tmp_path / "out", *arguments)
    assert by_run.out.startswith(by_name.out), "the same tables; a run's go to a folder too"
    assert (tmp_path / "out" / "evaluation-test.json").exists()


def test_predict_with_weights(
    published: Path, toys_run: Run, toys_folder: Path, tmp_path: Path, command: Callable
) -> None:
    images, path = data.load("toys-mini", "test", folder=toys_folder), tmp_path / "pair.png"
    Image.fromarray(torch.cat(list(images.images[7]), 1).numpy()).save(path)
    by_run = command("predict", toys_run.folder, path, path, "--device", "cpu")
    by_name = command("predict", "--weights", NAME, path, path, "--device", "cpu")
    assert by_name.code == 0, by_name.err
    assert by_name.out == by_run.out
    assert by_name.out.count(f"{path}: ") == 2


def test_run_or_weights_but_not_both(published: Path, toys_run: Run, command: Callable) -> None:
    outcome = command("evaluate", toys_run.folder, "--weights", NAME)
    assert outcome.code == 1
    one_line(outcome.err, "were both given: give one of them")
    outcome = command("evaluate")
    assert outcome.code == 1
    one_line(outcome.err, "give the folder of a run, or --weights NAME")
    outcome = command("predict", toys_run.folder)
    assert outcome.code == 1
    one_line(outcome.err, "no image was given after the run")
    outcome = command("evaluate", "--weights", "qcn-toyz")
    assert outcome.code == 1
    one_line(outcome.err, "unknown weights 'qcn-toyz': did you mean 'qcn-toys'? Known: qcn-toys")

"""Damaged and hostile files: whatever stands in them, they are read, or refused in one line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.models.stored import check_network
from quatcaps.paper.recipes import small
from quatcaps.paper.record import read_record
from quatcaps.training.checkpoint import read_position
from quatcaps.training.log import read_log
from quatcaps.training.run import create_run, open_run
from quatcaps.weights import zoo
from quatcaps.weights.cards import read_card

ROOT = Path(__file__).parents[1]
HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 10**12, 10**400, -(10**18), float("inf"), float("nan"), 1e308),
    *("", "x", "\x1b[2J", "../..", "a\0b", "\ud800", "1000000000000", "[[[[", "y" * 5000),
    *([], {}, [1, [2]], {"name": "em"}, {"x": {"y": None}}, [10**12] * 3, [[8, 1]] * 2000),
)
DEEP = "[" * 5000
NUMBER_OF_MUTATIONS = 150


def mutated(text: str, chance: random.Random) -> str:
    """The text of a JSON file with one thing changed: a value, an entry, some characters, or the end cut off."""
    kind = chance.randrange(6)
    at = chance.randrange(len(text))
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + chance.choice(['"', "{", "}", "NaN", "-Infinity", "1e999", DEEP, "\x00", ","]) + text[at:]
    value = json.loads(text)
    holder, key = chance.choice(places(value))
    if kind == 2 and isinstance(holder, dict):
        holder.pop(key)
        holder[chance.choice(["", "residence", "x" * 300, "routing.iterations"])] = chance.choice(HOSTILE)
    else:
        holder[key] = chance.choice(HOSTILE)
    return json.dumps(value)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Everything in a JSON value that can be replaced."""
    found: list[tuple[Any, Any]] = []
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        found.append((value, key))
        if isinstance(item, dict | list):
            found += places(item)
    return found


def run_of(path: Path) -> None:
    run = open_run(path.parent)
    check_network(run.config.model, run.channels, len(run.classes), run.config.model_settings)


def card_of(path: Path) -> None:
    card = read_card(path)
    check_network(card.model, card.channels, len(card.classes), card.config.model_settings)


@pytest.fixture(scope="module")
def run_text(noise_images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    settings = {"model": "qcn-small", "model_settings": {"primary": 8, "routing": {"name": "em", "iterations": 3}}}
    create_run(folder, small().changed({**settings, "dataset": "toys-mini"}), noise_images)
    return (folder / "run.json").read_text()


def outcomes(read: Callable[[Path], object], path: Path, text: str, seed: int) -> tuple[int, int]:
    """How many mutations of a file were read, and how many refused; any other error is the test's."""
    chance, taken = random.Random(seed), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    read(path)
    for _ in range(NUMBER_OF_MUTATIONS):
        changed = mutated(text, chance)
        path.write_text(changed, errors="surrogatepass")
        try:
            read(path)
            taken += 1
        except QuatcapsError:
            pass
        except Exception as error:
            raise AssertionError(f"{changed[:2000]!r} ended in {error!r}") from error
    return taken, NUMBER_OF_MUTATIONS - taken


def test_descriptions_of_runs(run_text: str, tmp_path: Path) -> None:
    taken, refused = outcomes(run_of, tmp_path / "run.json", run_text, 1)
    assert taken
    assert refused > 50


def test_cards(tmp_path: Path) -> None:
    text = (zoo.PUBLISHED / "qcn-mnist.json").read_text()
    assert outcomes(card_of, tmp_path / "qcn-mnist.json", text, 2)[1] > 50


def test_records(tmp_path: Path) -> None:
    source = ROOT / "results/runs/smallnorb/qcn/best/seed-0.json"
    value = json.loads(source.read_text())
    value["epochs"], value["config"]["epochs"] = value["epochs"][:3], 3
    assert outcomes(read_record, tmp_path.joinpath(*source.parts[-4:]), json.dumps(value), 3)[1] > 50


def test_lines_of_logs(tmp_path: Path) -> None:
    """Each in the middle of a log, as a last line that is damaged counts as cut short."""
    entry = {"kind": "epoch", "step": 8, "epoch": 0, "loss": 0.5, "error": 0.25, "test_error": None, "seconds": 1.5}
    whole = json.dumps(entry)

    def between(path: Path) -> None:
        path.write_text(f"{whole}\n{path.read_text()}\n{whole}\n")
        for record in read_log(path):
            _ = (record["step"] <= 8, record["epoch"] < 1, float(record.get("seconds", 0)))

    assert outcomes(between, tmp_path / "log.jsonl", whole, 4)[1] > 50


def test_states_of_checkpoints(tmp_path: Path) -> None:
    state = {"format": 2, "step": 9, "epoch": 1, "batch": 2, "loss_sum": 0.5, "errors": 3, "seconds": 1.5}
    assert outcomes(lambda path: read_position(path.parent), tmp_path / "state.json", json.dumps(state), 5)[1] > 50


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"channels": 10**12}, r"channels = 1000000000000: a whole number from 1 to 4,096"),
        ({"channels": "2"}, "channels = 2: a whole number"),
        ({"classes": ["one"]}, "classes = 1: a whole number from 2"),
        ({"classes": "abc"}, "a list of names"),
        ({"size": [32, 10**9]}, "width = 1000000000"),
    ],
)
def test_runs_of_impossible_shapes(change: dict[str, Any], words: str, run_text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(json.loads(run_text) | change))
    with pytest.raises(QuatcapsError, match=words):
        open_run(tmp_path)


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        ("qcn-small", {"primary": 10**12}, "model setting primary = 1000000000000: at most 1,000,000"),
        ("qcn-small", {"primary": "1000000000000"}, "model setting primary = 1000000000000"),
        ("qcn-small", {"pose_blocks": [[8, 2]] * 2000}, "pose_blocks has 2,000 entries: at most 1,000"),
        ("qcn-small", {"capsules": [[10**6, 3, 1], [10**6, 3, 1]]}, "parameters: at most 2,000,000,000"),
        ("resnet-20", {"blocks": 10**6}, "1,000,000 blocks of a stage: at most 1,000"),
    ],
)
def test_networks_that_no_machine_holds(
    model: str, settings: dict[str, Any], words: str, run_text: str, tmp_path: Path
) -> None:
    """Refused by their shapes, before memory is taken."""
    text = json.loads(run_text)
    text["config"] |= {"model": model, "model_settings": settings}
    (tmp_path / "run.json").write_text(json.dumps(text))
    with pytest.raises(QuatcapsError, match=words):
        open_run(tmp_path).network()


def test_weights_that_are_too_few_for_a_large_network(run_text: str, tmp_path: Path) -> None:
    text = json.loads(run_text)
    text["config"] |= {"model": "resnet-20", "model_settings": {"widths": [2000, 2000]}}
    (tmp_path / "run.json").write_text(json.dumps(text))
    weights = tmp_path / "checkpoints" / "step-00000001" / "weights.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"few")
    with pytest.raises(QuatcapsError, match=r"it has 3 bytes, and the network [0-9,]+ parameters"):
        open_run(tmp_path).trained_network()

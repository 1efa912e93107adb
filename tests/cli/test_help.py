"""Help in sections, names that are known before torch is, and what a shell completes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from quatcaps import data
from quatcaps.cli import choices, panels
from quatcaps.cli.flags import ALIASES
from quatcaps.models import MODELS
from quatcaps.paper.recipes import RECIPES
from quatcaps.pipelines import Pipeline
from quatcaps.training.config import TrainingConfig
from quatcaps.training.run import CHECKPOINTS
from quatcaps.weights import zoo


def test_the_names_are_those_that_there_are(own_names: None) -> None:
    assert tuple(MODELS) == choices.MODELS
    assert tuple(data.DATASETS) == choices.DATASETS
    assert tuple(RECIPES) == choices.RECIPES
    assert choices.CHECKPOINTS == CHECKPOINTS
    assert choices.complete_weights("") == zoo.names()
    assert choices.complete_weights("qcn-m") == ["qcn-mnist"]
    assert choices.completing(("qcn", "em"))("q") == ["qcn"]


def test_every_setting_has_a_section() -> None:
    own = {field.name for field in dataclasses.fields(TrainingConfig)}
    of_images = {field.name for field in dataclasses.fields(Pipeline)}
    listed = [name for names in panels.PANELS.values() for name in names]
    assert sorted(listed) == sorted(own - of_images)


def test_help_stands_in_sections_and_names_the_choices(command: Callable) -> None:
    text = command("train", "--help").out
    places = [text.index(f"\n{name}:\n") for name in ("Options", *panels.PANELS, panels.IMAGES)]
    assert places == sorted(places)
    assert places[1] < text.index("  --dataset <str>") < places[2] < text.index("  --model <str>")
    assert places[-1] < text.index("  --image-size")
    words = re.sub(r"-\s+", "-", " ".join(text.split()))
    for names in choices.CHOICES.values():
        assert [name for name in names if name not in words] == []
    assert "--learning-rate, --lr" in text
    assert "--batch, --batch-size" in text
    assert "smallnorb, mnist" in words


def test_other_names_of_flags_set_the_same(command: Callable) -> None:
    given = ("--recipe", "small", "--device", "cpu", "--print-config")
    for field, (alias,) in ALIASES.items():
        name = f"--{field.replace('_', '-')}"
        short, long = (command("train", *given, each, 7).out for each in (alias, name))
        assert short == long
        assert f'"{field}": 7' in short


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("quatcaps train --model qcn-rotor-s", ["qcn-rotor-small"]),
        ("quatcaps train --recipe demo-", ["demo-cnn"]),
        ("quatcaps train --schedule co", ["cosine", "constant"]),
        ("quatcaps evaluate --checkpoint b", ["best"]),
        ("quatcaps eval", ["evaluate"]),
    ],
)
def test_a_shell_completes(words: str, wanted: list[str], command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_QUATCAPS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert sorted(command().out.split()) == sorted(wanted)


def test_the_script_of_a_shell_can_be_shown(command: Callable) -> None:
    assert "--install-completion" in command("--help").out

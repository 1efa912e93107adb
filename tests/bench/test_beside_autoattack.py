"""`benchmarks/beside_autoattack.py`: what it counts, with something else in the place of AutoAttack's public code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import beside_autoattack
from beside_autoattack import NAME, main, parsed, table_of
from public_clones import recorded
from quatcaps.console import standard_output
from quatcaps.errors import QuatcapsError
from quatcaps.weights import card

DOCS = Path(__file__).parents[2] / "docs" / "robustness.md"
STAND_IN = """
class Settings: pass

class AutoAttack:
    def __init__(self, model, norm, eps, version, attacks_to_run, device, verbose, seed):
        assert (norm, version, device) == ("Linf", "custom", "cpu")
        assert attacks_to_run == ["apgd-ce", "apgd-t", "fab-t", "square"]
        self.apgd, self.apgd_targeted, self.fab, self.square = (Settings() for _ in range(4))
        self.model, self.eps = model, eps

    def run_standard_evaluation(self, pixels, labels, bs):
        assert {one.n_iter for one in (self.apgd, self.apgd_targeted, self.fab)} == {1}
        assert {one.n_restarts for one in (self.apgd, self.apgd_targeted, self.fab)} == {2}
        assert (self.apgd_targeted.n_target_classes, self.fab.n_target_classes, self.square.n_queries) == (4, 4, 3)
        if self.eps > 0.7:
            return pixels
        made = pixels.clone()
        made[0] = pixels[labels != labels[0]][0]
        return made
"""
SHORT = ("--images", "4", "--steps", "1", "--queries", "3", "--restarts", "2")


@pytest.fixture
def run(few_toys: Path) -> Callable[..., None]:
    """The command, of a folder with public code and one for what is written."""

    def command(folder: Path, output: Path, *options: str) -> None:
        given = [str(folder), *SHORT, *options, "--data-dir", str(few_toys), "--output", str(output)]
        main(parsed(given), standard_output())

    return command


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "public" / "autoattack").mkdir(parents=True)
    (tmp_path / "public" / "autoattack" / "__init__.py").write_text(STAND_IN)
    monkeypatch.delitem(__import__("sys").modules, "autoattack", raising=False)
    return tmp_path / "public"


@pytest.mark.usefixtures("unchecked")
def test_images_are_counted_by_who_breaks_them(run: Callable[..., None], public: Path, tmp_path: Path) -> None:
    """Ours breaks none at a millionth, and all of a large ε. The stand-in puts an image of another class in the place
    of the first one, and at ε = 0.8 changes nothing."""
    run(public, tmp_path, "--epsilon", "1e-6,0.6,0.8")
    network = recorded(tmp_path / NAME)["qcn-toys"]
    assert (network["images"], network["dataset"]) == (4, card("qcn-toys").config.dataset)
    found = [tuple(line.values()) for line in network["found"]]
    assert found == [(1e-6, 0, 0, 0, 1), (0.6, 0, 1, 3, 0), (0.8, 0, 0, 4, 0)]
    assert [*network["found"][0]] == ["epsilon", "clean", "both", "ours_alone", "theirs_alone"]
    assert table_of(recorded(tmp_path / NAME)).rows[1] == ("qcn-toys", "4", "0.6", "0", "1", "3", "0")


@pytest.mark.usefixtures("unchecked")
def test_networks_stand_beside_each_other(run: Callable[..., None], public: Path, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"format": 1, "networks": {"other": {"images": 1, "found": []}}}')
    run(public, tmp_path, "--epsilon", "1e-6")
    assert recorded(tmp_path / NAME).keys() == {"other", "qcn-toys"}


def test_what_is_wrong_is_told(run: Callable[..., None], public: Path, tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match="has no folder autoattack: clone the public code"):
        run(tmp_path, tmp_path)
    with pytest.raises(QuatcapsError, match="'little' is no number"):
        run(public, tmp_path, "--epsilon", "little")
    with pytest.raises(QuatcapsError, match="has no comparisons"):
        main(parsed(["--tables", "--output", str(tmp_path)]), standard_output())
    with pytest.raises(QuatcapsError, match="give where AutoAttack's public code lies"):
        main(parsed(["--output", str(tmp_path)]), standard_output())
    (public / "autoattack" / "__init__.py").write_text("import nothing_of_that_name")
    with pytest.raises(QuatcapsError, match="is not the public code that this was written for"):
        run(public, tmp_path)
    assert not (tmp_path / NAME).exists()


def test_the_page_of_robustness_has_what_was_found() -> None:
    text = DOCS.read_text(encoding="utf-8")
    lines = table_of(recorded(beside_autoattack.RESULTS / NAME)).rows
    assert {line[0] for line in lines} == {"qcn-toys", "qcn-cifar10"}
    for line in lines:
        name, *others = line
        assert "| " + " | ".join((f"`{name}`", *others)) + " |" in text

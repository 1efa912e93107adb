"""`quatcaps attack`: tables, numbers and a picture; what it refuses."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import quatcaps
from quatcaps import data
from quatcaps.cli.attack import EPSILONS as USUAL_EPSILONS
from quatcaps.cli.attack import numbers_of
from quatcaps.cli.choices import ATTACKS
from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.report.intervals import mcnemar
from quatcaps.report.robustness import ATTACKS as DRAWN
from quatcaps.report.robustness import attack_figure
from quatcaps.robustness import Attacked, attack, attacks, measure
from quatcaps.robustness.measure import EPSILONS
from quatcaps.robustness.trials import some_images
from quatcaps.robustness.unfinished import Unfinished
from quatcaps.training import checkpoint
from quatcaps.training.checkpoint import Position
from quatcaps.training.config import TrainingConfig
from quatcaps.training.run import create_run
from quatcaps.weights.zoo import named_or_run

TINY = {"primary": 4, "pose_blocks": ((8, 2), (8, 2)), "activation_blocks": ((8, 4),), "capsules": ((4, 3, 2),)}
SHORT = ("--images", 10, "--epsilon", "0.02,1/10", "--steps", 2, "--queries", 3, "--device", "cpu")


@pytest.fixture(scope="module")
def runs(toys_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs whose networks nobody trained: capsules, and a network without."""
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    shapes = (("capsules", "qcn", TINY), ("plain", "cnn-small", {"widths": (4, 4)}), ("best", "qcn", TINY))
    for name, model, settings in shapes:
        config = TrainingConfig(dataset="toys-mini", model=model, model_settings=settings, epochs=1, device="cpu")
        if name == "best":
            config = config.changed({"validation": 0.2, "keep_best": True})
        run = create_run(folder / name, config, data.load("toys-mini", "train", folder=toys_folder))
        network = run.network()
        optimiser = torch.optim.Adam(network.parameters())
        checkpoint.save(run.checkpoints, network, optimiser, Position(step=1, epoch=1, seconds=1.0))
        found[name] = folder / name
    return found


@pytest.mark.usefixtures("unchecked")
def test_two_networks_side_by_side(command: Callable, runs: dict[str, Path], toys_folder: Path, tmp_path: Path) -> None:
    given = (
        "--beside",
        runs["plain"],
        "--from",
        runs["plain"],
        "--attacks",
        "fgsm,pgd,vote",
        "--data-dir",
        toys_folder,
    )
    outcome = command("attack", runs["capsules"], *given, *SHORT)
    assert outcome.code == 0, outcome.err
    for words in ("capsules (", "plain (", "any of them", "from plain", "gradient masking", "attack.png"):
        assert words in outcome.out
    value = json.loads((runs["capsules"] / "attack.json").read_text())
    capsules, plain = value["networks"]
    assert list(capsules["attacks"]) == ["fgsm", "pgd", "vote"]
    assert list(plain["attacks"]) == ["fgsm", "pgd"]  # no votes
    assert list(capsules["transfer"]) == [str(runs["plain"])]
    assert plain["transfer"] == {}  # not from itself
    assert [each["epsilon"] for each in capsules["strongest"]] == [0.02, 0.1]
    assert {sign["check"] for sign in capsules["masking"]} >= {"votes", "transfer", "black box"}
    assert (runs["capsules"] / "attack.png").read_bytes().startswith(b"\x89PNG")
    assert not list(runs["plain"].glob("attack.*"))
    for network in (capsules, plain):
        for point, numbers in zip(network["strongest"], network["broken"], strict=True):
            assert len(numbers.split()) == point["errors"], "which images they are"
    first, second = (set(network["broken"][0].split()) for network in (capsules, plain))
    alone = len(first - second), len(second - first)
    assert f"{alone[0]} : {alone[1]} ({mcnemar(*alone):.3f})" in outcome.out
    assert Attacked.from_json(capsules).to_json() == capsules


@pytest.mark.usefixtures("unchecked")
def test_the_file_says_which_checkpoint_was_attacked(
    command: Callable, runs: dict[str, Path], toys_folder: Path, tmp_path: Path
) -> None:
    given = ("--attacks", "fgsm", "--no-masking", "--data-dir", toys_folder, "--output", tmp_path, "--json")
    value = json.loads(command("attack", runs["best"], *given, *SHORT).out)
    assert value["networks"][0]["checkpoint"] == "last", "the best one is not there yet"


@pytest.mark.usefixtures("unchecked")
def test_the_same_numbers_every_time(
    command: Callable, runs: dict[str, Path], toys_folder: Path, tmp_path: Path
) -> None:
    given = ("--attacks", "pgd,square", "--no-masking", "--normalised", "--data-dir", toys_folder, "--json", *SHORT)
    first, second = (command("attack", runs["plain"], "--output", tmp_path / name, *given) for name in ("one", "two"))
    assert first.code == 0, first.err
    value = json.loads(first.out)
    assert first.out == second.out
    assert value == json.loads((tmp_path / "one" / "attack.json").read_text())
    assert value["epsilon_unit"] == "network input"
    assert value["effort"] == {"steps": 2, "restarts": 1, "queries": 3}
    assert value["networks"][0]["clean"]["images"] == 10
    assert value["networks"][0]["checkpoint"] is None, "there is one alone"
    assert not (runs["plain"] / "attack.json").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--epsilon", "0.03,x"), "--epsilon '0.03,x': 'x' is no number; write 0.01,0.031 or 8/255"),
        (("--epsilon", "8"), "ε = 8: pixels lie in [0, 1], it must be above 0 and at most 1; for 8/255 give 0.0314"),
        (("--epsilon", ","), "no ε was given: give at least one, such as 0.031"),
        (("--attacks", "vote"), "is a SmallCNN without class capsules, so that there are no votes to attack"),
        (("--attacks", "pdg"), "unknown attack 'pdg': did you mean 'pgd'?"),
        (("--beside", "qcn-mnist"), "qcn-mnist was trained on mnist"),
        (("--frame", "40"), "--frame 40 is for affine changes: give --affine too"),
        (("--affine",), "affine changes are for what stands on a black ground, such as mnist"),
    ],
)
def test_what_it_refuses(
    given: tuple[str, ...], message: str, command: Callable, runs: dict[str, Path], toys_folder: Path
) -> None:
    outcome = command("attack", runs["plain"], *given, "--images", 5, "--device", "cpu", "--data-dir", toys_folder)
    assert outcome.code == 1
    assert message in outcome.err
    assert not list(runs["plain"].glob("a[tf]*.json"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--beside", "plain", "--attacks", "vote"), "plain has no votes to attack"),
        (("--from", "capsules", "--attacks", "fgsm"), "is the network that is attacked: give another one"),
        (("--from", "best", "--attacks", "fgsm"), "is the network that is attacked: give another one"),
        (("--beside", "best"), "is a network that is attacked already: give another one"),
        (("--affine", "--attacks", "fgsm"), "not for affine changes: --attacks;"),
        (
            ("--affine", "--epsilon", "0.1", "--steps", "5", "--no-masking"),
            "changes: --epsilon, --steps, --no-masking;",
        ),
        (
            ("--affine", "--queries", "200", "--normalised", "--restarts", "1"),
            "changes: --normalised, --restarts, --queries;",
        ),
        (("--attacks", "fgsm", "--output", "afile"), "cannot make the folder"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_attacked(
    command: Callable, runs: dict[str, Path], toys_folder: Path, tmp_path: Path, given: tuple[str, ...], words: str
) -> None:
    (tmp_path / "afile").touch()
    places = {**runs, "afile": tmp_path / "afile"}
    outcome = command(
        "attack", runs["capsules"], *(places.get(word, word) for word in given), "--data-dir", toys_folder
    )
    assert outcome.code == 1
    assert words in outcome.err
    assert "attacking" not in outcome.out + outcome.err


@pytest.mark.usefixtures("unchecked")
def test_runs_of_one_name_are_told_apart(
    command: Callable, runs: dict[str, Path], toys_folder: Path, tmp_path: Path
) -> None:
    """By as much of their paths as that takes. Without an ε there is a file that can be read, and a picture."""
    one, other = (
        shutil.copytree(runs[name], tmp_path / name / "seed-0", dirs_exist_ok=True) for name in ("capsules", "plain")
    )
    given = (
        "--beside",
        other,
        "--attacks",
        "deepfool",
        "--no-masking",
        "--data-dir",
        toys_folder,
        "--output",
        tmp_path,
    )
    outcome = command("attack", one, *given, *SHORT)
    assert outcome.code == 0, outcome.err
    assert "capsules/seed-0" in outcome.out
    assert "plain/seed-0" in outcome.out
    value = json.loads((tmp_path / "attack.json").read_text())
    found = [Attacked.from_json(network) for network in value["networks"]]
    assert [each.epsilons for each in found] == [(0.02, 0.1)] * 2
    attack_figure([replace(each, epsilons=()) for each in found], tmp_path / "again.png")
    assert (tmp_path / "again.png").exists()


def test_names_are_those_that_there_are() -> None:
    assert ATTACKS == attacks.ATTACKS
    assert set(DRAWN) == set(attacks.WITHIN)
    assert set(attacks.USUAL) <= set(ATTACKS)
    assert tuple(numbers_of(USUAL_EPSILONS)) == EPSILONS
    with pytest.raises(QuatcapsError, match="1/0"):
        numbers_of("1/0")


@pytest.mark.usefixtures("unchecked")
def test_an_attack_that_was_stopped_goes_on(
    command: Callable, runs: dict[str, Path], toys_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last attack that was done; the numbers are those of one that was not stopped."""
    called: list[str] = []

    def counted(name: str, attack: Callable, *, stops: bool = False) -> Callable:
        def count(*given: object) -> object:
            called.append(name)
            if stops:
                raise KeyboardInterrupt
            return attack(*given)

        return count

    whole, there = tmp_path / "whole", tmp_path / "there"
    given = ["--attacks", "fgsm,pgd,deepfool", "--from", runs["capsules"], "--data-dir", toys_folder, *SHORT]
    assert command("attack", runs["plain"], *given, "--output", whole).code == 0
    with monkeypatch.context() as patched:
        patched.setitem(attacks.WITHIN, "fgsm", counted("fgsm", attacks.WITHIN["fgsm"]))
        patched.setitem(attacks.NEAREST, "deepfool", counted("deepfool", attacks.NEAREST["deepfool"], stops=True))
        assert command("attack", runs["plain"], *given, "--output", there).code != 0
    assert called == ["fgsm", "fgsm", "deepfool"], "one batch for each ε"
    (begun,) = there.iterdir()
    stopped = begun.read_bytes()
    edited = json.loads(stopped)
    edited["found"] = {name: found[:1] for name, found in edited["found"].items()}
    anew = {"cut": stopped[:-9], "edited": json.dumps(edited).encode()}
    for folder, content in anew.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / begun.name).write_bytes(content)
    with monkeypatch.context() as patched:
        patched.setitem(attacks.WITHIN, "fgsm", counted("again", attacks.WITHIN["fgsm"]))
        assert command("attack", runs["plain"], *given, "--output", there).code == 0
        assert "again" not in called
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / begun.name).write_bytes(stopped)
        for other in (
            *(("--output", tmp_path / folder) for folder in anew),
            ("--seed", "1", "--output", tmp_path / "other"),
        ):
            assert command("attack", runs["plain"], *given, *other).code == 0
            assert called.pop() == "again"
    assert (there / "attack.json").read_bytes() == (whole / "attack.json").read_bytes()
    assert {path.name for path in there.iterdir()} == {"attack.json", "attack.png"}
    assert (tmp_path / "other" / begun.name).read_bytes() == stopped, "other settings have a file of their own"
    (there / begun.name).write_bytes(stopped)
    given[1] = "fgsm"
    assert command("attack", runs["plain"], *given, "--no-masking", "--output", there).code == 0
    left = json.loads((there / begun.name).read_text())["found"]
    assert left, "a short look leaves what a longer one found of other attacks"
    assert set(left) < set(json.loads(stopped)["found"])


@pytest.mark.parametrize("kind", [(), ("--affine",)])
def test_ctrl_c_says_what_is_kept(
    kind: tuple[str, ...], command: Callable, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["quatcaps.cli.attack"], "test_images", interrupted)
    for where, words in (
        ((runs["plain"],), "what was finished is kept"),
        (("--weights", "qcn-mnist", "--output", tmp_path), "what was finished is kept"),
        (("--weights", "qcn-mnist"), "nothing is kept, as weights have no folder: give --output FOLDER"),
    ):
        outcome = command("attack", *where, *kind)
        assert outcome.code == 130
        assert words in outcome.err


def test_what_was_begun_on_one_machine_goes_on_where_pixels_round_otherwise(
    runs: dict[str, Path], toys_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU divides by 255 otherwise than a CPU."""
    images = some_images(data.load("toys-mini", "test", folder=toys_folder), 4)
    short = {"attacks": ["fgsm"], "epsilons": (0.1,), "masking": False}

    def begun(images: ImageSet) -> str:
        unfinished = Unfinished(tmp_path)
        attack(named_or_run(str(runs["plain"])), images, torch.device("cpu"), unfinished=unfinished, **short)
        return unfinished.of

    here, other = begun(images), begun(images.select(torch.tensor([3, 2, 1, 0]), images.name))
    assert here != other
    exact = measure.pixels_of
    monkeypatch.setattr(measure, "pixels_of", lambda *given: exact(*given).nextafter(torch.tensor(0.5)))
    assert begun(images) == here
    monkeypatch.setattr(quatcaps, "__version__", "0.0.1")
    assert begun(images) != here, "another version may attack otherwise"


def test_attacks_that_share_a_file_leave_each_other_alone(tmp_path: Path) -> None:
    one, other = (Unfinished(tmp_path).begin("a" * 64) for _ in range(2))
    (path,) = tmp_path.iterdir()
    assert one.once("fgsm", lambda: [1]) == [1]
    assert other.once("pgd", lambda: [2]) == [2]
    assert one.once("square", lambda: [3]) == [3]
    assert set(json.loads(path.read_text())["found"]) == {"fgsm", "pgd", "square"}
    one.finish()
    assert set(json.loads(path.read_text())["found"]) == {"pgd"}
    assert Unfinished(tmp_path).begin("a" * 64).once("pgd", lambda: [4]) == [2]
    other.finish()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_to_is_told_before_the_first_attack(
    runs: dict[str, Path], toys_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise QuatcapsError("permission denied")

    monkeypatch.setattr("quatcaps.robustness.unfinished.write_json", refuse)
    monkeypatch.setitem(attacks.WITHIN, "fgsm", lambda *_: pytest.fail("attacked"))
    images = some_images(data.load("toys-mini", "test", folder=toys_folder), 4)
    with pytest.raises(QuatcapsError, match="permission denied"):
        attack(
            named_or_run(str(runs["plain"])),
            images,
            torch.device("cpu"),
            attacks=["fgsm"],
            unfinished=Unfinished(tmp_path),
        )


@pytest.mark.usefixtures("unchecked")
def test_of_one_epsilon_nothing_is_said_of_growing_ones(
    command: Callable, runs: dict[str, Path], toys_folder: Path, tmp_path: Path
) -> None:
    given = ("--attacks", "fgsm", "--data-dir", toys_folder, "--output", tmp_path, "--json")
    for epsilons, said in (("0.1", False), ("0.05,0.1", True)):
        value = json.loads(command("attack", runs["plain"], *given, *SHORT, "--epsilon", epsilons).out)
        assert ("growing ε" in {sign["check"] for sign in value["networks"][0]["masking"]}) == said


def test_weights_without_a_folder_say_that_nothing_is_kept(command: Callable, few_toys: Path) -> None:
    given = ("--attacks", "fgsm", "--no-masking", "--data-dir", few_toys, *SHORT)
    assert "if you give --output" in command("attack", "--weights", "qcn-toys", *given).out

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from quatcaps import quaternion
from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import views_of
from quatcaps.errors import QuatcapsError
from quatcaps.report import page
from quatcaps.report.demo_page import Contender, findings, introduction, write_demo
from quatcaps.training.measure import Evaluation, Rate, evaluate
from quatcaps.training.poses import CHANCE

VOID = {"meta", "img", "br", "link"}


class Reader(HTMLParser):
    """Checks that tags are balanced; collects images, addresses and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(dict(attrs))
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def contender(
    name: str,
    summary: str,
    parameters: int,
    seconds: float,
    found: tuple[Evaluation, Tensor, Tensor],
    log: list[dict[str, Any]],
) -> Contender:
    evaluation, degrees, activations = found
    return Contender(name, summary, parameters, seconds, evaluation, degrees, log, "cross-entropy", activations)


def turned(images: ImageSet, about: float, seed: int, share: float = 0.1) -> tuple[Evaluation, Tensor, Tensor]:
    """An evaluation with poses that are off by angles of about so many degrees, the angles, and the activations."""
    generator = torch.Generator().manual_seed(seed)
    degrees = (about * torch.rand(len(images), generator=generator, dtype=torch.float64) * 2).clamp(max=179)
    half = (degrees / 2).deg2rad()
    error = torch.stack((half.cos(), half.sin(), 0 * half, 0 * half), dim=1)
    poses = quaternion.product(error, views_of(images).orientations.double())
    activations = one_hot(images.labels, 5).float()
    wrong = torch.rand(len(images), generator=generator) < share
    activations[wrong] = activations[wrong].roll(1, 1)
    return evaluate(images, activations, poses[:, None].expand(-1, 5, -1).float()), degrees, activations


@pytest.fixture(scope="session")
def contenders(toys: ImageSet, log: Callable[[int], list[dict[str, Any]]]) -> list[Contender]:
    aligned = replace(toys, aligned=True)
    return [
        contender("qcn-rotor-small", "a small QCN", 51_234, 150.0, turned(aligned, 10.0, 1), log(3)),
        contender("cnn <b>", "a CNN", 50_001, 66.0, turned(aligned, 40.0, 2), log(3)),
    ]


@pytest.fixture(scope="session")
def folder(contenders: list[Contender], toys: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("demo") / "made" / "here"
    settings = {"epochs": "3", "<seed>": "0 & 1"}
    written = write_demo(target, contenders, toys, settings, "explorer.html", {"quatcaps evaluate 'a<b'": "Again:"})
    assert written == target / "index.html"
    return target


def test_the_folder_holds_all_files_and_nothing_else(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        "confusion-cnn-b-.png",
        "confusion-qcn-rotor-small.png",
        "index.html",
        "mistakes-cnn-b-.png",
        "mistakes-qcn-rotor-small.png",
        "orientation.png",
        "results.csv",
        "results.json",
        "results.md",
        "samples.png",
        "training.png",
    ]


def test_the_page_fetches_nothing_but_the_explorer_beside_it(folder: Path) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    reader = Reader(text)
    assert len(reader.images) == 7
    others = [address for address in reader.addresses if not address.startswith("data:image/png;base64,")]
    assert others == ["explorer.html", "explorer.html"]
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert not {"script", "link"}.intersection(reader.tags)
    assert reader.tags.count("iframe") == 1
    assert all(len(image["alt"] or "") > 20 for image in reader.images)
    assert "prefers-color-scheme: dark" in text
    assert '<meta name="viewport"' in text


def test_the_page_shows_the_mistakes_or_says_that_there_are_none(
    folder: Path,
    contenders: list[Contender],
    toys: ImageSet,
    log: Callable[[int], list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    shown = Reader((folder / "index.html").read_text(encoding="utf-8")).text
    errors = contenders[0].evaluation.total.errors
    assert f"qcn-rotor-small: 24 of {errors} mistakes shown, those first of which it was surest." in shown
    assert "mistakes-qcn-rotor-small.png" in shown.split("Beside this page")[1]
    perfect = contender("cnn", "a CNN", 1, 1.0, turned(replace(toys, aligned=True), 10.0, 1, share=0.0), log(1))
    write_demo(tmp_path, [perfect], toys, {})
    assert "cnn: no mistakes among 1,620 images." in Reader((tmp_path / "index.html").read_text(encoding="utf-8")).text
    assert not list(tmp_path.glob("mistakes*"))


def test_the_page_shows_the_numbers_with_names_escaped(folder: Path, contenders: list[Contender]) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    shown = Reader(text).text
    for contender in contenders:
        for number in (
            contender.name,
            f"{contender.parameters:,}",
            f"{contender.evaluation.total.percent:.2f}",
            f"{contender.poses.median:.1f}",
            f"{100 * contender.poses.within[1]:.1f}",
            f"{contender.seconds / 60:.1f}",
        ):
            assert number in shown
    assert "<b>" not in text
    assert "<seed>" not in text
    assert "quatcaps evaluate 'a<b'" in shown
    assert "0 & 1" in shown
    assert introduction(contenders) in shown
    assert findings(contenders) in shown


def test_the_angles_are_those_that_the_evaluation_has(contenders: list[Contender]) -> None:
    for contender in contenders:
        assert contender.poses.median == pytest.approx(contender.degrees.median().item(), abs=0.05)


def test_the_introduction_counts_from_the_data(contenders: list[Contender]) -> None:
    text = introduction(contenders)
    assert text.startswith("A small QCN (qcn-rotor-small) and a CNN (cnn <b>) were trained")
    assert "1,620 images of 10 toys" in text
    assert "5 classes: four-legged animal, human figure, airplane, truck and car" in text
    assert "wrong 80% of the time" in text
    assert "132° off" in text


def test_the_findings_follow_the_numbers(contenders: list[Contender]) -> None:
    def with_errors(errors: int, median: float, name: str) -> Contender:
        first = contenders[0]
        poses = replace(first.poses, median=median, within=(0.1, 0.625))
        return replace(first, name=name, evaluation=replace(first.evaluation, total=Rate(errors, 100), poses=poses))

    better = findings([with_errors(10, 20.0, "A"), with_errors(20, 50.0, "B")])
    assert "A names more of the toys and reads their orientation more closely." in better
    assert "B names 80.0% of the images, and is within 30° of the orientation in 62% of them." in better
    mixed = findings([with_errors(10, 40.0, "A"), with_errors(20, 15.0, "B")])
    assert "A names more of the toys; B reads their orientation more closely." in mixed
    assert "more" not in findings([with_errors(10, 40.0, "A")])


def test_results_for_programs(folder: Path, contenders: list[Contender]) -> None:
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert results["settings"] == {"epochs": "3", "<seed>": "0 & 1"}
    for network, contender in zip(results["networks"], contenders, strict=True):
        assert network["name"] == contender.name
        assert network["test"] == contender.evaluation.to_json()
        assert network["test"]["poses"]["median_degrees"] == contender.poses.median
        assert [record["epoch"] for record in network["epochs"]] == [0, 1, 2]
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["network"] for row in rows] == ["qcn-rotor-small", "cnn <b>"]
    assert [float(row["class error (%)"]) for row in rows] == [
        pytest.approx(contender.evaluation.total.percent, abs=0.005) for contender in contenders
    ]
    assert [int(row["parameters"]) for row in rows] == [51_234, 50_001]


def test_the_summary_in_markdown(folder: Path) -> None:
    text = (folder / "results.md").read_text(encoding="utf-8")
    assert "| cnn &lt;b> | 50,001 |" in text
    assert "(orientation.png)" in text
    assert "<b>" not in text


def test_contenders_that_do_not_fit_are_refused_before_anything_is_written(
    contenders: list[Contender], toys: ImageSet, evaluation: Evaluation, tmp_path: Path
) -> None:
    target = tmp_path / "demo"
    with pytest.raises(QuatcapsError, match="at least one contender"):
        write_demo(target, [], toys, {})
    with pytest.raises(QuatcapsError, match="share a name"):
        write_demo(target, [contenders[0], contenders[0]], toys, {})
    with pytest.raises(QuatcapsError, match="cnn <b> has no errors of poses"):
        write_demo(target, [contenders[0], replace(contenders[1], evaluation=evaluation)], toys, {})
    assert not target.exists()


def test_half_of_random_orientations_are_within_chance() -> None:
    angle = math.radians(CHANCE)
    assert (angle - math.sin(angle)) / math.pi == pytest.approx(0.5, abs=1e-9)


def test_page_parts_escape_what_they_are_given(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG")
    parts = [
        page.section("<1>", page.paragraph("<2> & more"), page.folded("<3>", page.paragraph("inside"))),
        page.picture(picture, 'quote " and <4>', "caption <5>"),
    ]
    reader = Reader(page.document("<title>", parts))
    assert reader.images[0]["alt"] == 'quote " and <4>'
    for text in ("<title>", "<1>", "<2> & more", "<3>", "caption <5>"):
        assert text in reader.text


def test_a_missing_picture_is_named(tmp_path: Path) -> None:
    with pytest.raises(QuatcapsError, match=r"cannot read .*missing\.png"):
        page.picture(tmp_path / "missing.png", "nothing", "nothing")


def test_a_failed_page_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index.html"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        page.write_page(path, "lone surrogate \ud800", [])
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]

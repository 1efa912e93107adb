from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from quatcaps.data.imageset import ImageSet
from quatcaps.data.viewpoints import split_viewpoints
from quatcaps.errors import QuatcapsError
from quatcaps.report import page
from quatcaps.report.demo_page import Contender, findings, introduction, write_demo
from quatcaps.training.measure import Evaluation, Rate

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


@pytest.fixture(scope="session")
def contenders(
    toys: ImageSet,
    evaluated: Callable[[ImageSet, float, int], Evaluation],
    log: Callable[[int], list[dict[str, Any]]],
) -> list[Contender]:
    familiar, novel = split_viewpoints(toys, "azimuth")
    return [
        Contender(
            "qcn-small", "a small QCN", 51_234, 150.0, evaluated(familiar, 0.1, 1), evaluated(novel, 0.3, 2), log(3)
        ),
        Contender("cnn <b>", "a CNN", 50_001, 66.0, evaluated(familiar, 0.2, 3), evaluated(novel, 0.5, 4), log(3)),
    ]


@pytest.fixture(scope="session")
def folder(
    contenders: list[Contender], toys: ImageSet, evaluation: Evaluation, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    target = tmp_path_factory.mktemp("demo") / "made" / "here"
    everything = {contender.name: evaluation for contender in contenders}
    settings = {"epochs": "3", "<seed>": "0 & 1"}
    written = write_demo(target, contenders, toys, everything, settings, {"quatcaps evaluate 'a<b'": "Again:"})
    assert written == target / "index.html"
    return target


def test_the_folder_holds_all_files_and_nothing_else(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        "azimuth.png",
        "confusion-cnn-b-.png",
        "confusion-qcn-small.png",
        "index.html",
        "results.csv",
        "results.json",
        "results.md",
        "samples.png",
        "training.png",
    ]


def test_the_page_stands_alone(folder: Path) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    reader = Reader(text)
    assert len(reader.images) == 5
    assert all(address.startswith("data:image/png;base64,") for address in reader.addresses)
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert not {"script", "link", "iframe"}.intersection(reader.tags)
    assert all(len(image["alt"] or "") > 20 for image in reader.images)
    assert "prefers-color-scheme: dark" in text
    assert '<meta name="viewport"' in text


def test_the_page_shows_the_numbers_with_names_escaped(folder: Path, contenders: list[Contender]) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    shown = Reader(text).text
    for contender in contenders:
        for number in (
            contender.name,
            f"{contender.parameters:,}",
            f"{contender.familiar.total.percent:.2f}",
            f"{contender.novel.total.percent:.2f}",
            f"{contender.seconds / 60:.1f}",
        ):
            assert number in shown
    assert "<b>" not in text
    assert "<seed>" not in text
    assert "quatcaps evaluate 'a<b'" in shown
    assert "0 & 1" in shown
    assert introduction(contenders) in shown
    assert findings(contenders) in shown


def test_the_introduction_counts_from_the_data(contenders: list[Contender]) -> None:
    text = introduction(contenders)
    assert text.startswith("A small QCN (qcn-small) and a CNN (cnn <b>) were trained")
    assert "6 azimuths (300°, 320°, 340°, 0°, 20° and 40°)" in text
    assert "12 others" in text
    assert "5 classes: four-legged animal, human figure, airplane, truck and car" in text
    assert "wrong 80% of the time" in text


def test_the_findings_follow_the_numbers(contenders: list[Contender]) -> None:
    def with_errors(familiar: int, novel: int, name: str) -> Contender:
        first = contenders[0]
        return replace(
            first,
            name=name,
            familiar=replace(first.familiar, total=Rate(familiar, 100)),
            novel=replace(first.novel, total=Rate(novel, 100)),
        )

    better = findings([with_errors(10, 20, "A"), with_errors(20, 50, "B")])
    assert "that of A on familiar and on novel azimuths" in better
    assert "+10.0 points for A and +30.0 points for B" in better
    mixed = findings([with_errors(10, 40, "A"), with_errors(20, 15, "B")])
    assert "that of A on familiar azimuths and B on novel ones" in mixed
    assert "-5.0 points for B" in mixed
    assert "that of A and B on familiar azimuths and B" in findings(
        [with_errors(10, 40, "A"), with_errors(10, 15, "B")]
    )
    assert "smallest" not in findings([with_errors(10, 40, "A")])


def test_results_for_programs(folder: Path, contenders: list[Contender], evaluation: Evaluation) -> None:
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert results["settings"] == {"epochs": "3", "<seed>": "0 & 1"}
    for network, contender in zip(results["networks"], contenders, strict=True):
        assert network["name"] == contender.name
        assert network["familiar"] == contender.familiar.to_json()
        assert network["novel"]["error"]["errors"] == contender.novel.total.errors
        assert network["all"] == evaluation.to_json()
        assert [record["epoch"] for record in network["epochs"]] == [0, 1, 2]
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["network"] for row in rows] == ["qcn-small", "cnn <b>"]
    assert [float(row["novel error (%)"]) for row in rows] == [
        pytest.approx(contender.novel.total.percent, abs=0.005) for contender in contenders
    ]
    assert [int(row["parameters"]) for row in rows] == [51_234, 50_001]


def test_the_summary_in_markdown(folder: Path) -> None:
    text = (folder / "results.md").read_text(encoding="utf-8")
    assert "| cnn &lt;b> | 50,001 |" in text
    assert "![Error by azimuth](azimuth.png)" in text
    assert "<b>" not in text


def test_contenders_that_do_not_fit_are_refused_before_anything_is_written(
    contenders: list[Contender], toys: ImageSet, evaluation: Evaluation, tmp_path: Path
) -> None:
    target = tmp_path / "demo"
    with pytest.raises(QuatcapsError, match="at least one contender"):
        write_demo(target, [], toys, {}, {})
    with pytest.raises(QuatcapsError, match="share a name"):
        write_demo(target, [contenders[0], contenders[0]], toys, {"qcn-small": evaluation}, {})
    with pytest.raises(QuatcapsError, match="cnn <b> has no evaluation"):
        write_demo(target, contenders, toys, {"qcn-small": evaluation}, {})
    assert not target.exists()


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

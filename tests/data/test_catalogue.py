"""What is known about the datasets is well-formed and agrees with itself."""

from __future__ import annotations

import doctest
import re
from urllib.parse import urlsplit

import pytest

from quatcaps.data import catalogue
from quatcaps.data.catalogue import DESCRIPTIONS, Description, File

FILES = [pytest.param(file, id=f"{name}-{file.name}") for name, known in DESCRIPTIONS.items() for file in known.files]
DATASETS = [pytest.param(known, id=name) for name, known in DESCRIPTIONS.items()]
DIGEST_LENGTHS = {"md5": 32, "sha256": 64}


@pytest.mark.parametrize("file", FILES)
def test_digests_are_well_formed(file: File) -> None:
    for digest in filter(None, (file.published, file.published_content)):
        algorithm, _, value = digest.partition(":")
        assert re.fullmatch(rf"[0-9a-f]{{{DIGEST_LENGTHS[algorithm]}}}", value)
    assert file.archive or file.published.startswith("sha256:"), "a weak digest tells no download from another"
    for content in file.contents:
        assert re.fullmatch(r"[0-9a-f]{64}", content)
    assert file.published or file.archive
    assert file.contents or file.published


@pytest.mark.parametrize("file", FILES)
def test_addresses_are_of_the_web_and_several(file: File) -> None:
    if file.archive:
        assert file.urls == ()
        return
    assert len(set(file.urls)) == len(file.urls) >= 2
    for url in file.urls:
        parts = urlsplit(url)
        assert parts.scheme in ("http", "https")
        assert parts.hostname
        assert parts.path.rsplit("/", 1)[1] == file.download_name
        assert not parts.query
    assert file.download_name in (file.name, f"{file.name}.gz")


@pytest.mark.parametrize("file", FILES)
def test_sizes_are_possible(file: File) -> None:
    assert 0 < file.size <= file.content_size


@pytest.mark.parametrize("known", DATASETS)
def test_descriptions_say_everything(known: Description) -> None:
    assert set(known.counts) == {"train", "test"}
    assert len(set(known.classes)) == len(known.classes)
    assert all("\n" not in words and words for words in (known.title, known.summary, known.licence, known.citation))
    assert re.search(r"\b(19|20)\d\d$", known.citation)
    assert urlsplit(known.homepage).scheme in ("http", "https")
    names = [file.name for file in known.files]
    assert len(set(names)) == len(names)
    assert {file.archive for file in known.files} <= {"", *names}
    assert all(file.urls for file in known.downloads)


@pytest.mark.parametrize("known", DATASETS)
def test_contents_are_as_large_as_the_images_in_them(known: Description) -> None:
    """Every format is bytes of pixels beside little else: headers, labels, viewpoints."""
    pixels = sum(known.counts.values()) * known.channels * known.side**2
    content = sum(file.content_size for file in known.files if not file.name.endswith(".tar"))
    assert pixels < content < 1.002 * pixels + 1000


def test_an_archive_counts_its_files() -> None:
    archive, *members = DESCRIPTIONS["cifar10"].files
    assert archive.content_size == sum(member.content_size for member in members)
    assert {member.archive for member in members} == {archive.name}


def test_no_two_contents_are_taken_for_one_another() -> None:
    contents = [content for known in DESCRIPTIONS.values() for file in known.files for content in file.contents]
    same = {content for content in contents if contents.count(content) > 1}
    assert same == {*DESCRIPTIONS["smallnorb"].files[1].contents}  # both splits of smallNORB have the same labels


def test_examples_say_what_happens() -> None:
    results = doctest.testmod(catalogue)
    assert results.attempted > 0
    assert results.failed == 0

"""What the page promises: nothing from elsewhere, names only as text, and one file if scripts are joined in order."""

from __future__ import annotations

import re
from collections import Counter
from importlib import resources

import pytest

from quatcaps.explorer.page import FILES, SCRIPTS, page_file

PAGE = page_file("index.html")
MARKUP = r"(?:inner|outer)HTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b"


def test_every_file_of_the_page_is_served() -> None:
    held = {each.name for each in resources.files("quatcaps.explorer.page").iterdir() if "__" not in each.name}
    assert held == {*FILES, "index.html"}


@pytest.mark.parametrize("name", ["index.html", *FILES])
def test_nothing_comes_from_elsewhere(name: str) -> None:
    addresses = set(re.findall(r"https?://[^\s\"')]+", page_file(name)))
    assert addresses <= {"http://www.w3.org/2000/svg"}, "the name of a namespace, which nobody opens"


def test_the_policy_lets_the_page_be() -> None:
    assert re.findall(r"<script(?![^>]*\bsrc=)", PAGE) == [], "scripts in the page"
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", PAGE) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_names_can_only_become_text(name: str) -> None:
    assert re.findall(MARKUP, page_file(name)) == []


def test_what_scripts_look_for_is_there() -> None:
    ids = set(re.findall(r'\bid="([\w-]+)"', PAGE))
    parts = set(re.findall(r'\bdata-part="([\w-]+)"', PAGE))
    scripts = "".join(map(page_file, SCRIPTS))
    assert set(re.findall(r'byId\("([\w-]+)"\)', scripts)) <= ids
    assert set(re.findall(r'find\("([\w-]+)"\)|part\("\w+", "([\w-]+)"\)', scripts)) <= {
        *((part, "") for part in parts),
        *(("", part) for part in parts),
    }


def test_scripts_can_be_joined_in_order() -> None:
    known: set[str] = set()
    names: Counter[str] = Counter()
    for script in SCRIPTS:
        text = page_file(script)
        assert set(re.findall(r'^import .* from "\./(.+)";$', text, re.M)) <= known, (
            f"{script} imports what comes later"
        )
        names.update(re.findall(r"^(?:export )?(?:async )?(?:const|let|class|function) (\w+)", text, re.M))
        for group in re.findall(r"^(?:export )?const \[(.+?)\] =", text, re.M):
            names.update(group.split(", "))
        known.add(script)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_control_has_a_label() -> None:
    labelled = set(re.findall(r'<label for="([\w-]+)"', PAGE))
    inside = "".join(re.findall(r"<label(?: [^>]*)?>.*?</label>", PAGE, re.S))
    for control in re.findall(r"<(?:input|select)\b[^>]*>", PAGE):
        (name,) = re.findall(r'\b(?:id|data-part)="([\w-]+)"', control)
        assert name in labelled or control in inside, f"{name} has no label"

"""The code in docs/ runs as it stands, page by page, each block after the one before it."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
from typer.main import get_command

import quatcaps
from quatcaps import cli

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
RUN = (
    "index",
    "tutorial",
    "mathematics",
    "models",
    "data",
    "robustness",
    "howto/own-data",
    "howto/fine-tuning",
    "howto/resume",
    "howto/plugins",
)
PAGES = [*RUN, *(f"api/{path.stem}" for path in sorted((DOCS / "api").glob("*.md")))]
NOT_TRIED = (
    "flowers",  # a folder that the reader has
    "photos",
    "inspect",  # minutes of rendering
    "attack",  # minutes of gradients
    "explore",  # a server
    "--quick",  # minutes of training
)
"""Commands with one of these words are parsed, and not run."""


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Language, file name and code of every block of a page."""
    return BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))


def parse(arguments: list[str]) -> None:
    """Raises where the command line has no such command or flag."""
    group = get_command(cli.app)
    with group.make_context("quatcaps", arguments) as context:
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])  # type: ignore
        command.make_context(name, rest)


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(
    page: str, command: Callable, toys_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUATCAPS_DATA_DIR", str(toys_folder))
    (tmp_path / "data").symlink_to(toys_folder)
    names: dict[str, Any] = {"__name__": page}
    found = blocks(page)
    assert found
    if "tutorial.md#a-folder-of-images" in (DOCS / f"{page}.md").read_text(encoding="utf-8"):
        found = [block for block in blocks("tutorial") if "ImageDraw" in block[2]] + found
    jaxtyping.config.update("jaxtyping_disable", True)  # what is called here has tests of its own
    try:
        for language, title, code in found:
            if title:
                Path(title).write_text(code, encoding="utf-8")
            elif language == "python":
                exec(compile(code, f"{page}.md", "exec", dont_inherit=True), names)
            for line in code.splitlines() if language == "sh" else ():
                run_line(line, command)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def run_line(line: str, command: Callable) -> None:
    """Runs a line of a shell where it is a command of quatcaps."""
    words = shlex.split(line)
    if words[0] != "quatcaps":
        assert words[0] in ("python3", ".", "pip", "torchrun"), line
        return
    if any(word in line for word in NOT_TRIED):
        parse(words[1:])
        return
    outcome = command(*words[1:])
    assert outcome.code == 0, (line, outcome.err)


def test_the_tutorial_says_what_happens(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("tutorial")[1][2], "tutorial.md", "exec", dont_inherit=True), {})
    exec(compile(blocks("index")[0][2], "index.md", "exec", dont_inherit=True), {})
    assert re.findall(r"^\d$", capsys.readouterr().out, re.M) == ["7", "1"]


def test_commands_of_the_readme_are_commands() -> None:
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    lines = [line for _, _, code in BLOCK.findall(text) for line in code.splitlines() if line.startswith("quatcaps ")]
    assert len(lines) >= 4
    for line in lines:
        parse(shlex.split(line, comments=True)[1:])


def test_torchrun_commands_are_commands() -> None:
    lines = [line for _, _, code in blocks("howto/several-gpus") for line in code.splitlines()]
    assert len(lines) >= 3
    for line in lines:
        parse(shlex.split(line.partition("-m quatcaps ")[2]))


def test_unknown_flags_are_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["train", "--no-such-flag"])


def hook(name: str) -> Any:
    """A module of docs/hooks."""
    return runpy.run_path(str(DOCS / "hooks" / f"{name}.py"))


def test_the_site_reads_markdown_as_github_does() -> None:
    read = hook("github_markdown")["as_on_github"]
    assert read("a vote w u w* of EM*'s, *not* stars: `a*b*` $q^* p^*$") == (
        "a vote w u w\\* of EM\\*'s, *not* stars: `a*b*` $q^* p^*$\n"
    )
    assert read("text\n- one\n- two") == "text\n\n- one\n- two\n"
    assert read("text\n| a |\n|---|") == "text\n\n| a |\n|---|\n"
    assert read("- one\n\n  more of EM*, *so*\n- two") == "- one\n\n    more of EM\\*, *so*\n\n- two\n"
    code = "```\n- as it* is*\n```\n\n    and* this*\n"
    assert read(code) == code


def test_dead_links_of_the_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.html").write_text('<p id="here">')
    (tmp_path / "index.html").write_text(
        '<a href="there.html#here">a</a><a href="there.html#gone">b</a><a href="gone.html">c</a>'
        '<a href="https://example.org">d</a><script src="https://example.org/e.js"></script>'
    )
    found = [line for line in hook("check")["faults"](tmp_path) if line.startswith("index.html")]
    assert found == [
        "index.html leads to there.html#gone, and there is no such anchor",
        "index.html leads to gone.html, which is not there",
        "index.html fetches https://example.org/e.js",
    ]


def test_every_public_module_has_a_page() -> None:
    modules = {name for name in quatcaps.__all__ if (Path(quatcaps.__file__).parent / name).exists()}
    modules |= {name for name in quatcaps.__all__ if (Path(quatcaps.__file__).parent / f"{name}.py").exists()}
    assert {"layers", "losses", "quaternion"} <= modules <= {path.stem for path in (DOCS / "api").glob("*.md")}

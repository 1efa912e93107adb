"""What an index gets: a wheel with everything that runs and nothing else, which works where it is installed."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import quatcaps

ROOT = Path(__file__).parents[1]
ADDRESS = "https://example.org/owner/quatcaps"
PREDICTION = """
import numpy, quatcaps
from quatcaps.native.build import sources
from quatcaps.routing.native.libraries import SOURCES
picture = numpy.zeros((28, 28), numpy.uint8)
picture[4:24, 13:16] = 255
print(quatcaps.__file__)
print({path.name for path in sources(SOURCES)} > {"moments.c", "vectors.h"})
print(quatcaps.predict("qcn-mnist", picture)[0].name)
"""

pytest.importorskip("hatchling")


def python(*arguments: str, **environment: str) -> str:
    outcome = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), QUATCAPS_REPOSITORY=ADDRESS)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        return email.message_from_string(archive.read(name).decode())


def test_everything_that_runs_is_in_it_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "src" / "quatcaps"
    sources = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    kinds = {path.suffix for path in sources}
    assert {".safetensors", ".json", ".c", ".h", ".js", ".css", ".html"} <= kinds
    assert "quatcaps/py.typed" in names
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == {f"quatcaps/{path.relative_to(package).as_posix()}" for path in sources}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_it_works_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile")
    python(*pip, "--target", str(tmp_path), str(wheel))
    here = {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    assert python(str(tmp_path / "bin" / "quatcaps"), "--version", **here) == f"quatcaps {quatcaps.__version__}\n"
    place, sources, found = python("-c", PREDICTION, **here).split()
    assert Path(place).is_relative_to(tmp_path)
    assert (sources, found) == ("True", "1")


def test_it_says_where_it_comes_from(metadata: Message) -> None:
    assert metadata["Version"] == quatcaps.__version__
    assert f"Repository, {ADDRESS}" in (metadata.get_all("Project-URL") or [])
    assert metadata["License-Expression"] == "MIT"


def test_links_of_the_readme_work_on_an_index(metadata: Message) -> None:
    text = metadata.get_payload()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", text)
    assert any(mark for mark, _ in links)
    base = {"!": f"{ADDRESS}/raw/v{quatcaps.__version__}/", "": f"{ADDRESS}/blob/v{quatcaps.__version__}/"}
    for mark, link in links:
        if not link.startswith("#"):
            assert link.startswith(("https://", "http://")), link
        if link.startswith(ADDRESS):
            assert (ROOT / link.removeprefix(base[mark]).partition("#")[0]).exists(), link


def test_pictures_in_html_and_linked_pictures_work_too() -> None:
    sys.path.insert(0, str(ROOT))
    try:
        from hatch_build import absolute
    finally:
        sys.path.remove(str(ROOT))
    text = '<img width="9" src="a.png"> [![b](b.png)](docs/b.md) [c](#c) [d](https://d.org) <a href="e.md">e</a>'
    raw, page = f"{ADDRESS}/raw/v1/", f"{ADDRESS}/blob/v1/"
    assert absolute(text, ADDRESS, "v1") == (
        f'<img width="9" src="{raw}a.png"> [![b]({raw}b.png)]({page}docs/b.md) [c](#c) [d](https://d.org) '
        f'<a href="{page}e.md">e</a>'
    )


def test_the_citation_is_of_this_version() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == quatcaps.__version__
    assert cited["references"][0]["doi"].startswith("10.1109/")


def test_the_workflow_uses_commands_of_the_makefile() -> None:
    yaml = pytest.importorskip("yaml")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    commands = []
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            commands += [step["run"] for step in job["steps"] if "run" in step]
    assert {"make test", "make wheel"} <= set(commands)
    assert all(command.removeprefix("make ") in targets for command in commands)

"""The site shows more of the repository than docs/: results, examples, the changelog. Links between its files, which
GitHub follows as they stand, lead to the pages that they have on the site."""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from github_markdown import as_on_github
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def examples() -> list[Path]:
    return sorted((ROOT / "examples").glob("*.py"))


def pages() -> dict[str, str]:
    """Files of the repository, and where their pages are on the site, docs/ aside."""
    results = {f"results/{path.name}": f"results/{path.name}" for path in (ROOT / "results").glob("*.md")}
    results.pop("results/README.md", None)
    return ROOT_PAGES | results | {f"examples/{path.name}": f"examples/{path.stem}.md" for path in examples()}


def on_config(config: MkDocsConfig) -> None:
    for entry in config.nav or ():
        if isinstance(entry, dict) and "Examples" in entry:
            entry["Examples"] = [
                {path.stem.replace("_", " ").capitalize(): f"examples/{path.stem}.md"} for path in examples()
            ]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    shown = pages()
    sources = {name: (ROOT / name).read_text(encoding="utf-8") for name in shown}
    for name, text in sources.items():
        content = example_page(text) if name.endswith(".py") else text
        files.append(File.generated(config, shown[name], content=content))
    texts = sources | {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    for name, text in texts.items():
        for _, _, target in LINK.findall(text):
            found = in_repository(name, target)
            if found is None or found in shown or found.startswith("docs/") or not (ROOT / found).is_file():
                continue
            if files.get_file_from_path(found) is None:
                files.append(File.generated(config, found, abs_src_path=str(ROOT / found)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.parent is None:
        page.meta["hide"] = ["navigation"]  # a page alone in its tab
    uri = page.file.src_uri
    name = next((name for name, shown in pages().items() if shown == uri), f"docs/{uri}")

    def on_the_site(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        found = in_repository(name, target)
        if found is None:
            return link[0]
        target_uri = pages().get(found, found.removeprefix("docs/"))
        if files.get_file_from_path(target_uri) is None:
            return (
                text if (ROOT / found).exists() else link[0]
            )  # what has no page is named; what is missing is an error
        anchor = target.partition("#")[1:]
        return f"{mark}[{text}]({posixpath.relpath(target_uri, posixpath.dirname(uri) or '.')}{''.join(anchor)})"

    return as_on_github(LINK.sub(on_the_site, markdown))


def in_repository(name: str, target: str) -> str | None:
    """The path in the repository that a relative link in the file `name` leads to."""
    path = target.partition("#")[0]
    if not path or re.match(r"[a-z]+:", path):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def example_page(source: str) -> str:
    """A script as a page: what its docstring says, and its code."""
    tree = ast.parse(source)
    title, _, rest = (ast.get_docstring(tree) or "").partition("\n")
    docstring: Any = tree.body[0]
    code = "\n".join(source.splitlines()[docstring.end_lineno :]).strip()
    return f"# {title.rstrip('.')}\n{rest}\n\n```python\n{code}\n```\n"

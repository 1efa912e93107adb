"""Whether the built site holds together: `python docs/hooks/check.py site`.

Every link inside it leads somewhere, to its anchor too; nothing is fetched from elsewhere; every public name of the
package has an entry in the API reference.
"""

from __future__ import annotations

import ast
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "srcset")}


class Links(HTMLParser):
    """The anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, bool]] = []  # what is linked, and whether a browser fetches it by itself
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src", "srcset") and value:
                self.links.append((value, (tag, name) in FETCHED))


def faults(site: Path) -> list[str]:
    found = []
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in pages.items():
        where = path.relative_to(site)
        for link, fetched in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if fetched and parts.scheme != "data":
                    found.append(f"{where} fetches {link}")
                continue
            if where.name == "404.html" and parts.path.startswith("/"):
                continue  # from the root of wherever the site is served
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if not target.is_file():
                found.append(f"{where} leads to {link}, which is not there")
            elif parts.fragment and target.suffix == ".html":
                known = pages[site / target.relative_to(site.resolve())].anchors
                if unquote(parts.fragment) not in known and parts.fragment != "__top":
                    found.append(f"{where} leads to {link}, and there is no such anchor")
    anchors = set().union(*(page.anchors for page in pages.values()))
    return found + [f"{name} has no entry in the API reference" for name in public_names() if name not in anchors]


def public_names() -> list[str]:
    """What `quatcaps` and its public modules list in `__all__`; modules have pages instead."""
    package = ROOT / "src" / "quatcaps"
    names = listed(package / "__init__.py")
    modules = [name for name in names if (package / name).is_dir() or (package / f"{name}.py").is_file()]
    found = [f"quatcaps.{name}" for name in names if name not in modules]
    for module in modules:
        folder = package / module
        source = folder / "__init__.py" if folder.is_dir() else package / f"{module}.py"
        found += [f"quatcaps.{module}.{name}" for name in listed(source)]
    return found


def listed(source: Path) -> list[str]:
    """`__all__` of a module, or without one its public functions and classes."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [name for name in defined if not name.startswith("_")]


if __name__ == "__main__":
    wrong = faults(Path(sys.argv[1]))
    print("\n".join(wrong) or "every link of the site leads somewhere, and every public name is in it")
    sys.exit(bool(wrong))

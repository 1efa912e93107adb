"""The house: each room depends on rooms above it alone, no two modules on each other, and only `cli` knows typer."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import quatcaps

SOURCES = Path(quatcaps.__file__).parent
ROOMS = (
    ("errors", "capsules", "counter_based", "accelerator", "console", "strict_json", "interrupted"),
    ("quaternion", "files", "settings", "plugins", "operators"),
    ("registry", "tensors", "pipelines", "losses", "native", "compiling"),
    ("poses",),
    ("routing",),
    ("layers",),
    ("models", "data"),
    ("testing",),
    ("training",),
    ("inspection", "explorer", "robustness"),
    ("report",),
    ("bench",),
    ("paper",),
    ("weights",),
    ("workflow",),
    ("exporting",),
    ("cli",),
)
"""From above to below; those of a line do not know each other."""


def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for path in SOURCES.rglob("*.py"):
        parts = path.relative_to(SOURCES.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A file without what it imports for its types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    return tree


def imports(path: Path, *, at_once: bool = False) -> Iterator[str]:
    """What a file imports, unless for its types alone; `at_once`: when it is imported itself."""
    tree = parsed(path)
    for node in tree.body if at_once else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_rooms_depend_on_those_above_them() -> None:
    level = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
    wrong, known = [], modules()
    for name, path in known.items():
        room = [*name.split("."), ""][1]
        if room in ("", "__main__"):
            continue
        for imported in set(imports(path)) & known.keys() - {"quatcaps"}:
            other = imported.split(".")[1]
            if other != room and level[other] >= level[room]:
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_no_circle_of_imports() -> None:
    """A formula may look for its kernel when it runs, and the kernel knows its formula's constants: no circle."""
    known = modules()
    graph = {}
    for name, path in known.items():
        # A name from a package that is a module of its own: the module is meant, not the package.
        wanted = set(imports(path, at_once=True)) & known.keys() - {name, "quatcaps"}
        packages = {other for other in wanted if known[other].name == "__init__.py" and name.startswith(f"{other}.")}
        graph[name] = wanted - packages
    TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


def test_only_the_command_line_knows_typer() -> None:
    knowing = {name for name, path in modules().items() if any(each.split(".")[0] == "typer" for each in imports(path))}
    assert knowing
    assert all(name.startswith("quatcaps.cli") for name in knowing)

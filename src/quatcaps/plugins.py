"""Names from other packages: modules that register poses, routings or models as they are imported.

A package says so in its metadata,

    [project.entry-points."quatcaps.plugins"]
    mine = "my_package.capsules"

and whoever has no package names a module or a file: `quatcaps --plugin mine.py train …`, or QUATCAPS_PLUGINS=mine.py.
Nothing is imported before a name is looked for that is not ours, or before names are listed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from importlib.metadata import entry_points
from pathlib import Path

from quatcaps.errors import QuatcapsError

GROUP = "quatcaps.plugins"
VARIABLE = "QUATCAPS_PLUGINS"
"""Modules, or paths of .py files, with commas between them."""

_loaded: set[str] = set()


class PluginWarning(UserWarning):
    """An installed package says that it extends quatcaps, and cannot be imported."""


def load_plugins() -> None:
    """Imports all plug-ins that were not imported yet.

    One that was asked for and fails is an error; one that is merely installed is a warning, as whoever installed it
    may want something else now.
    """
    for name in filter(None, os.environ.get(VARIABLE, "").split(",")):
        if name not in _loaded:
            _loaded.add(name)
            try:
                import_plugin(name)
            except Exception as error:
                _loaded.discard(name)
                raise QuatcapsError(f"the plug-in {name} cannot be imported: {error}") from error
    for entry in entry_points(group=GROUP):
        if entry.value not in _loaded:
            _loaded.add(entry.value)
            try:
                entry.load()
            except Exception as error:
                warnings.warn(
                    f"the plug-in {entry.name} = {entry.value} cannot be imported: {error}", PluginWarning, stacklevel=2
                )


def import_plugin(name: str) -> None:
    """Imports a module by its name, or by the path of its .py file."""
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    path = Path(name)
    if not path.is_file():
        raise QuatcapsError("there is no such file")
    if path.stem in sys.modules:
        raise QuatcapsError(f"a module named {path.stem} is imported already: rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise


def add_plugins(names: list[str]) -> None:
    """Adds plug-ins for this process and for those that it starts; files by their whole path."""
    whole = [str(Path(name).absolute()) if name.endswith(".py") else name for name in names]
    already = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
    os.environ[VARIABLE] = ",".join(dict.fromkeys((*already, *whole)))

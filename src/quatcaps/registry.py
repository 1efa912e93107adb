"""Things by name: ours, one's own, and those of other packages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.plugins import load_plugins

T = TypeVar("T")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Registry(Mapping[str, T]):
    """Entries by name, in the order in which they came.

    Plug-ins are imported when a name is looked for that is not known yet, and before names are listed.

    >>> colours = Registry("colour", {"red": 1})
    >>> colours.register("blue", 2)
    >>> colours["blue"], list(colours)
    (2, ['red', 'blue'])
    """

    def __init__(self, kind: str, entries: Mapping[str, T]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def register(self, name: str, entry: T) -> None:
        """Adds an entry; a name that has another already stays as it is, and that is an error."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise QuatcapsError(
                f"a {self.kind} named {name!r}: give letters, digits, -, _ and ., a letter or digit first, no blanks"
            )
        if name in self._entries and self._entries[name] != entry:
            raise QuatcapsError(f"there is another {self.kind} named {name!r} already: choose another name")
        self._entries[name] = entry

    def find(self, name: str) -> T:
        """The entry of that name; an error that lists the known ones."""
        if name not in self:
            raise unknown_name(self.kind, name, self)
        return self._entries[name]

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            load_plugins()
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        load_plugins()
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {', '.join(self._entries)})"

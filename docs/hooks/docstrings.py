"""Docstrings are plain text with examples; in the API reference their examples are code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.M)
"""From a prompt to the next empty line."""


class Examples(Extension):
    """Puts each doctest into a fence."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(lambda code: f"```pycon\n{code[0]}\n```", obj.docstring.value)

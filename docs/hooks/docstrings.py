"""Docstrings are plain text with examples; in the API reference their examples are code."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from griffe import Extension, Object

sys.path.insert(0, str(Path(__file__).parent))
from github_markdown import as_on_github

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.M)
"""From a prompt to the next empty line."""


class Examples(Extension):
    """Puts each doctest into a fence."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = EXAMPLE.sub(lambda code: f"```pycon\n{code[0]}\n```", obj.docstring.value)
            obj.docstring.value = as_on_github(text)

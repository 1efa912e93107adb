"""What commands print for programs, with --json: one JSON value on standard output, and nothing else there."""

from __future__ import annotations

import json
import math
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from quatcaps.console import standard_error, standard_output

AsJson = Annotated[
    bool, typer.Option("--json", help="print one JSON value on standard output, and everything else on standard error")
]


def console_for(as_json: bool) -> Console:
    """Where people read: standard output belongs to programs where they asked for it."""
    return standard_error() if as_json else standard_output()


def print_json(value: Any) -> None:
    """In ASCII, so that no encoding of a terminal or a file can spoil it."""
    sys.stdout.write(json.dumps(finite(value), indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not have.

    >>> finite({"a": [1.5, float("nan")]})
    {'a': [1.5, None]}
    """
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

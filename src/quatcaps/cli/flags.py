"""Command-line flags from the fields of a settings dataclass, so that no setting is without one."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from quatcaps.cli.choices import CHOICES, NAMED, complete_weights, completing
from quatcaps.cli.panels import panel_of
from quatcaps.errors import QuatcapsError

F = TypeVar("F", bound=Callable[..., Any])

ALIASES = {"learning_rate": ("--lr",), "batch": ("--batch-size",)}
"""What other programs call these settings."""
DataDir = Annotated[
    Path | None,
    typer.Option(help="where datasets are kept (default: QUATCAPS_DATA_DIR, or quatcaps in your cache folder)"),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="instead of a run: weights as quatcaps weights list shows, or a .safetensors file's path",
        autocompletion=complete_weights,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="cpu, cuda, cuda:N, or auto: cuda where there is one", autocompletion=completing(CHOICES["device"])
    ),
]


def with_flags(settings: type) -> Callable[[F], F]:
    """Gives a command that ends in `**settings` one flag per field, `--like-this`, of the field's type.

    Each starts as None, so that what was not given leaves the recipe's value alone. A dictionary field becomes a flag
    that may be repeated, NAME=VALUE.
    """

    def decorate(command: F) -> F:
        own = inspect.signature(command, eval_str=True)
        kept = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        hints = typing.get_type_hints(settings)
        own_first = sorted(dataclasses.fields(settings), key=lambda field: field.name not in settings.__annotations__)
        added = [_flag(field, hints[field.name]) for field in own_first]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept] + added
        command.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _flag(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    explanation = field.metadata["help"]
    if field.name in NAMED:
        explanation = f"{explanation}: {', '.join(NAMED[field.name])}"
    default = "by dataset" if field.metadata["by_dataset"] else f"paper: {str(field.default).lower() or 'none'}"
    name = "--" + field.name.replace("_", "-")
    kind: Any = hint | None
    names = [name, *ALIASES.get(field.name, ())]
    more: dict[str, Any] = {"help": f"{explanation} ({default})"}
    if typing.get_origin(hint) is dict:
        kind, names = list[str] | None, [name.removesuffix("s")]
        more = {"help": explanation, "metavar": "NAME=VALUE"}
    elif hint is bool:
        names = [f"{name}/--no-{name[2:]}"]
    elif typing.get_origin(hint) is tuple:
        kind, more = str | None, {**more, "metavar": "VALUE,…"}
    complete = completing(CHOICES[field.name]) if field.name in CHOICES else None
    option = typer.Option(*names, autocompletion=complete, rich_help_panel=panel_of(field.name), **more)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def given(settings: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given, NAME=VALUE pairs as a dictionary."""
    found = {name: value for name, value in settings.items() if value is not None and value != []}
    for name, value in found.items():
        if isinstance(value, list):
            found[name] = dict(_pair(item, name) for item in value)
    return found


def _pair(item: str, name: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not (key and equals):
        raise QuatcapsError(f"--{name.replace('_', '-').removesuffix('s')} {item!r}: write it as NAME=VALUE")
    return key, value

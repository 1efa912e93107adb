"""Frozen dataclasses as settings: changed by name, checked by type, read from and written as JSON."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from quatcaps.errors import QuatcapsError, unknown_name

T = TypeVar("T")


def setting(default: Any, explanation: str, *, by_dataset: bool = False) -> Any:
    """A field with the text that `--help` shows for it; `by_dataset`: each dataset has a value of its own."""
    metadata = {"help": explanation, "by_dataset": by_dataset}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def change(settings: T, changes: Mapping[str, Any], what: str = "setting") -> T:
    """`settings` with some fields replaced. Text is read as the field's type, so command-line values work.

    An unknown name or a value of the wrong type raises an error that names it.
    """
    hints = typing.get_type_hints(type(settings))
    known = {field.name for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    values = {}
    for name, value in changes.items():
        if name not in known:
            raise unknown_name(what, name, known)
        try:
            values[name] = convert(value, hints[name])
        except (TypeError, ValueError, OverflowError) as error:
            wanted = describe(hints[name])
            raise QuatcapsError(f"{what} {name} = {value!r}: it must be {wanted}") from error
    return dataclasses.replace(settings, **values)  # type: ignore[type-var]


def convert(value: Any, hint: Any) -> Any:
    """`value`, or what the text `value` says, as the type `hint`; ValueError or TypeError where it is none."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None or value == "none":
            return None
        return convert(value, next(arm for arm in typing.get_args(hint) if arm is not types.NoneType))
    if isinstance(value, str) and hint is not str:
        value = {"true": True, "yes": True, "false": False, "no": False}.get(value.lower(), value)
        if origin is tuple and isinstance(value, str) and not value.lstrip().startswith("["):
            value = f"[{value}]"
        value = json.loads(value) if isinstance(value, str) else value
    if origin is tuple:
        arms = typing.get_args(hint)
        if len(arms) == 2 and arms[1] is Ellipsis:
            return tuple(convert(item, arms[0]) for item in value)
        if len(arms) != len(value):
            raise ValueError
        return tuple(convert(item, arm) for item, arm in zip(value, arms, strict=True))
    if origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise TypeError
        return {name: as_lists(item) for name, item in value.items()}
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise TypeError
    return value


def as_lists(value: Any) -> Any:
    """A value of no known type as JSON gives it back: tuples, within each other too, are lists.

    >>> as_lists(((16, 3), (16, 1)))
    [[16, 3], [16, 1]]
    """
    return [as_lists(item) for item in value] if isinstance(value, tuple | list) else value


def describe(hint: Any) -> str:
    """A type in words."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    if typing.get_origin(hint) is dict:
        return "values by name"
    return words.get(hint, f"of the form {str(hint).replace('...', '…')}")


def to_json(settings: Any) -> dict[str, Any]:
    """A dataclass as plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))

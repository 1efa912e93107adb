"""Frozen dataclasses as settings: changed by name, checked by type, read from and written as JSON.

A field may hold an object with settings of its own, such as a routing: a `Part` says how it is read and written, and a
dotted name, `routing.iterations`, changes a field inside it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from quatcaps import strict_json
from quatcaps.errors import QuatcapsError, unknown_name

T = TypeVar("T")
LONGEST_VALUE = 500
"""Characters of a value in an error."""


def setting(default: Any, explanation: str, *, by_dataset: bool = False, later: bool = False) -> Any:
    """A field with the text that `--help` shows for it. by_dataset: each dataset has a value of its own. later: files
    of earlier versions have no such entry, and those of this one have it only where it is not the default."""
    metadata = {"help": explanation, "by_dataset": by_dataset, "later": later}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@runtime_checkable
class Part(Protocol):
    """How a field that holds an object is read and written."""

    def read(self, value: Any, changes: Mapping[str, Any], current: Any, what: str) -> Any:
        """The object that `value` stands for, with `changes` to its own fields; `what` begins the names in errors."""
        ...

    def fields(self, value: Any) -> Iterable[str]:
        """The names in the object that can be changed one by one."""
        ...

    def write(self, value: Any) -> Any:
        """The object as JSON that `read` takes."""
        ...


def part(default: Any, how: Part) -> Any:
    """A field that holds an object."""
    return dataclasses.field(default=default, metadata={"part": how})


def parts_of(settings: Any) -> dict[str, Part]:
    """The fields of `settings`, or of their class, that hold objects."""
    return {field.name: field.metadata["part"] for field in dataclasses.fields(settings) if "part" in field.metadata}


@functools.cache
def hints_of(kind: type) -> dict[str, Any]:
    """The types of a class's fields; it takes a while to evaluate them."""
    return typing.get_type_hints(kind)


def change(settings: T, changes: Mapping[str, Any], what: str = "setting") -> T:
    """`settings` with some fields replaced. Text is read as the field's type, so command-line values work.

    An unknown name or a value of the wrong type raises an error that names it.
    """
    return dataclasses.replace(settings, **read(settings, changes, f"{what} "))  # type: ignore[type-var]


def read(settings: Any, changes: Mapping[str, Any], what: str) -> dict[str, Any]:
    """New values for the fields of `settings`, or of a class of settings; `what` begins the names in errors."""
    kind = settings if isinstance(settings, type) else type(settings)
    hints, parts = hints_of(kind), parts_of(kind)
    known = {field.name for field in dataclasses.fields(kind) if field.init}
    held = {name: getattr(settings, name, None) for name in parts}
    inner = [f"{name}.{field}" for name, value in held.items() for field in parts[name].fields(value)]
    values: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        holder, dot, field = name.partition(".")
        if dot and holder in parts:
            inside.setdefault(holder, {})[field] = value
        elif name not in known:
            raise unknown(what, name, [*known, *inner])
        elif name not in parts:
            values[name] = checked(value, hints[name], f"{what}{name}")
    for name in parts:
        if name in changes or name in inside:
            given = changes.get(name, held[name])
            values[name] = parts[name].read(given, inside.get(name, {}), held[name], f"{what}{name}.")
    return values


def unknown(what: str, name: str, known: Iterable[str]) -> QuatcapsError:
    """An error for a field; `what` is "setting of qcn " or, inside a part, "setting of qcn routing."."""
    kind, _, holder = what.rpartition(" ")
    return unknown_name(kind, f"{holder}{name}", [f"{holder}{field}" for field in known])


def checked(value: Any, hint: Any, name: str) -> Any:
    """`value` as the type `hint`; an error that names the setting where it is none."""
    try:
        return convert(value, hint)
    except (TypeError, ValueError, OverflowError) as error:
        raise QuatcapsError(f"{name} = {shortened(value)}: it must be {describe(hint)}") from error


def shortened(value: Any) -> str:
    """A value as Python writes it, for an error; the beginning of a long one."""
    words = repr(value)
    return words if len(words) <= LONGEST_VALUE else f"{words[:LONGEST_VALUE]}…"


def convert(value: Any, hint: Any) -> Any:
    """`value`, or what the text `value` says, as the type `hint`; ValueError or TypeError where it is none."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None or value == "none":
            return None
        return convert(value, next(arm for arm in typing.get_args(hint) if arm is not types.NoneType))
    if origin is typing.Literal:
        if value not in typing.get_args(hint):
            raise ValueError
        return value
    if isinstance(value, str) and hint is not str:
        value = {"true": True, "yes": True, "false": False, "no": False}.get(value.lower(), value)
        if origin is tuple and isinstance(value, str) and not value.lstrip().startswith("["):
            value = f"[{value}]"
        value = strict_json.parse(value) if isinstance(value, str) else value
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
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(hint)))}"
    return words.get(hint, f"of the form {str(hint).replace('...', '…')}")


def to_json(settings: Any) -> dict[str, Any]:
    """A dataclass as plain JSON values."""
    parts = parts_of(settings)
    return {
        field.name: _plain(getattr(settings, field.name), parts.get(field.name))
        for field in dataclasses.fields(settings)
    }


def without_later(settings: Any) -> dict[str, Any]:
    """`to_json` without the fields that came `later` and have their default: as an earlier version wrote them."""
    values = to_json(settings)
    for field in dataclasses.fields(settings):
        if field.metadata.get("later") and getattr(settings, field.name) == field.default:
            del values[field.name]
    return values


def field_to_json(settings: Any, name: str) -> Any:
    """One field as a plain JSON value."""
    return _plain(getattr(settings, name), parts_of(settings).get(name))


def _plain(value: Any, how: Part | None) -> Any:
    if how is not None:
        return how.write(value)
    if type(value) in (bool, int, float, str, types.NoneType):
        return value
    return json.loads(json.dumps(value, default=dataclasses.asdict))


def flags_between(settings: Any, base: Any) -> list[str]:
    """The flags of the command line that turn `base` into `settings`, as a shell would pass them."""
    found: list[str] = []
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), field.name.replace("_", "-")
        if value == getattr(base, field.name):
            continue
        if isinstance(value, bool):
            found.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, dict):
            for key, item in value.items():
                found += [f"--{name.removesuffix('s')}", f"{key}={_as_text(item)}"]
        elif isinstance(value, tuple):
            found += [f"--{name}", ",".join(map(_as_text, value))]
        else:
            found += [f"--{name}", _as_text(value)]
    return found


def _as_text(value: Any) -> str:
    """A value as `convert` reads it."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)

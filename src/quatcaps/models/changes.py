"""Changes to a network's settings: by name, read as their types, and written down again by the names they were given.

A routing's fields go by dotted names, `routing.iterations`. Before routings were values of their own their fields stood
among the network's, and runs, records and cards have them so: `iterations` is still read as `routing.iterations`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from quatcaps.errors import QuatcapsError
from quatcaps.poses import PosePart, PoseType
from quatcaps.routing.registry import Routing, RoutingPart, fields_of
from quatcaps.settings import change, field_to_json, parts_of

FLAT = ("iterations", "activation", "competition", "variance_floor", "mass", "one_child", "betas", "contrast")
"""The names that have stood among a network's settings."""


def changed(settings: Any, changes: Mapping[str, Any], what: str) -> Any:
    """`settings` with changes, checked by name and type."""
    return change(settings, whole_names(settings, changes), what)


def whole_names(settings: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` with the fields of the routing by their dotted names.

    Where flat names stand beside the name of another routing, that has the network's iterations and competition unless
    told otherwise, as it had when they were the network's own.
    """
    holder = next((name for name, part in parts_of(settings).items() if isinstance(part, RoutingPart)), None)
    own = {field.name for field in dataclasses.fields(settings)}
    foreign = [name for name in changes if name not in own and "." not in name]
    if holder is None or not foreign:
        return dict(changes)
    current = getattr(settings, holder)
    kind, _ = RoutingPart().kind_of(changes.get(holder, current), current)
    flat = [name for name in foreign if name in fields_of(kind) or name in FLAT]
    named = {f"{holder}.{name}" if name in flat else name: value for name, value in changes.items()}
    if len(named) < len(changes):
        twice = next(name for name in flat if f"{holder}.{name}" in changes)
        raise QuatcapsError(f"{twice} and {holder}.{twice} were both given, and are the same: give one of them")
    if flat and is_name(changes.get(holder)) and kind is not type(current):
        kept = {name: getattr(current, name) for name in ("iterations", "competition") if name in fields_of(kind)}
        named[holder] = {"name": changes[holder], **kept}
    return named


def is_name(value: Any) -> bool:
    """Whether a part of the settings is given by its name, not as an object or a dictionary."""
    return isinstance(value, str) and not value.lstrip().startswith("{")


def to_store(settings: Any, changes: Mapping[str, Any], what: str) -> dict[str, Any]:
    """`changes` as plain JSON values of their types, by the names they were given; what does not fit is an error."""
    result, parts = changed(settings, changes, what), parts_of(settings)
    stored = {}
    for (given, value), name in zip(changes.items(), whole_names(settings, changes), strict=True):
        holder, dot, field = name.partition(".")
        if dot:
            stored[given] = field_to_json(getattr(result, holder), field)
        elif name in parts and is_name(value):
            stored[given] = value
        else:
            stored[given] = field_to_json(result, name)
    return stored


def written(name: str, value: Any) -> Any:
    """The setting `name` as JSON: poses and routings as their names and fields, tuples as lists."""
    if isinstance(value, PoseType):
        return PosePart().write(value)
    if isinstance(value, Routing):
        return RoutingPart().write(value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: written(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [written(name, item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise QuatcapsError(
        f"model setting {name} = {value!r}: it cannot be written to a file; give plain values, a registered pose, or a "
        "registered routing"
    )

"""Routings by name: what a routing's settings are, and how they are read from and written as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import nn

from quatcaps import settings, strict_json
from quatcaps.errors import QuatcapsError
from quatcaps.registry import Registry
from quatcaps.routing.em import EM
from quatcaps.routing.vb import VB


@runtime_checkable
class Routing(Protocol):
    """Settings of a routing that a layer can hold, such as `EM`: a value, best a frozen dataclass."""

    @property
    def iterations(self) -> int:
        """How often it asks the votes for sums."""
        ...

    @property
    def competition(self) -> str:
        """Who shares a child: see `Votes`."""
        ...

    def module(self, parents: int) -> nn.Module:
        """A module that turns `Votes` into `Capsules` of that many parent types."""
        ...


ROUTINGS: Registry[type[Any]] = Registry("routing", {"em": EM, "vb": VB})
"""The routings by name: the classes of their settings."""


def register_routing(name: str, settings_class: type[Any]) -> None:
    """Gives a class of routing settings a name, for `build`, files and the command line: see `Routing`.

    It must be a frozen dataclass, whose fields can then be set one by one: `routing.iterations=3`.
    """
    frozen = dataclasses.is_dataclass(settings_class) and settings_class.__dataclass_params__.frozen  # type: ignore
    if not frozen:
        raise QuatcapsError(f"the routing {name!r} is {settings_class!r}: give the class of a frozen dataclass")
    for needed in ("iterations", "competition", "module"):
        if needed not in fields_of(settings_class) and not hasattr(settings_class, needed):
            raise QuatcapsError(
                f"the routing {name!r} has no {needed}: a layer asks for iterations, competition and module(parents)"
            )
    ROUTINGS.register(name, settings_class)


def list_routings() -> list[str]:
    """The names that `routing` can have."""
    return list(ROUTINGS)


def fields_of(routing: Any) -> tuple[str, ...]:
    """The names of the fields of a routing's settings, or of their class; none where that is no dataclass."""
    return tuple(field.name for field in dataclasses.fields(routing)) if dataclasses.is_dataclass(routing) else ()


class RoutingPart:
    """A field that holds a routing: a name, {"name": …, fields that are not its defaults}, that as text, or an object.

    The name of the routing that is there already changes nothing; another name means that routing's defaults.
    """

    def read(self, value: Any, changes: Mapping[str, Any], current: Any, what: str) -> Routing:
        kind, given = self.kind_of(value, current)
        if isinstance(given, Mapping):
            return self.make(kind, {**given, **changes}, what)
        if changes and not dataclasses.is_dataclass(given):
            raise QuatcapsError(f"{what}{next(iter(changes))}: {given!r} is no dataclass whose fields can be changed")
        return dataclasses.replace(given, **settings.read(given, changes, what)) if changes else given

    def kind_of(self, value: Any, current: Any) -> tuple[type[Any], Any]:
        """The class that `value` stands for, and a dictionary of its fields or the object that is meant."""
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                value = strict_json.parse(value)
            except ValueError as error:
                raise QuatcapsError(f"routing = {value}: it is not JSON ({error})") from error
        if isinstance(value, str):
            kind = ROUTINGS.find(value)
            return kind, current if type(current) is kind else {}
        if isinstance(value, Mapping):
            if not isinstance(value.get("name"), str):
                raise QuatcapsError(f'routing = {dict(value)}: its "name" is needed, one of {", ".join(ROUTINGS)}')
            return ROUTINGS.find(value["name"]), {name: item for name, item in value.items() if name != "name"}
        if isinstance(value, type) or not isinstance(value, Routing):
            raise QuatcapsError(
                f"routing = {value!r}: give a name ({', '.join(ROUTINGS)}), a dictionary with one, or settings such as "
                "EM(iterations=3)"
            )
        return type(value), value

    def make(self, kind: type[Any], values: Mapping[str, Any], what: str) -> Routing:
        needed = [
            field.name
            for field in dataclasses.fields(kind)
            if field.default is field.default_factory is dataclasses.MISSING and field.name not in values
        ]
        if needed:
            raise QuatcapsError(f"{what}{needed[0]} is not given, and {name_of(kind)} has no default for it")
        made: Routing = kind(**settings.read(kind, values, what))
        return made

    def fields(self, value: Any) -> tuple[str, ...]:
        return fields_of(value)

    def write(self, value: Any) -> dict[str, Any]:
        fields = {
            field.name: settings.field_to_json(value, field.name)
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != default_of(field)
        }
        return {"name": name_of(type(value)), **fields}


def name_of(kind: type[Any]) -> str:
    """The name of a registered class of settings."""
    for name, known in ROUTINGS.items():
        if known is kind:
            return name
    raise QuatcapsError(
        f"the routing {kind.__name__} has no name that a file could hold: give it one with "
        f"quatcaps.register_routing(NAME, {kind.__name__})"
    )


def default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def routing_setting(default: Routing) -> Any:
    """A field of a network's settings that holds a routing."""
    return settings.part(default, RoutingPart())

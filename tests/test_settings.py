from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from quatcaps.errors import QuatcapsError
from quatcaps.settings import change, to_json


@dataclass(frozen=True)
class Oven:
    on: bool = False
    shelves: int = 2
    heat: float = 180.0
    name: str = "range"
    size: tuple[int, int] = (60, 40)
    rings: tuple[tuple[int, float], ...] = ((1, 2.0),)
    timer: int | None = None
    extras: dict[str, Any] = field(default_factory=dict)
    fuel: Literal["gas", "wood"] = "gas"


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("on", True, True),
        ("on", "true", True),
        ("on", "Yes", True),
        ("on", "no", False),
        ("shelves", 3, 3),
        ("shelves", "3", 3),
        ("shelves", "-1", -1),
        ("heat", 200, 200.0),
        ("heat", "200", 200.0),
        ("heat", "2e-3", 0.002),
        ("name", "true", "true"),
        ("name", "3", "3"),
        ("size", (1, 2), (1, 2)),
        ("size", [1, 2], (1, 2)),
        ("size", "[1, 2]", (1, 2)),
        ("rings", [], ()),
        ("rings", [[3, 1], [4, 0.5]], ((3, 1.0), (4, 0.5))),
        ("rings", "[[3, 1]]", ((3, 1.0),)),
        ("timer", None, None),
        ("timer", "none", None),
        ("timer", 5, 5),
        ("timer", "5", 5),
        ("extras", {"a": [1]}, {"a": [1]}),
        ("extras", '{"a": 1}', {"a": 1}),
        ("fuel", "wood", "wood"),
    ],
)
def test_values_and_what_text_says(name: str, given: object, value: object) -> None:
    changed = getattr(change(Oven(), {name: given}), name)
    assert changed == value
    assert type(changed) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("on", 1, "true or false"),
        ("on", "maybe", "true or false"),
        ("on", "1", "true or false"),
        ("shelves", 2.0, "a whole number"),
        ("shelves", True, "a whole number"),
        ("shelves", "two", "a whole number"),
        ("shelves", "2.5", "a whole number"),
        ("shelves", "", "a whole number"),
        ("shelves", None, "a whole number"),
        ("heat", True, "a number"),
        ("heat", "hot", "a number"),
        pytest.param("heat", 10**400, "a number", id="beyond a float"),
        ("name", 3, "text"),
        ("size", [1], "of the form tuple[int, int]"),
        ("size", [1, 2, 3], "of the form tuple[int, int]"),
        ("size", 5, "of the form tuple[int, int]"),
        ("size", [1, 2.5], "of the form tuple[int, int]"),
        ("rings", [[1]], "of the form tuple[tuple[int, float], …]"),
        ("rings", 5, "of the form tuple[tuple[int, float], …]"),
        ("timer", "soon", "of the form int | None"),
        ("timer", 1.5, "of the form int | None"),
        ("extras", 5, "values by name"),
        ("extras", [["a", 1]], "values by name"),
        ("extras", {1: 2}, "values by name"),
        ("fuel", "coal", "one of gas, wood"),
    ],
)
def test_values_of_the_wrong_type(name: str, given: object, wanted: str) -> None:
    with pytest.raises(QuatcapsError) as caught:
        change(Oven(), {name: given}, "knob")
    assert str(caught.value) == f"knob {name} = {given!r}: it must be {wanted}"


def test_an_unknown_setting() -> None:
    with pytest.raises(QuatcapsError, match="unknown knob 'shelfs': did you mean 'shelves'"):
        change(Oven(), {"shelfs": 1}, "knob")


def test_only_what_is_named_changes() -> None:
    start = Oven(name="old")
    changed = change(start, {"shelves": 5})
    assert changed == Oven(name="old", shelves=5)
    assert start == Oven(name="old")
    assert change(start, {}) == start


def test_checks_of_the_dataclass_still_run() -> None:
    @dataclass(frozen=True)
    class Hot(Oven):
        def __post_init__(self) -> None:
            if self.heat > 300:
                raise QuatcapsError("too hot")

    with pytest.raises(QuatcapsError, match="too hot"):
        change(Hot(), {"heat": 301})


def test_settings_survive_json() -> None:
    oven = Oven(True, 3, math.pi, "x", (7, 8), ((1, 0.1), (2, 0.2)), 9, {"deep": {"er": [1, None]}})
    text = json.dumps(to_json(oven))
    assert change(Oven(), json.loads(text)) == oven
    assert set(json.loads(text)) == {part.name for part in dataclasses.fields(Oven)}

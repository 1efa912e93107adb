"""Cars of any number of kinds: a body plan, proportions and parts; as `toys.cars` measures them."""

from __future__ import annotations

from typing import Any

from quatcaps.data.toys.cars import Car, build
from quatcaps.data.toys.many.draws import Draw, Span
from quatcaps.data.toys.parts import SIDES, ball, block, cabin, rod, wheels, windows
from quatcaps.data.toys.shapes import Solid

Ranges = dict[str, Span]

_USUAL: Ranges = {
    "length": (0.92, 1.10), "width": (0.76, 0.92), "waist": (0.42, 0.50), "roof": (0.76, 0.86), "rear": (-0.78, -0.64),
    "front": (0.28, 0.44), "top_rear": (-0.50, -0.38), "top_front": (-0.04, 0.08), "wheel": (0.20, 0.25),
    "axle": (0.60, 0.66),
}  # fmt: skip

PLANS: dict[str, tuple[Ranges, dict[str, Any]]] = {
    "sedan": (_USUAL, {}),
    "hatchback": (
        _USUAL | {"length": (0.78, 0.92), "rear": (-0.84, -0.74), "top_rear": (-0.66, -0.54), "axle": (0.50, 0.56),
                  "roof": (0.80, 0.92)},
        {},
    ),
    "estate": (_USUAL | {"length": (1.0, 1.12), "rear": (-0.98, -0.90), "top_rear": (-0.90, -0.74)}, {}),
    "coupé": (
        _USUAL | {"waist": (0.38, 0.45), "roof": (0.66, 0.76), "rear": (-0.80, -0.60), "top_rear": (-0.36, -0.22),
                  "top_front": (-0.10, 0.0), "width": (0.84, 0.96)},
        {},
    ),
    "beetle": (
        _USUAL | {"length": (0.82, 0.94), "axle": (0.52, 0.58), "rear": (-0.56, -0.46), "top_rear": (-0.40, -0.34),
                  "top_front": (0.06, 0.14), "roof": (0.78, 0.92)},
        {"round_back": True},
    ),
    "formula": (
        _USUAL | {"length": (1.02, 1.22), "width": (0.74, 0.94), "wheel": (0.20, 0.26), "axle": (0.66, 0.78)},
        {"racing": True},
    ),
    "roadster": (
        _USUAL | {"length": (0.84, 1.0), "waist": (0.38, 0.45), "rear": (-0.36, -0.24), "front": (0.22, 0.34),
                  "roof": (0.58, 0.70)},
        {"open_top": True},
    ),
    "convertible": (
        _USUAL | {"length": (1.02, 1.16), "rear": (-0.28, -0.18), "front": (0.22, 0.32), "roof": (0.68, 0.76)},
        {"open_top": True},
    ),
    "off-road": (
        _USUAL | {"waist": (0.54, 0.62), "roof": (0.96, 1.08), "rear": (-0.94, -0.86), "top_rear": (-0.90, -0.80),
                  "front": (0.30, 0.40), "top_front": (0.10, 0.20), "wheel": (0.26, 0.31)},
        {},
    ),
    "jeep": (
        _USUAL | {"length": (0.76, 0.90), "waist": (0.50, 0.58), "wheel": (0.24, 0.30), "axle": (0.48, 0.54),
                  "rear": (-0.30, -0.18), "front": (0.22, 0.32), "roof": (0.80, 0.92)},
        {"open_top": True, "spare": True},
    ),
    "limousine": (
        _USUAL | {"length": (1.24, 1.42), "rear": (-1.08, -0.92), "top_rear": (-0.86, -0.72), "front": (0.48, 0.60),
                  "top_front": (0.14, 0.26), "axle": (0.88, 0.98), "width": (0.78, 0.86)},
        {},
    ),
    "micro": (
        _USUAL | {"length": (0.58, 0.68), "width": (0.70, 0.80), "rear": (-0.54, -0.46), "top_rear": (-0.42, -0.32),
                  "front": (0.40, 0.50), "top_front": (0.10, 0.18), "axle": (0.38, 0.44), "roof": (0.84, 0.98),
                  "wheel": (0.16, 0.20)},
        {},
    ),
    "vintage": (
        _USUAL | {"length": (0.96, 1.10), "waist": (0.54, 0.62), "roof": (0.96, 1.10), "wheel": (0.26, 0.31),
                  "axle": (0.66, 0.72)},
        {},
    ),
    "wedge": (
        _USUAL | {"length": (1.0, 1.14), "waist": (0.36, 0.42), "roof": (0.60, 0.68), "rear": (-0.74, -0.56),
                  "front": (0.52, 0.66), "top_rear": (-0.40, -0.26), "top_front": (-0.16, -0.06), "width": (0.9, 1.0)},
        {"spoiler": True},
    ),
    "buggy": (
        _USUAL | {"length": (0.78, 0.92), "waist": (0.38, 0.44), "wheel": (0.27, 0.33), "axle": (0.56, 0.62),
                  "roof": (0.82, 0.94)},
        {},
    ),
}  # fmt: skip


def made(draw: Draw) -> list[Solid]:
    """The solids of a car, its bonnet along x."""
    plan = draw.plan(tuple(PLANS))
    ranges, parts = PLANS[plan]
    sizes: dict[str, Any] = draw.spans(ranges)
    rear, front, top_rear, top_front = (sizes.pop(name) for name in ("rear", "front", "top_rear", "top_front"))
    if plan == "coupé":
        parts = {"spoiler": draw.chance("spoiler", 0.5)}
    if plan in ("off-road", "hatchback"):
        parts = {"spare": plan == "off-road" and draw.chance("spare", 0.6)}
    car = Car(glass=(rear, front), top=(top_rear, top_front), **{**parts, **sizes})
    if plan == "vintage":
        return _vintage(draw, car)
    if plan == "buggy":
        return _buggy(draw, car)
    solids = build(car)
    if not (car.open_top or car.racing):
        solids += _on_roof(draw, car)
    if plan in ("sedan", "estate", "limousine", "convertible") and draw.chance("fins", 0.3):
        size = (car.length * 0.5, 0.05, draw.span("tail fin", 0.10, 0.18))
        solids += [block((-car.length * 0.74, side * car.width * 0.44, car.waist), size, pitch=-8.0) for side in SIDES]
    return solids


def _on_roof(draw: Draw, car: Car) -> list[Solid]:
    """A box, a rack, a sign, a light, or nothing."""
    middle, long = sum(car.top) / 2, car.top[1] - car.top[0]
    what = draw.pick("on the roof", ("nothing", "nothing", "nothing", "box", "rack", "sign", "light", "surfboard"))
    if car.round_back or what == "nothing":
        return []
    if what == "box":
        height = draw.span("roof box", 0.09, 0.16)
        return [cabin((middle - long * 0.5, middle + long * 0.4), (middle - long * 0.45, middle + long * 0.25),
                      (car.roof - 0.01, car.roof + height), car.width * 0.5, 0.9)]  # fmt: skip
    if what == "rack":
        y = car.width * 0.30
        bars = [block((middle, side * y, car.roof + 0.03), (long * 0.95, 0.05, 0.07)) for side in SIDES]
        return [*bars, block((middle, 0.0, car.roof + 0.05), (0.05, 2 * y, 0.05))]
    if what == "sign":
        return [block((middle, 0.0, car.roof + 0.06), (0.10, 0.34, 0.14))]
    if what == "light":
        return [block((middle, 0.0, car.roof + 0.03), (0.12, car.width * 0.55, 0.09))]
    return [ball((middle, 0.0, car.roof + 0.05), (long * 0.95 + 0.15, 0.12, 0.06))]


def _vintage(draw: Draw, c: Car) -> list[Solid]:
    """A narrow bonnet, an upright cabin, free mudguards and running boards."""
    low, narrow = c.wheel * 0.9, c.width * 0.52
    nose = draw.span("bonnet", 0.80, 0.92) * c.length
    screen = draw.span("screen", 0.05, 0.20)
    back = -c.length * draw.span("back", 0.62, 0.82)
    solids = [
        block((nose / 2 + screen / 2, 0.0, (low + c.waist) / 2), (nose - screen, narrow, c.waist - low)),
        block((nose, 0.0, (low + c.waist) / 2 + 0.02), (0.08, narrow * 1.08, c.waist - low + 0.04)),
        block(((back + screen) / 2, 0.0, (low + c.waist) / 2), (screen - back, c.width * 0.86, c.waist - low)),
        block((0.0, 0.0, low), (c.length * 1.3, c.width * 0.96, 0.07)),
        *windows((back, screen), (back + 0.04, screen - 0.06), (c.waist - 0.02, c.roof), c.width * 0.86, 0.94),
    ]
    for x in (c.axle, -c.axle):
        solids += wheels(x, c.width * 1.12, c.wheel, 0.15)
        solids.append(rod((x, -c.width * 0.45, c.wheel), (x, c.width * 0.45, c.wheel), 0.06))
        solids += [
            ball((x - 0.03, side * c.width * 0.46, c.wheel * 1.62), (c.wheel * 1.5, 0.10, c.wheel * 0.72))
            for side in SIDES
        ]
    solids += [ball((nose, side * narrow * 0.72, c.waist - 0.06), (0.09, 0.10, 0.10)) for side in SIDES]
    if draw.chance("trunk", 0.5):
        solids.append(block((back - 0.10, 0.0, c.waist - 0.10), (0.24, c.width * 0.6, 0.32)))
    return solids


def _buggy(draw: Draw, c: Car) -> list[Solid]:
    """A tub on large wheels under a cage of tubes."""
    low, wide = c.wheel * 0.9, c.width * 0.62
    solids = [
        cabin((-c.length * 0.9, c.length * 0.95), (-c.length * 0.8, c.length * 0.55), (low, c.waist), wide, 0.9),
        block((-c.length * 0.72, 0.0, c.waist + 0.05), (0.30, wide * 0.8, 0.20)),
    ]
    front, rear = draw.span("cage front", 0.16, 0.30), -draw.span("cage rear", 0.40, 0.54)
    for side in SIDES:
        y = side * wide * 0.45
        for foot, head in ((front + 0.14, front - 0.08), (rear - 0.10, rear)):
            solids.append(rod((foot, y, c.waist - 0.04), (head, y * 0.9, c.roof), 0.045))
        solids.append(rod((front - 0.08, y * 0.9, c.roof), (rear, y * 0.9, c.roof), 0.045))
        solids.append(block((-0.16, y * 0.5, c.waist + 0.08), (0.12, wide * 0.34, 0.30), pitch=12.0))
    for x in (front - 0.08, rear):
        solids.append(rod((x, -wide * 0.42, c.roof), (x, wide * 0.42, c.roof), 0.045))
    if draw.chance("lamps", 0.5):
        solids += [ball((front - 0.06, side * wide * 0.2, c.roof + 0.07), (0.08, 0.09, 0.09)) for side in SIDES]
    for x in (c.axle, -c.axle):
        solids += wheels(x, c.width * 1.22, c.wheel, 0.22)
        solids.append(rod((x, -c.width * 0.5, c.wheel), (x, c.width * 0.5, c.wheel), 0.05))
    return solids

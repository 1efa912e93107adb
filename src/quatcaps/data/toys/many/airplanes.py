"""Airplanes of any number of kinds: a body plan, proportions, wings, tails and engines; as `toys.airplanes`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from quatcaps.data.toys.airplanes import Airplane, build
from quatcaps.data.toys.many.draws import Draw, Span
from quatcaps.data.toys.parts import SIDES, ball, block, rod, wing
from quatcaps.data.toys.shapes import Solid

Ranges = dict[str, Span]

_USUAL: Ranges = {
    "length": (0.84, 1.06), "thick": (0.125, 0.175), "span": (0.84, 1.10), "root": (0.36, 0.50), "tip": (0.17, 0.32),
    "sweep": (0.0, 0.08), "wing_x": (0.02, 0.18), "wing_z": (-0.6, 0.1), "lift": (0.0, 6.0), "tail": (0.34, 0.46),
    "fin": (0.30, 0.46), "gear": (0.12, 0.20),
}  # fmt: skip
_SWEPT: Ranges = {
    "sweep": (0.26, 0.50),
    "root": (0.42, 0.54),
    "tip": (0.15, 0.22),
    "span": (0.88, 1.12),
    "lift": (0.0, 4.0),
}
_FIGHTER: Ranges = {
    "length": (0.98, 1.18), "span": (0.54, 0.74), "root": (0.60, 0.84), "tip": (0.14, 0.26), "sweep": (0.30, 0.52),
    "wing_x": (-0.20, -0.04), "wing_z": (-0.2, 0.4), "lift": (-2.0, 2.0), "canopy": (0.22, 0.32),
}  # fmt: skip
_HIGH: Ranges = {"wing_z": (0.80, 1.0), "lift": (0.0, 3.0)}

PLANS: dict[str, tuple[Ranges, dict[str, Any]]] = {
    "airliner": (_USUAL | _SWEPT, {"jets": 2}),
    "four-jet": (_USUAL | _SWEPT | {"thick": (0.14, 0.19), "span": (0.98, 1.16)}, {"jets": 4}),
    "business jet": (_USUAL | _SWEPT | {"span": (0.78, 0.98)}, {"rear_jets": True, "high_tail": True}),
    "low-wing propeller": (_USUAL | {"length": (0.74, 0.94), "canopy": (0.18, 0.30)}, {"propellers": 1}),
    "high-wing propeller": (_USUAL | _HIGH | {"length": (0.74, 0.90), "span": (0.92, 1.14)}, {"propellers": 1}),
    "biplane": (
        _USUAL | {"length": (0.70, 0.86), "span": (0.76, 0.96), "tip": (0.28, 0.36), "root": (0.32, 0.40),
                  "upper": (0.30, 0.42), "wing_z": (-0.7, -0.4), "lift": (0.0, 2.0)},
        {"propellers": 1},
    ),
    "transport": (_USUAL | _HIGH | {"thick": (0.15, 0.20), "span": (0.96, 1.16)}, {"propellers": 2}),
    "four-propeller": (_USUAL | {"thick": (0.14, 0.18), "span": (1.02, 1.20)}, {"propellers": 4}),
    "swept fighter": (_USUAL | _FIGHTER, {"pointed": True}),
    "delta": (
        _USUAL | _FIGHTER | {"root": (1.0, 1.3), "sweep": (0.42, 0.60), "wing_x": (-0.34, -0.22), "span": (0.62, 0.84)},
        {"pointed": True},
    ),
    "forward-swept": (
        _USUAL | _FIGHTER | {"sweep": (-0.34, -0.2), "span": (0.66, 0.86), "root": (0.5, 0.62), "wing_x": (-0.3, -0.2)},
        {"pointed": True},
    ),
    "glider": (
        _USUAL | {"length": (0.70, 0.84), "thick": (0.095, 0.12), "span": (1.15, 1.40), "root": (0.20, 0.26),
                  "tip": (0.10, 0.16), "lift": (3.0, 8.0), "canopy": (0.22, 0.32), "gear": (0.05, 0.07)},
        {},
    ),
    "seaplane": (_USUAL | _HIGH | {"length": (0.74, 0.90), "gear": (0.26, 0.34)}, {"propellers": 1}),
    "twin-boom": (_USUAL | {"length": (0.70, 0.82), "span": (0.98, 1.16), "tail": (0.0, 0.0)}, {"propellers": 0}),
}  # fmt: skip


def made(draw: Draw) -> list[Solid]:
    """The solids of an airplane, its nose along x."""
    plan = draw.plan(tuple(PLANS))
    ranges, parts = PLANS[plan]
    sizes: dict[str, Any] = draw.spans(ranges)
    root, tip = sizes.pop("root"), sizes.pop("tip")
    airplane = Airplane(
        chord=(root, tip),
        tail_chord=(draw.span("tail root", 0.20, 0.30), draw.span("tail tip", 0.12, 0.20)),
        fin_chord=(draw.span("fin root", 0.26, 0.40), draw.span("fin tip", 0.13, 0.22)),
        **{**parts, **sizes},
    )
    if plan in ("transport", "high-wing propeller", "four-propeller", "glider", "seaplane"):
        airplane = replace(airplane, high_tail=draw.chance("high tail", 0.4))
    if plan in ("swept fighter", "forward-swept", "transport"):
        airplane = replace(airplane, twin_fins=draw.chance("twin fins", 0.5), high_tail=False)
    if plan == "delta" and draw.chance("tailless", 0.7):
        airplane = replace(airplane, tail=0.0)
    if plan in ("airliner", "business jet") and draw.chance("winglets", 0.5):
        return build(airplane) + _winglets(draw, airplane)
    if plan in ("delta", "swept fighter") and draw.chance("canards", 0.4):
        return build(airplane) + _canards(draw, airplane)
    if plan == "glider":
        return build(airplane)
    if plan == "seaplane":
        return build(airplane) + _floats(draw, airplane)
    if plan == "twin-boom":
        return build(airplane) + _booms(draw, airplane)
    if plan == "low-wing propeller" and draw.chance("tanks", 0.4):
        return build(airplane) + _tanks(draw, airplane)
    if plan == "swept fighter" and draw.chance("tanks", 0.5):
        return build(airplane) + _tanks(draw, airplane)
    return build(airplane)


def _wing_tip(a: Airplane, share: float) -> tuple[float, float]:
    """x and z of the wing's middle at a share of its span."""
    z = a.gear + a.thick + a.wing_z * a.thick
    return a.wing_x - a.sweep * share, z + a.span * share * a.lift * 0.0174


def _winglets(draw: Draw, a: Airplane) -> list[Solid]:
    x, z = _wing_tip(a, 0.97)
    height = draw.span("winglet", 0.12, 0.22)
    chord = (a.chord[1] * 0.95, a.chord[1] * 0.5)
    return [wing((x, side * a.span * 0.97, z), height, chord, 0.06, 0.05, 82.0, side) for side in SIDES]


def _canards(draw: Draw, a: Airplane) -> list[Solid]:
    z, span = a.gear + a.thick * 1.3, draw.span("canard", 0.28, 0.40)
    return [wing((a.length * 0.48, 0.0, z), span, (0.24, 0.10), 0.12, 0.05, 4.0, side) for side in SIDES]


def _floats(draw: Draw, a: Airplane) -> list[Solid]:
    length, y, radius = draw.span("float", 0.50, 0.72), draw.span("apart", 0.26, 0.36), 0.095
    solids: list[Solid] = []
    for side in SIDES:
        solids.append(rod((-length, side * y, radius), (length * 0.7, side * y, radius), radius * 0.7, radius))
        solids.append(ball((length * 0.7, side * y, radius), (0.28, radius, radius)))
        for x in (a.wing_x + 0.12, a.wing_x - 0.22):
            solids.append(rod((x, side * y, radius), (x, side * a.thick * 0.5, a.gear + a.thick), 0.035))
    return solids


def _booms(draw: Draw, a: Airplane) -> list[Solid]:
    y, z = draw.span("apart", 0.30, 0.42), a.gear + a.thick + a.wing_z * a.thick
    back, front = -draw.span("boom", 0.95, 1.15), a.wing_x + a.chord[0] * 0.6
    height = draw.span("boom fin", 0.26, 0.38)
    solids: list[Solid] = [block((back + 0.12, 0.0, z + 0.06), (0.22, 2 * y, 0.05))]
    for side in SIDES:
        solids.append(rod((front, side * y, z), (back, side * y, z + 0.05), 0.085, 0.05))
        solids.append(wing((back + 0.13, side * y, z), height, (0.26, 0.16), 0.10, 0.06, 90.0))
        solids.append(block((front + 0.01, side * y, z), (0.045, 0.46, 0.08), roll=side * 50.0))
    return solids


def _tanks(draw: Draw, a: Airplane) -> list[Solid]:
    share = draw.span("tank place", 0.55, 0.95)
    x, z = _wing_tip(a, share)
    return [ball((x, side * a.span * share, z - 0.05), (0.26, 0.07, 0.07)) for side in SIDES]

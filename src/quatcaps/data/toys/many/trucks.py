"""Trucks of any number of kinds: a cab, a chassis and one of many loads; as `toys.trucks` measures them."""

from __future__ import annotations

from dataclasses import dataclass

from quatcaps.data.toys.many import loads
from quatcaps.data.toys.many.draws import Draw
from quatcaps.data.toys.parts import SIDES, ball, block, cabin, rod, wheels, windows
from quatcaps.data.toys.shapes import Solid


@dataclass(frozen=True)
class Chassis:
    """What cab and load stand on. It reaches from x = 0 at the bumper back to -length."""

    length: float
    width: float
    wheel: float
    nose: float  # length of the bonnet, 0 for a flat front
    cab: float  # length of the cab
    cab_height: float
    axles: tuple[float, ...]  # as shares of the length, from the front
    trailer: bool

    @property
    def deck(self) -> float:
        return self.wheel * 1.55


def made(draw: Draw) -> list[Solid]:
    """The solids of a truck, its cab along x."""
    load = draw.plan(loads.LOADS)
    trailer = load.trailer and draw.chance("trailer", 0.4)
    nose = draw.span("nose", 0.28, 0.46) if draw.chance("nosed", 0.5) else 0.0
    rear = draw.pick("rear axles", (1, 2)) if not trailer else 2
    length = draw.span("length", 2.6, 3.6) if trailer else draw.span("length", 1.65, 2.75) + nose * 0.6
    last = draw.span("last axle", 0.84, 0.91)
    wheel = draw.span("wheel", 0.19, 0.25) if trailer else draw.span("wheel", 0.20, 0.33)
    gap = 2.1 * wheel / length
    axles = [draw.span("first axle", 0.11, 0.16), *(last - gap * k for k in range(rear))]
    if trailer:
        axles.append(draw.span("tractor axle", 0.31, 0.36))
    elif rear == 1:
        axles[1] = draw.span("only rear axle", 0.74, 0.82)
    chassis = Chassis(
        length=length,
        width=draw.span("width", 0.72, 1.0),
        wheel=wheel,
        nose=nose,
        cab=draw.span("cab", 0.46, 0.60) + (0.2 if draw.chance("crew", 0.2) else 0.0),
        cab_height=draw.span("cab height", 0.62, 0.76) if nose else draw.span("cab height", 0.70, 1.0),
        axles=tuple(axles),
        trailer=trailer,
    )
    behind = -(chassis.nose + chassis.cab)
    bay = loads.Bay(
        front=behind - (0.18 if trailer else 0.06),
        back=-length,
        deck=chassis.deck,
        width=chassis.width,
        roof=chassis.deck + chassis.cab_height,
    )
    return _carrier(chassis) + _cab(draw, chassis, behind) + load.build(draw, bay)


def _carrier(c: Chassis) -> list[Solid]:
    solids = [block((-c.length / 2, 0.0, c.deck - 0.05), (c.length * 0.98, c.width * 0.55, 0.14))]
    for share in c.axles:
        solids += wheels(-c.length * share, c.width * 1.12, c.wheel, 0.20)
        solids.append(block((-c.length * share, 0.0, (c.wheel + c.deck) / 2), (0.10, c.width * 0.9, c.deck - c.wheel)))
    return solids


def _cab(draw: Draw, c: Chassis, behind: float) -> list[Solid]:
    low, high = c.deck - 0.10, c.deck + c.cab_height
    waist = low + c.cab_height * draw.span("waist", 0.46, 0.60)
    rake = draw.span("rake", 0.04, 0.20)
    wide = c.width * 0.94
    solids = [
        block(((behind - c.nose) / 2, 0.0, (low + waist) / 2), (c.cab, wide, waist - low)),
        block((behind + 0.04, 0.0, (waist + high) / 2), (0.08, wide * 0.93, high - waist)),
        *windows((behind, -c.nose), (behind, -c.nose - rake), (waist - 0.02, high), wide, 0.9, 0.05, middle=False),
        block((0.02, 0.0, low + 0.02), (0.10, c.width, 0.12)),
    ]
    if c.nose:
        top = waist - draw.span("bonnet drop", 0.0, 0.10)
        solids.append(
            cabin(
                (-c.nose - 0.05, 0.0), (-c.nose - 0.05, -0.05), (low, top), wide * draw.span("bonnet", 0.7, 0.95), 0.88
            )
        )
        guard = (c.wheel * 1.4, 0.12, c.wheel * 0.8)
        solids += [ball((-c.length * c.axles[0], side * c.width * 0.44, c.wheel * 1.4), guard) for side in SIDES]
    if draw.chance("stacks", 0.3):
        pipe, x = draw.span("stack", 0.12, 0.30), behind - 0.04
        solids += [
            rod((x, side * c.width * 0.45, c.deck), (x, side * c.width * 0.45, high + pipe), 0.05) for side in SIDES
        ]
    if c.trailer and draw.chance("deflector", 0.5):
        solids.append(cabin((behind, behind + 0.40), (behind, behind + 0.08), (high - 0.02, high + 0.22), wide, 0.9))
    return solids

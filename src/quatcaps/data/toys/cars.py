"""Ten cars on their wheels, lengths in units of about half their length."""

from __future__ import annotations

from dataclasses import dataclass

from quatcaps.data.toys.parts import SIDES, ball, block, cabin, rod, wheels, windows
from quatcaps.data.toys.shapes import Solid


@dataclass(frozen=True)
class Car:
    """The proportions of a car. It reaches from x = length at the front to -length."""

    length: float = 1.0  # half of it
    width: float = 0.84
    waist: float = 0.46  # top of the bonnet above the ground
    roof: float = 0.80
    glass: tuple[float, float] = (-0.70, 0.36)  # where the cabin meets the body, rear and front
    top: tuple[float, float] = (-0.44, 0.02)  # where the roof begins and ends
    wheel: float = 0.225
    axle: float = 0.64  # from the middle
    open_top: bool = False
    racing: bool = False  # open wheels
    round_back: bool = False
    spoiler: bool = False
    rack: bool = False
    spare: bool = False


KINDS: tuple[Car, ...] = (
    # 0 … 3 and 5 are the test split.
    Car(),  # sedan
    Car(length=0.86, glass=(-0.80, 0.34), top=(-0.62, 0.04), roof=0.84, axle=0.54, waist=0.47),  # hatchback
    Car(racing=True, length=1.12, width=0.84, wheel=0.23, axle=0.72),  # formula car
    Car(open_top=True, length=0.94, waist=0.42, glass=(-0.30, 0.30), roof=0.64),  # roadster
    Car(glass=(-0.64, 0.30), top=(-0.36, -0.04), roof=0.75, waist=0.44, spoiler=True, width=0.88),  # coupé
    Car(length=1.02, waist=0.54, roof=0.98, glass=(-0.96, 0.36), top=(-0.90, 0.14), wheel=0.26, rack=True),  # SUV
    Car(glass=(-0.94, 0.36), top=(-0.80, 0.06), roof=0.82, length=1.04),  # estate
    Car(length=0.90, round_back=True, roof=0.84, axle=0.56, glass=(-0.52, 0.34), top=(-0.38, 0.10)),  # beetle
    Car(open_top=True, length=1.06, waist=0.46, glass=(-0.24, 0.26), roof=0.70, width=0.88),  # convertible
    Car(length=0.84, glass=(-0.76, 0.48), top=(-0.66, 0.18), roof=0.96, waist=0.52, axle=0.52, wheel=0.25,
        spare=True),  # jeep-like
)  # fmt: skip


def build(car: Car) -> list[Solid]:
    """The car's solids, its wheels on the ground."""
    c = car
    if c.racing:
        return _racing(c)
    low = c.wheel * 0.75
    belt = c.waist - (c.waist - low) * 0.35
    solids: list[Solid] = [
        cabin((-c.length, c.length), (-c.length * 0.985, c.length * 0.985), (low, belt), c.width, 1.0),
        cabin(
            (-c.length * 0.985, c.length * 0.985), (-c.length * 0.94, c.length * 0.90), (belt, c.waist), c.width, 0.92
        ),
        block((c.length, 0.0, low + 0.07), (0.09, c.width * 0.98, 0.09)),
        block((-c.length, 0.0, low + 0.07), (0.09, c.width * 0.98, 0.09)),
    ]
    for x in (c.axle, -c.axle):
        solids += wheels(x, c.width * 1.16, c.wheel, 0.20)
    if c.open_top:
        return solids + _open_top(c)
    if c.round_back:
        solids.append(ball((c.length * 0.52, 0.0, c.waist - 0.04), (c.length * 0.44, c.width * 0.36, 0.15)))
        solids.append(ball((-c.length * 0.55, 0.0, c.waist - 0.04), (c.length * 0.46, c.width * 0.40, 0.24)))
        for x in (c.axle, -c.axle):
            solids += [ball((x, side * c.width * 0.47, c.wheel * 1.3), (0.30, 0.12, 0.20)) for side in SIDES]
        solids += windows(c.glass, c.top, (c.waist - 0.02, c.roof - 0.04), c.width * 0.86, 0.84)
        solids.append(ball(((c.top[0] + c.top[1]) / 2, 0.0, c.roof - 0.06), (0.32, c.width * 0.34, 0.10)))
    else:
        solids += windows(c.glass, c.top, (c.waist - 0.02, c.roof), c.width * 0.92, 0.82)
    if c.spoiler:
        solids.append(block((-c.length * 0.92, 0.0, c.waist + 0.14), (0.16, c.width * 0.95, 0.045)))
        solids += [
            block((-c.length * 0.92, side * c.width * 0.34, c.waist + 0.06), (0.10, 0.05, 0.14)) for side in SIDES
        ]
    if c.rack:
        solids += [block((-0.38, side * c.width * 0.30, c.roof + 0.03), (0.95, 0.05, 0.06)) for side in SIDES]
    if c.spare:
        solids.append(rod((-c.length + 0.04, 0.0, c.waist), (-c.length - 0.14, 0.0, c.waist), 0.19))
    return solids


def _open_top(c: Car) -> list[Solid]:
    """A windscreen, two seats and what shows above the doors."""
    screen = cabin(
        (c.glass[1] - 0.02, c.glass[1] + 0.05),
        (c.glass[1] - 0.20, c.glass[1] - 0.14),
        (c.waist - 0.02, c.roof),
        c.width * 0.86,
        0.86,
    )
    seats = [
        block((c.glass[0] + 0.08, side * c.width * 0.22, c.waist + 0.07), (0.11, c.width * 0.30, 0.22), pitch=10.0)
        for side in SIDES
    ]
    doors = [
        block(((c.glass[0] + c.glass[1]) / 2, side * c.width * 0.43, c.waist + 0.02), (0.62, 0.06, 0.09))
        for side in SIDES
    ]
    cover = ball((c.glass[0] - 0.20, 0.0, c.waist), (0.16, c.width * 0.42, 0.10))
    return [screen, *seats, *doors, cover]


def _racing(c: Car) -> list[Solid]:
    z = c.wheel * 1.05
    solids = [
        rod((-c.length * 0.2, 0.0, z + 0.03), (c.length, 0.0, z - 0.04), 0.20, 0.08),
        cabin((-c.length * 0.92, 0.16), (-c.length * 0.85, -0.10), (z - 0.12, z + 0.16), 0.62, 0.62),
        rod((-c.length * 0.85, 0.0, z + 0.16), (-0.16, 0.0, z + 0.24), 0.08, 0.15),
        ball((0.02, 0.0, z + 0.22), (0.11, 0.10, 0.12)),
        block((c.length, 0.0, z - 0.10), (0.22, c.width * 1.0, 0.05)),
        block((-c.length * 0.96, 0.0, z + 0.36), (0.24, c.width * 0.95, 0.05)),
        block((-c.length * 0.90, 0.0, z + 0.22), (0.10, 0.07, 0.32)),
    ]
    solids += [block((-c.length * 0.96, side * c.width * 0.46, z + 0.24), (0.28, 0.05, 0.34)) for side in SIDES]
    for x in (c.axle, -c.axle):
        solids += wheels(x, c.width * 1.22, c.wheel, 0.20)
        solids.append(rod((x, -c.width * 0.5, z), (x, c.width * 0.5, z), 0.04))
    return solids

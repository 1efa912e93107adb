"""Ten four-legged animals, lengths in units of about one body length, angles in degrees."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quatcaps.data.toys.parts import SIDES, Vector, ball, rod
from quatcaps.data.toys.shapes import Solid


@dataclass(frozen=True)
class Animal:
    """The proportions of a four-legged animal; what an animal lacks has length 0."""

    body: float  # half the length of the barrel
    deep: float  # half its height
    wide: float  # half its width
    leg: float  # from the belly line to the ground
    thick: float  # radius of a leg
    neck: float
    neck_angle: float  # above the horizontal
    neck_thick: float
    head: float  # half the head's length
    snout: float
    tail: float
    tail_angle: float  # above the horizontal, backwards
    ear: float
    stride: float = 0.0  # how far the legs swing
    chest: float = 1.0  # size of the forequarters against the barrel
    rump: float = 1.0
    snout_thick: float = 0.5  # against the head
    tail_thick: float = 0.05
    flop: bool = False  # ears that hang
    fan: bool = False  # ears like an elephant's
    trunk: float = 0.0
    tusk: float = 0.0
    horn: float = 0.0  # a pair
    nose_horn: float = 0.0
    mane: float = 0.0
    tuft: float = 0.0  # at the end of the tail


KINDS: tuple[Animal, ...] = (
    # 0 … 3 and 5 are the test split.
    Animal(  # cow
        body=0.60, deep=0.31, wide=0.28, leg=0.42, thick=0.11, neck=0.24, neck_angle=30.0, neck_thick=0.18,
        head=0.24, snout=0.20, tail=0.42, tail_angle=-66.0, ear=0.12, stride=4.0, horn=0.24, snout_thick=0.75,
        tuft=0.08, tail_thick=0.05,
    ),
    Animal(  # fox
        body=0.46, deep=0.21, wide=0.18, leg=0.36, thick=0.085, neck=0.20, neck_angle=50.0, neck_thick=0.14,
        head=0.21, snout=0.22, tail=0.42, tail_angle=-14.0, ear=0.22, stride=10.0, tail_thick=0.13,
    ),
    Animal(  # rhinoceros
        body=0.62, deep=0.34, wide=0.31, leg=0.32, thick=0.14, neck=0.16, neck_angle=0.0, neck_thick=0.23,
        head=0.28, snout=0.20, tail=0.26, tail_angle=-60.0, ear=0.14, stride=8.0, snout_thick=0.75, chest=1.05,
        nose_horn=0.34, tail_thick=0.05,
    ),
    Animal(  # llama
        body=0.46, deep=0.26, wide=0.23, leg=0.55, thick=0.10, neck=0.56, neck_angle=76.0, neck_thick=0.14,
        head=0.19, snout=0.17, tail=0.20, tail_angle=-35.0, ear=0.20, stride=5.0, tail_thick=0.09,
    ),
    Animal(  # giraffe
        body=0.46, deep=0.25, wide=0.22, leg=0.68, thick=0.095, neck=0.80, neck_angle=60.0, neck_thick=0.125,
        head=0.19, snout=0.20, tail=0.36, tail_angle=-70.0, ear=0.14, chest=1.12, rump=0.9, horn=0.14, tuft=0.08,
        tail_thick=0.045,
    ),
    Animal(  # bear
        body=0.54, deep=0.33, wide=0.30, leg=0.32, thick=0.145, neck=0.16, neck_angle=20.0, neck_thick=0.22,
        head=0.26, snout=0.16, tail=0.10, tail_angle=-20.0, ear=0.11, stride=14.0, rump=1.06, tail_thick=0.07,
    ),
    Animal(  # elephant
        body=0.60, deep=0.40, wide=0.35, leg=0.44, thick=0.16, neck=0.16, neck_angle=22.0, neck_thick=0.24,
        head=0.30, snout=0.0, tail=0.36, tail_angle=-65.0, ear=0.38, fan=True, trunk=0.62, tusk=0.28, tuft=0.06,
        tail_thick=0.05,
    ),
    Animal(  # dog
        body=0.46, deep=0.21, wide=0.18, leg=0.42, thick=0.09, neck=0.22, neck_angle=54.0, neck_thick=0.14,
        head=0.22, snout=0.20, tail=0.36, tail_angle=50.0, ear=0.20, flop=True, stride=9.0, chest=1.12, rump=0.92,
        tail_thick=0.07, snout_thick=0.6,
    ),
    Animal(  # horse
        body=0.54, deep=0.26, wide=0.22, leg=0.58, thick=0.095, neck=0.44, neck_angle=52.0, neck_thick=0.16,
        head=0.23, snout=0.24, tail=0.48, tail_angle=-55.0, ear=0.13, stride=12.0, chest=1.04, rump=1.06,
        tail_thick=0.10, snout_thick=0.62,
    ),
    Animal(  # lion
        body=0.54, deep=0.24, wide=0.21, leg=0.40, thick=0.11, neck=0.28, neck_angle=40.0, neck_thick=0.16,
        head=0.25, snout=0.14, tail=0.46, tail_angle=24.0, ear=0.10, stride=12.0, mane=0.38, tuft=0.10,
        snout_thick=0.66, tail_thick=0.05,
    ),
)  # fmt: skip


def build(animal: Animal) -> list[Solid]:
    """The animal's solids, standing on the ground."""
    a = animal
    height = a.leg + a.deep * 0.75
    front, back = a.body * 0.62, -a.body * 0.62
    solids = [
        rod((back, 0.0, height), (front, 0.0, height), a.wide * a.rump, a.wide * a.chest, flatten=a.deep / a.wide),
        ball((front, 0.0, height), (a.body * 0.40, a.wide * a.chest, a.deep * a.chest)),
        ball((back, 0.0, height), (a.body * 0.40, a.wide * a.rump, a.deep * a.rump)),
    ]
    swing = math.sin(math.radians(a.stride)) * a.leg * 1.3
    for x, sign in ((front, 1.0), (back, -1.0)):
        for side in (1.0, -1.0):
            foot = x + sign * side * swing
            y = side * (a.wide - a.thick * 0.55)
            solids.append(rod((x, y * 0.80, height), (foot, y, 0.0), a.thick * 1.35, a.thick * 0.9))
            solids.append(
                ball((foot + a.thick * 0.45, y, a.thick * 0.55), (a.thick * 1.45, a.thick * 1.1, a.thick * 0.75))
            )
    solids += _tail(a, (-a.body * 0.93, 0.0, height + a.deep * 0.45))
    neck_start = (a.body * 0.60, 0.0, height + a.deep * 0.20)
    cosine, sine = math.cos(math.radians(a.neck_angle)), math.sin(math.radians(a.neck_angle))
    reach = a.neck + a.deep * 0.5 + a.body * 0.12
    poll = (neck_start[0] + reach * cosine, 0.0, neck_start[2] + reach * sine)
    base = min(a.neck_thick * 1.45, 0.78 * a.chest * min(a.wide, a.deep))
    solids.append(rod(neck_start, poll, base, a.neck_thick))
    solids += _head(a, poll)
    if a.mane:
        middle = (poll[0] - a.head * 0.45, 0.0, poll[2] - 0.02)
        solids.append(ball(middle, (a.mane * 0.55, a.mane, a.mane * 1.08), pitch=-20.0))
    return solids


def _tail(a: Animal, root: Vector) -> list[Solid]:
    angle = math.radians(a.tail_angle)
    tip = (root[0] - a.tail * math.cos(angle), 0.0, max(root[2] + a.tail * math.sin(angle), a.tail_thick))
    tail = [rod(root, tip, a.tail_thick, a.tail_thick * 0.8)]
    if a.tuft:
        tail.append(ball(tip, (a.tuft * 1.3, a.tuft, a.tuft), pitch=-a.tail_angle))
    elif a.tail_thick > 0.06:
        tail.append(ball(tip, (a.tail_thick * 1.2, a.tail_thick * 0.85, a.tail_thick * 0.85), pitch=-a.tail_angle))
    return tail


def _head(a: Animal, poll: Vector) -> list[Solid]:
    """The head hangs forward from the end of the neck."""
    down = 24.0 if a.neck_angle > 20.0 else 30.0
    dx, dz = math.cos(math.radians(down)), -math.sin(math.radians(down))
    broad = a.head * (0.95 if a.fan else 0.78)
    middle = (poll[0] + a.head * 0.35 * dx, 0.0, poll[2] + a.head * 0.35 * dz)
    solids = [ball(middle, (a.head, broad, broad), pitch=-down)]
    nose = (middle[0] + (a.head + a.snout) * dx, 0.0, middle[2] + (a.head + a.snout) * dz)
    if a.snout:
        thick = broad * a.snout_thick
        solids.append(
            rod((middle[0] + a.head * 0.3 * dx, 0.0, middle[2] + a.head * 0.3 * dz), nose, thick * 1.25, thick)
        )
        solids.append(ball(nose, (thick * 0.6, thick, thick), pitch=-down))
    crown = (middle[0] - a.head * 0.35, middle[2] + broad * 0.75)
    if a.fan:
        solids += [
            ball(
                (middle[0] - a.head * 0.45, side * (broad + a.ear * 0.55), middle[2]),
                (a.ear * 0.16, a.ear * 0.75, a.ear),
                yaw=side * 28.0,
            )
            for side in SIDES
        ]
    elif a.flop:
        solids += [
            ball((crown[0], side * broad * 1.0, crown[1] - a.ear * 0.6), (a.ear * 0.45, a.ear * 0.25, a.ear))
            for side in SIDES
        ]
    else:
        solids += [
            rod(
                (crown[0], side * broad * 0.55, crown[1] - a.ear * 0.3),
                (crown[0] - a.ear * 0.25, side * (broad * 0.6 + a.ear * 0.35), crown[1] + a.ear),
                a.ear * 0.42,
                a.ear * 0.12,
            )
            for side in SIDES
        ]
    if a.trunk:
        bend = (nose[0] + a.trunk * 0.12, 0.0, middle[2] - a.trunk * 0.45)
        tip = (bend[0] + a.trunk * 0.30, 0.0, max(bend[2] - a.trunk * 0.45, 0.06))
        solids.append(rod((middle[0] + a.head * 0.5, 0.0, middle[2]), bend, a.head * 0.42, a.head * 0.30))
        solids.append(rod(bend, tip, a.head * 0.30, a.head * 0.22))
    if a.tusk:
        start = (middle[0] + a.head * 0.5, middle[2] - broad * 0.5)
        solids += [
            rod(
                (start[0], side * broad * 0.5, start[1]),
                (start[0] + a.tusk, side * broad * 0.75, start[1] - a.tusk * 0.15),
                a.head * 0.16,
                a.head * 0.06,
            )
            for side in SIDES
        ]
    if a.nose_horn:
        foot = (nose[0] - 0.04, 0.0, nose[2] + broad * 0.3)
        solids.append(rod(foot, (foot[0] + 0.10, 0.0, foot[2] + a.nose_horn), 0.10, 0.02))
    if a.horn:
        solids += [
            rod(
                (crown[0] + 0.06, side * broad * 0.5, crown[1] - 0.03),
                (crown[0] + 0.12, side * (broad * 0.5 + a.horn * 0.7), crown[1] + a.horn * 0.8),
                a.horn * 0.26,
                a.horn * 0.10,
            )
            for side in SIDES
        ]
    return solids

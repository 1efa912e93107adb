"""Ten trucks on their wheels, lengths in units of about a third of their length."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quatcaps.data.toys.parts import SIDES, ball, block, cabin, rod, wheels, windows
from quatcaps.data.toys.shapes import Solid


@dataclass(frozen=True)
class Truck:
    """The proportions of a truck. It reaches from x = 0 at the bumper back to -length."""

    load: str  # box, tank, dump, stakes, mixer, pickup
    length: float = 2.3
    width: float = 0.82
    cab: float = 0.55  # length of the cab
    cab_height: float = 0.72
    nose: float = 0.0  # length of the bonnet, 0 for a flat front
    load_height: float = 0.95
    wheel: float = 0.23
    axles: tuple[float, ...] = (0.15, 0.78)  # as shares of the length, from the front
    trailer: bool = False  # a gap behind the cab
    stacks: bool = False  # exhaust pipes


KINDS: tuple[Truck, ...] = (
    # 0 … 3 and 5 are the test split.
    Truck(load="box", nose=0.34, length=2.3, cab_height=0.64, load_height=0.92),
    Truck(load="tank", axles=(0.13, 0.66, 0.84), length=2.5, cab_height=0.84, load_height=0.80),
    Truck(load="dump", nose=0.40, length=2.2, axles=(0.15, 0.68, 0.87), stacks=True, wheel=0.25, load_height=0.62),
    Truck(load="stakes", length=2.3, cab_height=0.82, load_height=0.42),
    Truck(load="box", length=2.1, cab_height=0.84, load_height=1.02, cab=0.50),
    Truck(load="box", nose=0.36, length=3.0, trailer=True, axles=(0.10, 0.34, 0.80, 0.91), wheel=0.22, stacks=True,
          cab_height=0.76, cab=0.48),
    Truck(load="tank", nose=0.36, length=2.9, trailer=True, axles=(0.10, 0.34, 0.80, 0.91), wheel=0.22, stacks=True,
          load_height=0.74, cab=0.48),
    Truck(load="pickup", nose=0.55, length=2.1, cab=0.62, cab_height=0.62, axles=(0.20, 0.80), wheel=0.24),
    Truck(load="dump", length=2.1, cab_height=0.80, axles=(0.15, 0.76), wheel=0.26, load_height=0.60),
    Truck(load="mixer", length=2.4, cab_height=0.80, axles=(0.13, 0.66, 0.84), load_height=0.90),
)  # fmt: skip


def build(truck: Truck) -> list[Solid]:
    """The truck's solids, its wheels on the ground."""
    t = truck
    deck = t.wheel * 1.55
    solids = [block((-t.length / 2, 0.0, deck - 0.05), (t.length * 0.98, t.width * 0.55, 0.14))]
    for share in t.axles:
        solids += wheels(-t.length * share, t.width * 1.14, t.wheel, 0.22)
    behind = -(t.nose + t.cab)
    solids += _cab(t, deck, behind)
    start = behind - (0.16 if t.trailer else 0.06)
    return solids + _load(t, deck, start, -t.length)


def _cab(t: Truck, deck: float, behind: float) -> list[Solid]:
    low, high = deck - 0.10, deck + t.cab_height
    solids: list[Solid] = []
    if t.nose:
        bonnet = low + t.cab_height * 0.62
        solids.append(cabin((-t.nose - 0.05, 0.0), (-t.nose - 0.05, -0.04), (low, bonnet), t.width * 0.80, 0.88))
        solids += [ball((-t.length * t.axles[0], side * t.width * 0.42, t.wheel * 1.35),
                                         (t.wheel * 1.5, 0.12, t.wheel * 0.85)) for side in SIDES]  # fmt: skip
        solids += _glass(t, (behind, -t.nose), -t.nose - 0.15, (bonnet - 0.02, high), t.width * 0.92)
        solids.append(block(((behind - t.nose) / 2, 0.0, (low + bonnet) / 2), (t.cab, t.width * 0.92, bonnet - low)))
    else:
        waist = low + t.cab_height * 0.5
        solids.append(block((behind / 2, 0.0, (low + waist) / 2), (t.cab, t.width, waist - low)))
        solids += _glass(t, (behind, 0.0), -0.14, (waist - 0.02, high), t.width)
    solids.append(block((0.02, 0.0, low + 0.02), (0.10, t.width * 1.0, 0.12)))
    if t.stacks:
        solids += [
            rod((behind - 0.06, side * t.width * 0.44, deck), (behind - 0.06, side * t.width * 0.44, high + 0.22), 0.05)
            for side in SIDES
        ]
    return solids


def _glass(t: Truck, x: tuple[float, float], brow: float, z: tuple[float, float], width: float) -> list[Solid]:
    """The upper half of the cab: windows to the front and the sides, a wall behind."""
    wall = block((x[0] + 0.04, 0.0, (z[0] + z[1]) / 2), (0.08, width * 0.93, z[1] - z[0]))
    return [wall, *windows(x, (x[0], brow), z, width, 0.90, post=0.05, middle=False)]


def _load(t: Truck, deck: float, front: float, back: float) -> list[Solid]:
    middle, length, half = (front + back) / 2, front - back, t.width / 2
    top = deck + t.load_height
    if t.load == "box":
        return [block((middle, 0.0, (deck + top) / 2 + 0.02), (length, t.width * 1.04, t.load_height))]
    if t.load == "tank":
        radius = t.load_height / 2
        z = deck + radius + 0.05
        return [
            rod((front - radius * 0.3, 0.0, z), (back + radius * 0.3, 0.0, z), radius),
            ball((front - radius * 0.3, 0.0, z), (radius * 0.4, radius, radius)),
            ball((back + radius * 0.3, 0.0, z), (radius * 0.4, radius, radius)),
            rod((middle, 0.0, z), (middle, 0.0, z + radius * 1.2), 0.12),
            block((middle, 0.0, deck + 0.03), (length, t.width * 0.95, 0.08)),
        ]
    if t.load == "mixer":
        z = deck + t.load_height * 0.52
        return [
            rod((front - 0.05, 0.0, z - 0.10), (middle, 0.0, z + 0.04), 0.26, 0.46),
            rod((middle, 0.0, z + 0.04), (back + 0.12, 0.0, z + 0.30), 0.46, 0.20),
            block((back + 0.18, 0.0, deck + 0.2), (0.12, 0.4, 0.5)),
            block((middle, 0.0, deck + 0.03), (length, t.width * 0.9, 0.10)),
        ]
    if t.load == "stakes":
        posts = [front - 0.03 - k * (length - 0.06) / 4 for k in range(5)]
        rails = [block((middle, side * half, top - 0.05), (length, 0.06, 0.10)) for side in SIDES]
        rails += [block((middle, side * half, deck + 0.18), (length, 0.06, 0.10)) for side in SIDES]
        for x in posts:
            rails += [block((x, side * half, (deck + top) / 2), (0.07, 0.07, t.load_height)) for side in SIDES]
        floor = block((middle, 0.0, deck + 0.04), (length, t.width * 1.02, 0.10))
        return [floor, *rails]
    tilt = 7.0 if t.load == "dump" else 0.0
    low = deck if t.load == "dump" else deck - 0.12
    height = t.load_height if t.load == "dump" else 0.34
    sine = math.sin(math.radians(tilt)) * length / 2
    floor = block((middle, 0.0, low + 0.05 + sine), (length, t.width, 0.10), pitch=tilt)
    sides = [
        block((middle, side * half, low + height / 2 + sine), (length, 0.07, height), pitch=tilt) for side in SIDES
    ]
    ends = [
        block((front - 0.03, 0.0, low + height / 2 + 2 * sine), (0.07, t.width, height), pitch=tilt),
        block((back + 0.03, 0.0, low + height / 2), (0.07, t.width, height * 0.8), pitch=tilt),
    ]
    if t.load == "dump":
        ends.append(block((front + 0.12, 0.0, low + height + 2 * sine), (0.36, t.width * 0.95, 0.06), pitch=tilt))
    else:
        ends += [
            ball((-t.length * t.axles[1], side * half, t.wheel * 1.3), (t.wheel * 1.5, 0.09, t.wheel)) for side in SIDES
        ]
    return [floor, *sides, *ends]

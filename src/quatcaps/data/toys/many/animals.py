"""Animals of any number of kinds: four-legged ones as `toys.animals` builds them, and those of `creatures`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from quatcaps.data.toys.animals import Animal, build
from quatcaps.data.toys.many import creatures
from quatcaps.data.toys.many.draws import Draw, Span
from quatcaps.data.toys.parts import SIDES, ball, rod, wing
from quatcaps.data.toys.shapes import Solid

Ranges = dict[str, Span]

HOOFED: Ranges = {
    "body": (0.46, 0.64), "deep": (0.22, 0.32), "wide": (0.19, 0.28), "leg": (0.42, 0.64), "thick": (0.08, 0.11),
    "neck": (0.22, 0.46), "neck_angle": (28.0, 62.0), "neck_thick": (0.13, 0.18), "head": (0.19, 0.25),
    "snout": (0.16, 0.25), "snout_thick": (0.55, 0.75), "tail": (0.14, 0.50), "tail_angle": (-75.0, -40.0),
    "tail_thick": (0.045, 0.10), "ear": (0.11, 0.18), "stride": (0.0, 14.0), "chest": (0.95, 1.12),
    "rump": (0.92, 1.08),
}  # fmt: skip
HUNTER: Ranges = HOOFED | {
    "body": (0.42, 0.58), "deep": (0.17, 0.25), "wide": (0.15, 0.22), "leg": (0.26, 0.46), "neck": (0.16, 0.28),
    "neck_angle": (30.0, 60.0), "snout": (0.10, 0.24), "tail": (0.30, 0.60), "tail_angle": (-30.0, 60.0),
    "tail_thick": (0.05, 0.14), "ear": (0.10, 0.26),
}  # fmt: skip
HEAVY: Ranges = HOOFED | {
    "body": (0.50, 0.66), "deep": (0.30, 0.40), "wide": (0.27, 0.36), "leg": (0.20, 0.36), "thick": (0.12, 0.16),
    "neck": (0.10, 0.18), "neck_angle": (-5.0, 25.0), "neck_thick": (0.19, 0.25), "head": (0.23, 0.30),
    "snout": (0.14, 0.24), "tail": (0.08, 0.28), "snout_thick": (0.60, 0.90), "ear": (0.10, 0.16),
}  # fmt: skip
ELEPHANT: Ranges = HEAVY | {
    "deep": (0.36, 0.44), "leg": (0.36, 0.54), "ear": (0.28, 0.46), "trunk": (0.48, 0.72), "tusk": (0.12, 0.36),
    "snout": (0.0, 0.0), "neck_angle": (15.0, 30.0), "tail": (0.28, 0.40),
}  # fmt: skip
LONG_NECKED: Ranges = HOOFED | {
    "body": (0.40, 0.52), "leg": (0.50, 0.78), "neck": (0.56, 0.95), "neck_angle": (52.0, 80.0),
    "neck_thick": (0.105, 0.14), "head": (0.17, 0.20), "horn": (0.0, 0.16),
}  # fmt: skip
CAMEL: Ranges = HOOFED | {"leg": (0.52, 0.66), "neck": (0.36, 0.54), "neck_angle": (32.0, 56.0), "snout": (0.2, 0.26)}
SMALL: Ranges = HOOFED | {
    "body": (0.34, 0.46), "deep": (0.24, 0.34), "wide": (0.22, 0.32), "leg": (0.10, 0.18), "thick": (0.07, 0.10),
    "neck": (0.04, 0.10), "neck_angle": (0.0, 25.0), "neck_thick": (0.15, 0.2), "snout": (0.14, 0.26),
    "snout_thick": (0.35, 0.5), "ear": (0.08, 0.12), "tail": (0.06, 0.10), "tail_angle": (-40.0, 10.0),
}  # fmt: skip
DINOSAUR: Ranges = HEAVY | {
    "neck": (0.60, 0.95), "neck_angle": (18.0, 50.0), "neck_thick": (0.11, 0.15), "head": (0.15, 0.19),
    "snout": (0.06, 0.12), "ear": (0.03, 0.03), "leg": (0.30, 0.46), "tail": (0.10, 0.10),
}  # fmt: skip
PLATED: Ranges = HEAVY | {
    "neck": (0.16, 0.26), "neck_angle": (-25.0, 0.0), "neck_thick": (0.12, 0.16), "head": (0.16, 0.20),
    "ear": (0.03, 0.03), "rump": (1.0, 1.2), "wide": (0.20, 0.27), "tail": (0.10, 0.10),
}  # fmt: skip


def _animal(draw: Draw, ranges: Ranges, **parts: Any) -> Animal:
    return Animal(**{**draw.spans(ranges), **parts})


def _back(a: Animal) -> float:
    """The height of the back above the ground."""
    return a.leg + a.deep * 1.75


def hoofed(draw: Draw) -> list[Solid]:
    """Cow, horse, goat, deer, bison."""
    head = draw.pick("horns", ("none", "short", "long", "antlers", "curled"))
    horn = {"short": (0.10, 0.18), "long": (0.24, 0.40)}.get(head)
    tuft = draw.chance("tufted", 0.5)
    a = _animal(draw, HOOFED, horn=draw.span("horn", *horn) if horn else 0.0, tuft=0.08 if tuft else 0.0)
    solids = build(a)
    if draw.chance("shaggy", 0.25):
        solids.append(ball((a.body * 0.5, 0.0, _back(a) - 0.12), (0.30, a.wide * 1.1, 0.26)))
    if head in ("antlers", "curled"):
        solids += _headgear(draw, head, a)
    return solids


def _headgear(draw: Draw, what: str, a: Animal) -> list[Solid]:
    sine, cosine = math.sin(math.radians(a.neck_angle)), math.cos(math.radians(a.neck_angle))
    reach = a.neck + a.deep * 0.5 + a.body * 0.12
    x = a.body * 0.6 + reach * cosine
    z = a.leg + a.deep * 0.95 + reach * sine + a.head * 0.55
    solids: list[Solid] = []
    size = draw.span("antler", 0.32, 0.52)
    for side in SIDES:
        y = side * a.head * 0.4
        if what == "curled":
            solids.append(rod((x, y, z - 0.05), (x - 0.16, y + side * 0.16, z + 0.04), 0.085, 0.075))
            solids.append(rod((x - 0.16, y + side * 0.16, z + 0.04), (x - 0.10, y + side * 0.2, z - 0.2), 0.075, 0.05))
            continue
        tip = (x - size * 0.3, y + side * size * 0.6, z + size)
        solids.append(rod((x, y, z - 0.05), tip, 0.05, 0.035))
        for share in (0.45, 0.8):
            root = (x - size * 0.3 * share, y + side * size * 0.6 * share, z + size * share)
            solids.append(rod(root, (root[0] + size * 0.36, root[1] + side * 0.05, root[2] + size * 0.2), 0.04, 0.03))
    return solids


def hunter(draw: Draw) -> list[Solid]:
    """Dog, fox, cat, lion, wolf."""
    mane = draw.span("mane", 0.30, 0.40) if draw.chance("maned", 0.25) else 0.0
    a = _animal(draw, HUNTER, mane=mane, flop=draw.chance("flop", 0.3), tuft=0.09 if mane else 0.0)
    return build(a)


def heavy(draw: Draw) -> list[Solid]:
    """Bear, rhinoceros, hippopotamus, boar."""
    what = draw.pick("armed", ("none", "nose", "tusks", "none"))
    nose = draw.span("nose horn", 0.22, 0.42) if what == "nose" else 0.0
    tusk = draw.span("tusk", 0.14, 0.24) if what == "tusks" else 0.0
    return build(_animal(draw, HEAVY, nose_horn=nose, tusk=tusk))


def elephant(draw: Draw) -> list[Solid]:
    return build(_animal(draw, ELEPHANT, fan=True, tuft=0.06))


def long_necked(draw: Draw) -> list[Solid]:
    """Giraffe, llama, gerenuk."""
    return build(_animal(draw, LONG_NECKED, tuft=0.08))


def camel(draw: Draw) -> list[Solid]:
    a = _animal(draw, CAMEL)
    size, high = draw.span("hump", 0.16, 0.24), draw.span("hump height", 0.20, 0.34)
    places = (0.0,) if draw.chance("dromedary", 0.5) else (0.26, -0.26)
    return build(a) + [ball((x, 0.0, _back(a) - 0.04), (size, a.wide * 0.75, high)) for x in places]


def small(draw: Draw) -> list[Solid]:
    """Mouse, hedgehog, armadillo."""
    what = draw.pick("coat", ("mouse", "spines", "armour"))
    a = _animal(draw, SMALL, ear=draw.span("large ear", 0.20, 0.30) if what == "mouse" else 0.08)
    solids, z = build(a), a.leg + a.deep * 0.75
    if what == "mouse":
        tip = (-a.body - draw.span("long tail", 0.5, 0.8), 0.0, 0.06)
        return [*solids, rod((-a.body * 0.8, 0.0, z), tip, 0.06, 0.03)]
    if what == "armour":
        return [*solids, ball((-0.02, 0.0, z + 0.06), (a.body * 1.15, a.wide * 1.25, a.deep * 1.15))]
    length = draw.span("spine", 0.22, 0.34)
    for row, count in ((0.0, 5), (45.0, 4)):
        for k in range(count):
            pitch = math.radians(70.0 + 80.0 * k / (count - 1))
            for side in SIDES if row else (0.0,):
                up, out = math.cos(math.radians(row)), math.sin(math.radians(row)) * side
                way = (math.cos(pitch), math.sin(pitch) * out, math.sin(pitch) * up)
                x = -a.body * 0.9 * (k / (count - 1)) + a.body * 0.35
                root = (x, a.wide * 0.75 * out, z + a.deep * 0.75 * up)
                tip = (root[0] + way[0] * length, root[1] + way[1] * length, root[2] + way[2] * length)
                solids.append(rod(root, tip, 0.07, 0.015))
    return solids


def sauropod(draw: Draw) -> list[Solid]:
    a = _animal(draw, DINOSAUR)
    return build(a) + _long_tail(draw, a)


def _long_tail(draw: Draw, a: Animal) -> list[Solid]:
    length, z = draw.span("long tail", 0.75, 1.1), a.leg + a.deep * 0.85
    bend = (-a.body - length * 0.45, 0.0, z * 0.75)
    tip = (-a.body - length, 0.0, max(z * draw.span("tail rise", 0.3, 0.8), 0.06))
    return [rod((-a.body * 0.6, 0.0, z), bend, a.deep * 0.62, a.deep * 0.36), rod(bend, tip, a.deep * 0.36, 0.03)]


def plated(draw: Draw) -> list[Solid]:
    """Dinosaurs on four legs with plates on the back, or a frill and horns."""
    a = _animal(draw, PLATED)
    solids = build(a) + _long_tail(draw, a)
    if draw.chance("frill", 0.45):
        head = solids[0].sphere[0].new_tensor([a.body * 0.6 + a.neck + 0.1, 0.0, a.leg + a.deep * 0.9]).tolist()
        size = draw.span("frill size", 0.30, 0.42)
        solids.append(ball((head[0] - 0.06, 0.0, head[2] + 0.10), (0.07, size, size * 1.1), pitch=-25.0))
        horn = draw.span("brow horn", 0.26, 0.42)
        return solids + [
            rod((head[0] - 0.04, side * 0.12, head[2] + 0.06), (head[0] + horn, side * 0.2, head[2] + 0.2), 0.07, 0.02)
            for side in SIDES
        ]
    count, high = draw.pick("plates", (5, 6, 7)), draw.span("plate", 0.26, 0.42)
    for k in range(count):
        share = k / (count - 1)
        x = a.body * (0.75 - 1.75 * share)
        size = high * (1.0 - abs(share - 0.45) * 1.0)
        z = _back(a) - 0.10 - 0.45 * a.deep * abs(2 * share - 1) ** 2
        solids.append(wing((x, 0.0, z), size + 0.06, (size * 0.85, size * 0.25), 0.02, 0.09, 90.0))
    return solids


PLANS: tuple[Callable[[Draw], list[Solid]], ...] = (
    hoofed, creatures.fowl, hunter, creatures.crocodile, heavy, creatures.wader, elephant, creatures.turtle,
    long_necked, creatures.raptor, camel, creatures.insect, small, creatures.hare, sauropod, hoofed, plated, hunter,
)  # fmt: skip


def made(draw: Draw) -> list[Solid]:
    """The solids of an animal, its head along x."""
    return draw.plan(PLANS)(draw)

"""What trucks carry or are built for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from quatcaps.data.toys.many.draws import Draw
from quatcaps.data.toys.parts import SIDES, ball, block, cabin, rod
from quatcaps.data.toys.shapes import Solid


@dataclass(frozen=True)
class Bay:
    """The room behind the cab: from x = front back to x = back, above the deck; the cab reaches up to roof."""

    front: float
    back: float
    deck: float
    width: float
    roof: float

    @property
    def middle(self) -> float:
        return (self.front + self.back) / 2

    @property
    def length(self) -> float:
        return self.front - self.back

    def above_cab(self, height: float) -> float:
        """A height above the deck, at least a little more than the cab's: level with it, a truck looks like a car."""
        return max(height, self.roof - self.deck + 0.10)

    def floor(self) -> Solid:
        return block((self.middle, 0.0, self.deck + 0.04), (self.length, self.width, 0.10))


@dataclass(frozen=True)
class Load:
    """How to build a load, and whether it may stand on a trailer."""

    build: Callable[[Draw, Bay], list[Solid]]
    trailer: bool = False


def _box(draw: Draw, b: Bay) -> list[Solid]:
    height, width = b.above_cab(draw.span("load height", 0.70, 1.30)), b.width * draw.span("load width", 1.0, 1.1)
    solids = [block((b.middle, 0.0, b.deck + height / 2 + 0.02), (b.length, width, height))]
    if draw.chance("cooler", 0.4):
        solids.append(block((b.front + 0.08, 0.0, b.deck + height - 0.06), (0.22, width * 0.7, 0.28)))
    elif draw.chance("over the cab", 0.4):
        solids.append(block((b.front + 0.20, 0.0, b.roof + 0.17), (0.46, width, 0.30)))
    return solids


def _tilt(draw: Draw, b: Bay) -> list[Solid]:
    """A bed under a canvas roof."""
    wall, height = draw.span("wall", 0.20, 0.34), b.above_cab(draw.span("load height", 0.76, 1.1))
    half, ridge = b.width / 2, draw.span("ridge", 0.35, 0.75)
    return [
        block((b.middle, 0.0, b.deck + wall / 2), (b.length, b.width * 1.04, wall)),
        block((b.middle, 0.0, b.deck + height * 0.45), (b.length * 0.97, b.width * 0.94, height * 0.7)),
        rod((b.front, 0.0, b.deck + height * 0.78), (b.back, 0.0, b.deck + height * 0.78), half * 0.94, flatten=ridge),
    ]


def _tank(draw: Draw, b: Bay) -> list[Solid]:
    radius, flat = draw.span("tank", 0.30, 0.50), draw.span("flat", 0.75, 1.0)
    z, cap = b.deck + radius * flat + 0.05, draw.span("cap", 0.10, 0.45)
    front, back = b.front - radius * cap, b.back + radius * cap
    solids = [
        rod((front, 0.0, z), (back, 0.0, z), radius, flatten=flat),
        ball((front, 0.0, z), (radius * cap, radius, radius * flat)),
        ball((back, 0.0, z), (radius * cap, radius, radius * flat)),
        block((b.middle, 0.0, b.deck + 0.03), (b.length, b.width * 0.95, 0.08)),
    ]
    hatches = draw.pick("hatches", (1, 2, 3))
    for k in range(hatches):
        x = b.middle + (k - (hatches - 1) / 2) * b.length * 0.26
        solids.append(rod((x, 0.0, z), (x, 0.0, z + radius * flat + 0.09), 0.11))
    return solids


def _dump(draw: Draw, b: Bay) -> list[Solid]:
    tilt = draw.pick("tipping", (0.0, 6.0, 22.0, 34.0)) + draw.span("tilt", 0.0, 4.0)
    height, half = draw.span("load height", 0.36, 0.76), b.width / 2
    rise, along = math.sin(math.radians(tilt)), math.cos(math.radians(tilt))
    x, z = b.back + b.length / 2 * along, b.deck + 0.05 + b.length / 2 * rise

    def panel(forward: float, up: float, y: float, size: tuple[float, float, float]) -> Solid:
        return block((x + forward * along - up * rise, y, z + forward * rise + up * along), size, pitch=tilt)

    solids = [panel(0.0, 0.0, 0.0, (b.length, b.width, 0.10))]
    solids += [panel(0.0, height / 2, side * half, (b.length, 0.07, height)) for side in SIDES]
    solids.append(panel(b.length / 2 - 0.03, height / 2, 0.0, (0.07, b.width, height)))
    solids.append(panel(-b.length / 2 + 0.03, height * 0.4, 0.0, (0.07, b.width, height * 0.8)))
    if tilt > 15.0:
        foot = x + b.length * 0.2 * along, z + b.length * 0.2 * rise
        solids.append(rod((b.front - 0.2, 0.0, b.deck - 0.04), (foot[0], 0.0, foot[1]), 0.07))
    elif draw.chance("heaped", 0.5):
        solids.append(ball((x, 0.0, z + height * 0.6), (b.length * 0.44, half * 0.85, height * 0.7), pitch=tilt))
    return solids


def _stakes(draw: Draw, b: Bay) -> list[Solid]:
    height, half, count = draw.span("load height", 0.36, 0.60), b.width / 2, draw.pick("posts", (4, 5, 6))
    solids = [b.floor()]
    for side in SIDES:
        solids.append(block((b.middle, side * half, b.deck + height - 0.05), (b.length, 0.06, 0.10)))
        solids.append(block((b.middle, side * half, b.deck + height * 0.5), (b.length, 0.06, 0.09)))
        for k in range(count):
            x = b.front - 0.04 - k * (b.length - 0.08) / (count - 1)
            solids.append(block((x, side * half, b.deck + height / 2), (0.07, 0.07, height)))
    if draw.chance("crates", 0.6):
        size = draw.span("crate", 0.34, 0.5)
        solids.append(block((b.middle + 0.25, 0.0, b.deck + size / 2), (size, size * 1.2, size)))
        solids.append(block((b.middle - 0.35, 0.05, b.deck + size * 0.4), (size * 0.9, size, size * 0.8)))
    return solids


def _mixer(draw: Draw, b: Bay) -> list[Solid]:
    wide = draw.span("drum", 0.38, 0.56)
    z, at = b.deck + wide + 0.02, b.front - b.length * draw.span("widest", 0.40, 0.55)
    rise = draw.span("rise", 0.14, 0.34)
    return [
        rod((b.front - 0.05, 0.0, z - 0.10), (at, 0.0, z + 0.04), wide * 0.55, wide),
        rod((at, 0.0, z + 0.04), (b.back + 0.12, 0.0, z + rise), wide, wide * 0.42),
        block((b.back + 0.18, 0.0, b.deck + 0.22), (0.12, 0.4, 0.55)),
        block((b.front - 0.10, 0.0, b.deck + 0.16), (0.12, 0.4, 0.42)),
        block((b.middle, 0.0, b.deck + 0.03), (b.length, b.width * 0.9, 0.10)),
    ]


def _logs(draw: Draw, b: Bay) -> list[Solid]:
    radius, wide = draw.span("log", 0.12, 0.17), draw.pick("logs", (2, 3))
    solids = [b.floor()]
    for layer in range(2):
        for k in range(wide + 1 - layer):
            y = (k - (wide - layer) / 2) * radius * 2 * 0.98
            z = b.deck + 0.08 + radius + layer * radius * 1.7
            end = b.back - draw.span(f"log {layer} {k}", 0.0, 0.18)
            solids.append(rod((b.front - 0.06, y, z), (end, y, z), radius, radius * 0.85))
    top = b.deck + radius * 4.2
    for x in (b.front - 0.2, b.back + 0.3):
        solids += [block((x, side * b.width * 0.5, (b.deck + top) / 2), (0.07, 0.07, top - b.deck)) for side in SIDES]
    return solids


def _crane(draw: Draw, b: Bay) -> list[Solid]:
    pivot = b.back + b.length * draw.span("pivot", 0.25, 0.45)
    top = b.deck + draw.span("tower", 0.36, 0.50)
    length, angle = draw.span("boom", 1.5, 2.1), math.radians(draw.span("boom angle", 4.0, 48.0))
    tip = pivot + length * math.cos(angle), top + length * math.sin(angle)
    solids = [
        b.floor(),
        rod((pivot, 0.0, b.deck), (pivot, 0.0, top), 0.26),
        block((pivot - 0.12, 0.0, top - 0.02), (0.62, b.width * 0.7, 0.30)),
        rod((pivot - 0.2, 0.0, top), (tip[0], 0.0, tip[1]), 0.13, 0.08),
        rod((tip[0] - 0.04, 0.0, tip[1]), (tip[0] - 0.04, 0.0, tip[1] - 0.34), 0.035),
        ball((tip[0] - 0.04, 0.0, tip[1] - 0.36), (0.09, 0.07, 0.10)),
    ]
    if draw.chance("outriggers", 0.6):
        for x in (b.front - 0.12, b.back + 0.1):
            solids.append(block((x, 0.0, b.deck - 0.08), (0.10, b.width * 1.5, 0.08)))
            solids += [rod((x, side * b.width * 0.72, 0.0), (x, side * b.width * 0.72, b.deck), 0.05) for side in SIDES]
    return solids


def _fire(draw: Draw, b: Bay) -> list[Solid]:
    height = draw.span("load height", 0.40, 0.76)
    top, angle = b.deck + height, draw.span("ladder angle", 0.0, 26.0)
    length = b.length * 1.05 + draw.span("ladder", 0.1, 0.5)
    rise, along = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    x, z = b.back + 0.1 + length / 2 * along, top + 0.12 + length / 2 * rise
    solids = [
        block((b.middle, 0.0, b.deck + height / 2), (b.length, b.width * 1.02, height)),
        rod((b.back + 0.3, 0.0, top - 0.02), (b.back + 0.3, 0.0, top + 0.16), 0.18),
    ]
    solids += [block((x, side * 0.17, z), (length, 0.06, 0.09), pitch=angle) for side in SIDES]
    for k in range(7):
        step = (k / 6 - 0.5) * length * 0.94
        solids.append(block((x + step * along, 0.0, z + step * rise), (0.05, 0.36, 0.05)))
    return solids


def _tow(draw: Draw, b: Bay) -> list[Solid]:
    angle = math.radians(draw.span("arm angle", 30.0, 48.0))
    length = b.length * draw.span("arm", 0.8, 0.98)
    foot, start = b.deck + 0.14, b.front - 0.12
    tip = start - length * math.cos(angle), foot + length * math.sin(angle)
    wall = draw.span("wall", 0.22, 0.34)
    solids = [b.floor(), block((b.front - 0.1, 0.0, b.deck + 0.22), (0.16, b.width * 0.9, 0.40))]
    solids += [block((b.middle, side * b.width * 0.46, b.deck + wall / 2), (b.length, 0.10, wall)) for side in SIDES]
    for side in SIDES:
        solids.append(rod((start, side * 0.26, foot), (tip[0], side * 0.06, tip[1]), 0.065))
        solids.append(rod((b.back + 0.12, side * 0.26, b.deck), (tip[0], side * 0.06, tip[1]), 0.055))
    solids.append(rod((tip[0], 0.0, tip[1]), (tip[0] - 0.02, 0.0, b.deck + 0.12), 0.035))
    solids.append(ball((tip[0] - 0.02, 0.0, b.deck + 0.12), (0.10, 0.07, 0.10)))
    return solids


def _refuse(draw: Draw, b: Bay) -> list[Solid]:
    height, round_ = b.above_cab(draw.span("load height", 0.80, 1.06)), draw.chance("rounded", 0.5)
    tail, z = draw.span("tail", 0.36, 0.52), b.deck + height / 2
    front = b.front - 0.02
    if round_:
        hull = rod((front, 0.0, z), (b.back + tail * 0.5, 0.0, z), b.width * 0.56, flatten=height / b.width / 1.12)
    else:
        hull = block(((front + b.back + tail) / 2, 0.0, z), (front - b.back - tail, b.width * 1.06, height))
    return [
        b.floor(),
        hull,
        cabin((b.back - 0.08, b.back + tail), (b.back + tail * 0.45, b.back + tail),
              (b.deck - 0.12, b.deck + height * 1.04), b.width * 1.04, 0.96),
        block((b.back - 0.02, 0.0, b.deck - 0.02), (0.30, b.width * 0.9, 0.16)),
    ]  # fmt: skip


def _flat(draw: Draw, b: Bay) -> list[Solid]:
    """A low bed with pipes, reels, crates or a machine on it."""
    what = draw.pick("cargo", ("pipes", "reels", "crates", "digger"))
    solids = [b.floor(), block((b.front - 0.03, 0.0, b.deck + 0.26), (0.07, b.width, 0.46))]
    top = b.deck + 0.08
    if what == "pipes":
        radius = draw.span("pipe", 0.17, 0.24)
        for y, level in ((-radius, 0.0), (radius, 0.0), (0.0, 1.7)):
            z = top + radius * (1 + level)
            solids.append(rod((b.front - 0.1, y, z), (b.back - 0.06, y, z), radius))
    elif what == "reels":
        radius, count = draw.span("reel", 0.30, 0.40), draw.pick("reels", (2, 3))
        for k in range(count):
            x = b.front - 0.1 - (k + 0.5) * (b.length - 0.1) / count
            solids.append(rod((x, -0.30, top + radius), (x, 0.30, top + radius), radius * 0.62))
            solids += [rod((x, side * 0.26, top + radius), (x, side * 0.36, top + radius), radius) for side in SIDES]
    elif what == "crates":
        for k in range(3):
            size = draw.span(f"crate {k}", 0.36, 0.62)
            x = b.front - 0.1 - (k + 0.5) * (b.length - 0.1) / 3
            solids.append(block((x, 0.0, top + size / 2), (min(size, b.length / 3.2), b.width * 0.8, size)))
    else:
        x, size = b.middle, draw.span("digger", 0.9, 1.1)
        for side in SIDES:
            solids.append(block((x, side * 0.26, top + 0.11), (0.86 * size, 0.20, 0.22)))
        solids.append(block((x - 0.10, 0.0, top + 0.34), (0.56 * size, 0.52, 0.26)))
        solids.append(block((x + 0.02, 0.12, top + 0.58), (0.30, 0.28, 0.30)))
        solids.append(rod((x + 0.1, -0.1, top + 0.4), (x - 0.4, -0.1, top + 0.92 * size), 0.08))
        solids.append(rod((x - 0.4, -0.1, top + 0.92 * size), (x - 0.62, -0.1, top + 0.25), 0.07))
    return solids


def _hopper(draw: Draw, b: Bay) -> list[Solid]:
    """Silos that stand on the bed, or funnels."""
    count, height = draw.pick("silos", (2, 3)), draw.span("load height", 0.66, 1.10)
    solids = [b.floor()]
    radius = min(b.length / count / 2, b.width * 0.52) * 0.98
    for k in range(count):
        x = b.front - (k + 0.5) * b.length / count
        solids.append(rod((x, 0.0, b.deck), (x, 0.0, b.deck + height * 0.4), radius * 0.4, radius))
        solids.append(rod((x, 0.0, b.deck + height * 0.4), (x, 0.0, b.deck + height * 0.86), radius))
        solids.append(ball((x, 0.0, b.deck + height * 0.86), (radius, radius, height * 0.18)))
    solids.append(block((b.middle, 0.0, b.deck + height * 0.5), (b.length * 0.96, 0.10, 0.10)))
    return solids


LOADS = (
    Load(_box, trailer=True),
    Load(_tank, trailer=True),
    Load(_dump),
    Load(_stakes),
    Load(_mixer),
    Load(_logs, trailer=True),
    Load(_crane),
    Load(_fire),
    Load(_tow),
    Load(_refuse),
    Load(_flat, trailer=True),
    Load(_hopper, trailer=True),
    Load(_tilt, trailer=True),
)

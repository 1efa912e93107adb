"""Animals on other than four upright legs: birds, reptiles, insects and hares. Lengths in units of about one body."""

from __future__ import annotations

import math

from quatcaps.data.toys.many.draws import Draw
from quatcaps.data.toys.parts import SIDES, Vector, ball, block, rod
from quatcaps.data.toys.shapes import Solid


def _bird(
    draw: Draw, leg: float, body: float, head_size: float, neck: float, neck_angle: float, tail_angle: float
) -> list[Solid]:
    """A bird that stands on two legs, its wings folded."""
    plump = draw.span("plump", 0.64, 0.84)
    deep, wide = body * plump, body * plump * draw.span("wide", 0.80, 1.05)
    tilt = draw.span("tilt", 5.0, 25.0)
    z = leg + deep * 0.7
    solids = [ball((0.0, 0.0, z), (body, wide, deep), pitch=tilt)]
    for side in SIDES:
        x, y = -body * 0.05, side * wide * 0.45
        solids.append(rod((x, y, z), (x, y, leg * 0.8), deep * 0.34, 0.07))
        solids.append(rod((x, y, leg), (x + 0.02, y, 0.02), 0.05))
        solids.append(block((x + 0.08, y, 0.025), (0.26, 0.15, 0.05)))
        solids.append(
            ball((-body * 0.15, side * wide * 0.85, z + 0.04), (body * 0.8, wide * 0.25, deep * 0.62), pitch=tilt)
        )
    angle = math.radians(neck_angle)
    root = (body * 0.62, 0.0, z + deep * 0.35)
    head = (root[0] + neck * math.cos(angle), 0.0, root[2] + neck * math.sin(angle))
    size = head_size
    solids.append(rod(root, head, min(deep * 0.5, 0.2), size * draw.span("neck", 0.45, 0.75)))
    solids.append(ball(head, (size * 1.15, size, size)))
    beak = draw.span("beak", 0.16, 0.42)
    drop = draw.span("beak drop", 0.0, 0.45)
    solids.append(
        rod((head[0] + size * 0.6, 0.0, head[2]), (head[0] + size + beak, 0.0, head[2] - beak * drop), 0.085, 0.02)
    )
    tail, rise = draw.span("tail", 0.30, 0.60), math.radians(tail_angle)
    end = (-body * 0.75, z - math.sin(math.radians(tilt)) * body * 0.6)
    tip = (end[0] - tail * math.cos(rise), 0.0, max(end[1] + tail * math.sin(rise), 0.05))
    solids.append(rod((end[0] + 0.1, 0.0, end[1]), tip, 0.10, draw.span("fan", 0.08, 0.24), flatten=0.3))
    return solids + _crest(draw, head, size)


def _crest(draw: Draw, head: Vector, size: float) -> list[Solid]:
    what = draw.pick("crest", ("none", "comb", "plume"))
    if what == "comb":
        return [ball((head[0], 0.0, head[2] + size), (size * 0.8, 0.05, size * 0.6))]
    if what == "plume":
        tip = (head[0] - size * 1.6, 0.0, head[2] + size * 1.7)
        return [rod((head[0] - size * 0.3, 0.0, head[2] + size * 0.6), tip, 0.07, 0.04)]
    return []


def fowl(draw: Draw) -> list[Solid]:
    """Hen, duck, goose, peacock, turkey."""
    solids = _bird(
        draw, leg=draw.span("leg", 0.14, 0.30), body=draw.span("body", 0.42, 0.54),
        head_size=draw.span("head", 0.15, 0.21), neck=draw.span("long", 0.26, 0.52),
        neck_angle=draw.span("neck angle", 55.0, 90.0), tail_angle=draw.span("tail angle", 0.0, 60.0),
    )  # fmt: skip
    if draw.chance("wheel", 0.3):
        size = draw.span("wheel size", 0.50, 0.70)
        solids.append(ball((-0.42, 0.0, 0.30 + size * 0.7), (0.06, size, size), pitch=15.0))
    return solids


def wader(draw: Draw) -> list[Solid]:
    """Ostrich, heron, flamingo, stork."""
    return _bird(
        draw, leg=draw.span("leg", 0.60, 0.90), body=draw.span("body", 0.42, 0.54),
        head_size=draw.span("head", 0.11, 0.14), neck=draw.span("long", 0.50, 0.85),
        neck_angle=draw.span("neck angle", 58.0, 86.0), tail_angle=draw.span("tail angle", -25.0, 25.0),
    )  # fmt: skip


def crocodile(draw: Draw) -> list[Solid]:
    """Crocodile, lizard, salamander: a low body, legs to the sides, a long tail."""
    body, wide, deep = draw.span("body", 0.46, 0.62), draw.span("wide", 0.17, 0.26), draw.span("deep", 0.12, 0.19)
    z = deep + draw.span("clear", 0.05, 0.20)
    tail, curl = draw.span("tail", 0.70, 1.05), draw.span("curl", -0.02, 0.22)
    snout, head = draw.span("snout", 0.12, 0.50), draw.span("head", 0.16, 0.21)
    rise = draw.span("rise", 0.0, 0.22)
    front = (body + 0.14, 0.0, z + 0.03 + rise)
    solids = [
        ball((0.0, 0.0, z), (body, wide, deep)),
        rod((-body * 0.5, 0.0, z), (-body - tail * 0.45, 0.0, z * 0.8), deep * 0.95, deep * 0.55),
        rod((-body - tail * 0.45, 0.0, z * 0.8), (-body - tail, 0.0, max(z * 0.6 + curl, 0.04)), deep * 0.55, 0.03),
        rod((body * 0.5, 0.0, z), front, deep * 0.95, head * 0.8),
        ball(front, (head * 1.2, head, head * 0.75)),
        rod(front, (front[0] + snout + head * 0.6, 0.0, front[2] - 0.04), head * 0.75, head * 0.5, flatten=0.6),
    ]
    spread, thick = draw.span("spread", 0.14, 0.30), draw.span("thick", 0.06, 0.09)
    for x, forward in ((body * 0.55, 0.12), (-body * 0.5, -0.04)):
        for side in SIDES:
            knee = (x + forward, side * (wide + spread), z * 0.9 + 0.03)
            foot = (x + forward + 0.08, side * (wide + spread + 0.05), 0.04)
            solids.append(rod((x, side * wide * 0.6, z), knee, thick * 1.1, thick))
            solids.append(rod(knee, foot, thick, thick * 0.8))
            solids.append(ball((foot[0] + 0.04, foot[1], 0.04), (0.13, 0.09, 0.04)))
    if draw.chance("crest", 0.5):
        high = draw.span("crest height", 0.10, 0.34)
        solids.append(ball((-0.02, 0.0, z + deep * 0.6), (body * 0.8, 0.04, high + deep * 0.3)))
    return solids


def turtle(draw: Draw) -> list[Solid]:
    """A domed shell, four legs or flippers, a small head."""
    body, wide = draw.span("body", 0.48, 0.60), draw.span("wide", 0.36, 0.50)
    high, clear = draw.span("high", 0.24, 0.46), draw.span("clear", 0.08, 0.20)
    z = clear + 0.10
    solids = [
        ball((0.0, 0.0, z), (body, wide, high)),
        rod((0.0, 0.0, z - 0.07), (0.0, 0.0, z + 0.03), wide * 1.04, wide * 1.1),
        rod((-body - 0.16, 0.0, z - 0.04), (-body * 0.8, 0.0, z), 0.03, 0.09),
    ]
    neck, rise = draw.span("neck", 0.20, 0.42), draw.span("rise", 0.0, 0.26)
    head, size = (body + neck, 0.0, z + 0.03 + rise), draw.span("head", 0.13, 0.18)
    solids.append(rod((body * 0.7, 0.0, z), head, 0.11, 0.09))
    solids.append(ball(head, (size * 1.3, size, size)))
    flippers = draw.chance("flippers", 0.35)
    for x, long in ((body * 0.62, 0.52), (-body * 0.62, 0.34)):
        for side in SIDES:
            if flippers:
                root, tip = (x, side * wide * 0.7, z - 0.04), (x - 0.16, side * (wide + long), 0.05)
                solids.append(rod(root, tip, 0.13, 0.07, flatten=0.4))
                continue
            y = side * wide * 0.72
            solids.append(rod((x, y, z), (x + 0.05, y * 1.1, 0.0), 0.14, 0.11))
            solids.append(ball((x + 0.10, y * 1.1, 0.05), (0.16, 0.12, 0.05)))
    return solids


def raptor(draw: Draw) -> list[Solid]:
    """Dinosaurs on two legs, from small and slender to large; the tail balances the head."""
    body, leg = draw.span("body", 0.40, 0.52), draw.span("leg", 0.36, 0.60)
    deep, wide, tilt = (
        body * draw.span("deep", 0.48, 0.66),
        body * draw.span("wide", 0.40, 0.56),
        draw.span("tilt", 5.0, 38.0),
    )
    z, sine = leg + deep * 0.6, math.sin(math.radians(tilt))
    chest, rump = (body * 0.7, 0.0, z + body * 0.7 * sine), (-body * 0.6, 0.0, z - body * 0.5 * sine)
    solids = [ball((0.0, 0.0, z), (body, wide, deep), pitch=tilt)]
    neck, angle = draw.span("neck", 0.18, 0.50), math.radians(draw.span("neck angle", 35.0, 70.0))
    head = (chest[0] + neck * math.cos(angle), 0.0, chest[2] + neck * math.sin(angle))
    size, snout = draw.span("head", 0.16, 0.26), draw.span("snout", 0.22, 0.38)
    solids.append(rod((chest[0] - 0.1, 0.0, chest[2] - 0.05), head, deep * 0.62, size * 0.6))
    solids.append(ball(head, (size * 1.1, size * 0.8, size * 0.85)))
    solids.append(rod(head, (head[0] + size * 0.6 + snout, 0.0, head[2] - 0.03), size * 0.72, size * 0.45))
    if draw.chance("jaw", 0.5):
        solids.append(
            rod(
                (head[0], 0.0, head[2] - size * 0.4),
                (head[0] + size * 0.4 + snout, 0.0, head[2] - size * 1.0),
                size * 0.4,
                size * 0.2,
            )
        )
    tail = draw.span("tail", 0.80, 1.15)
    middle = (rump[0] - tail * 0.5, 0.0, rump[2] * 0.9)
    tip = (rump[0] - tail, 0.0, max(rump[2] * draw.span("tail rise", 0.4, 1.2), 0.05))
    solids += [
        rod((rump[0] + 0.1, 0.0, rump[2]), middle, deep * 0.72, deep * 0.38),
        rod(middle, tip, deep * 0.38, 0.03),
    ]
    thick, stride = draw.span("thick", 0.09, 0.15), draw.span("stride", 0.0, 0.16)
    for side in SIDES:
        y = side * wide * 0.75
        knee, ankle = (0.12 + side * stride, y, z * 0.62), (-0.08 + side * stride, y, z * 0.26)
        foot = (0.04 + side * stride, y, 0.05)
        solids += [rod((-0.05, y, z), knee, thick * 1.6, thick), rod(knee, ankle, thick, thick * 0.7)]
        solids += [rod(ankle, foot, thick * 0.7, thick * 0.6), ball((foot[0] + 0.08, y, 0.05), (0.2, 0.11, 0.05))]
        hand = (chest[0] + 0.14, side * wide * 0.9, chest[2] - deep * 0.75)
        solids.append(rod((chest[0] - 0.02, side * wide * 0.7, chest[2] - deep * 0.2), hand, 0.06, 0.045))
    if draw.chance("sail", 0.25):
        high = draw.span("sail height", 0.25, 0.45)
        solids.append(ball((-0.05, 0.0, z + deep * 0.6), (body * 0.75, 0.05, high), pitch=tilt))
    return solids


def insect(draw: Draw) -> list[Solid]:
    """Ant, beetle, spider: six or eight legs with knees."""
    pairs = draw.pick("pairs of legs", (3, 3, 4))
    rear, waist = draw.span("rear", 0.30, 0.52), draw.span("waist", 0.16, 0.24)
    z = draw.span("clear", 0.22, 0.40)
    wide = rear * draw.span("wide", 0.60, 0.95)
    head = draw.span("head", 0.14, 0.22)
    front = waist * 1.4 + head * 0.7
    solids = [
        ball((-waist - rear * 0.75, 0.0, z + 0.06), (rear, wide, rear * draw.span("deep", 0.55, 0.8)), pitch=-6.0),
        ball((0.0, 0.0, z), (waist * 1.5, waist, waist * 0.85)),
        ball((front, 0.0, z + 0.02), (head, head, head * 0.9)),
    ]
    reach, high, thick = draw.span("reach", 0.42, 0.66), draw.span("knee", 0.14, 0.40), draw.span("thick", 0.045, 0.065)
    for k in range(pairs):
        turn = math.radians(40.0 - 100.0 * k / (pairs - 1))
        for side in SIDES:
            root = (waist * (0.8 - 1.6 * k / (pairs - 1)), side * waist * 0.6, z)
            ahead, out = math.sin(turn), math.cos(turn) * side
            knee = (root[0] + reach * 0.5 * ahead, root[1] + reach * 0.5 * out, z + high)
            foot = (root[0] + reach * 1.1 * ahead, root[1] + reach * 1.1 * out, 0.02)
            solids += [rod(root, knee, thick * 1.2, thick), rod(knee, foot, thick, thick * 0.6)]
    if draw.chance("feelers", 0.6):
        length = draw.span("feeler", 0.24, 0.46)
        solids += [
            rod(
                (front + head * 0.5, side * 0.06, z + head * 0.5),
                (front + length, side * length * 0.6, z + length * 0.8),
                0.035,
            )
            for side in SIDES
        ]
    if draw.chance("jaws", 0.4):
        solids += [
            rod((front + head * 0.7, side * 0.08, z), (front + head + 0.2, side * 0.05, z - 0.04), 0.05, 0.02)
            for side in SIDES
        ]
    return solids


def hare(draw: Draw) -> list[Solid]:
    """Hare, squirrel, kangaroo: sitting on long hind feet."""
    body, rise = draw.span("body", 0.36, 0.46), draw.span("rise", 18.0, 52.0)
    deep = body * draw.span("deep", 0.58, 0.74)
    sine, cosine = math.sin(math.radians(rise)), math.cos(math.radians(rise))
    z = deep * 0.85 + body * 0.5 * sine
    chest = (body * 0.7 * cosine, 0.0, z + body * 0.7 * sine)
    head = (chest[0] + draw.span("neck", 0.10, 0.22), 0.0, chest[2] + draw.span("up", 0.14, 0.28))
    size, snout = draw.span("head", 0.18, 0.23), draw.span("snout", 0.10, 0.24)
    solids = [
        ball((0.0, 0.0, z), (body, deep * 0.9, deep), pitch=rise),
        rod(chest, head, 0.16, 0.13),
        ball(head, (size * 1.2, size * 0.9, size)),
        rod(head, (head[0] + size * 0.8 + snout, 0.0, head[2] - 0.07), size * 0.7, size * 0.4),
    ]
    ear, lay = draw.span("ear", 0.22, 0.58), draw.span("lay", 0.1, 0.7)
    for side in SIDES:
        tip = (head[0] - 0.05 - ear * lay, side * (0.12 + ear * 0.2), head[2] + size * 0.6 + ear)
        solids.append(rod((head[0] - 0.05, side * 0.09, head[2] + size * 0.5), tip, 0.06, 0.075))
        hip = (-body * 0.45 * cosine, side * deep * 0.72, deep * 0.75)
        solids.append(ball(hip, (deep * 0.75, deep * 0.36, deep * 0.75)))
        solids.append(ball((hip[0] + 0.20, side * deep * 0.8, 0.06), (0.32, 0.10, 0.06)))
        paw = (
            chest[0] + draw.span("paw", 0.06, 0.24),
            side * deep * 0.4,
            max(chest[2] - draw.span("arm", 0.30, 0.48), 0.05),
        )
        solids.append(rod((chest[0], side * deep * 0.5, chest[2] - 0.04), paw, 0.085, 0.06))
    root = (-body * 0.8 * cosine, 0.0, max(z - body * 0.7 * sine, 0.14))
    what = draw.pick("tail", ("ball", "bush", "long"))
    if what == "ball":
        solids.append(ball((root[0] - 0.05, 0.0, root[2]), (0.14, 0.13, 0.13)))
    elif what == "long":
        solids.append(rod(root, (root[0] - draw.span("tail length", 0.5, 0.9), 0.0, 0.05), 0.14, 0.04))
    else:
        top = (root[0] - 0.26, 0.0, root[2] + draw.span("bush height", 0.45, 0.75))
        solids += [rod(root, top, 0.12, 0.20), ball(top, (0.22, 0.18, 0.24))]
    return solids

"""Ten people, lengths in units of about half their height, angles in degrees; thick enough for small images."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quatcaps.data.toys.parts import SIDES, Vector, ball, block, rod
from quatcaps.data.toys.shapes import Solid


@dataclass(frozen=True)
class Person:
    """Proportions and posture. A limb's angles: forward from hanging down, outward, and the bend of elbow or knee."""

    left_arm: Vector
    right_arm: Vector
    left_leg: Vector
    right_leg: Vector
    leg: float = 0.82
    torso: float = 0.62
    shoulder: float = 0.33  # half the width at the shoulders
    hip: float = 0.225
    deep: float = 0.68  # depth of the torso against its width
    arm: float = 0.64
    arm_thick: float = 0.112
    leg_thick: float = 0.145
    head: float = 0.235
    lean: float = 0.0  # the torso, forward
    hat: float = 0.0  # brim
    helmet: float = 0.0
    pack: float = 0.0  # on the back
    skirt: float = 0.0  # how far it flares
    belly: float = 0.0


KINDS: tuple[Person, ...] = (
    # 0 … 3 and 5 are the test split.
    Person(  # walks
        left_arm=(32.0, 10.0, 18.0), right_arm=(-30.0, 10.0, 8.0), left_leg=(-24.0, 3.0, 12.0),
        right_leg=(26.0, 3.0, 4.0), lean=4.0,
    ),
    Person(  # cheers, one arm up
        left_arm=(160.0, 20.0, 0.0), right_arm=(6.0, 34.0, 40.0), left_leg=(0.0, 10.0, 0.0),
        right_leg=(0.0, 10.0, 0.0), shoulder=0.32, helmet=0.25,
    ),
    Person(  # stout, arms out
        left_arm=(4.0, 62.0, 0.0), right_arm=(4.0, 62.0, 0.0), left_leg=(0.0, 9.0, 0.0), right_leg=(0.0, 9.0, 0.0),
        belly=0.27, leg=0.72, leg_thick=0.16, shoulder=0.33, hip=0.22,
    ),
    Person(  # in a wide skirt
        left_arm=(14.0, 26.0, 20.0), right_arm=(14.0, 26.0, 20.0), left_leg=(4.0, 6.0, 0.0),
        right_leg=(-4.0, 6.0, 0.0), skirt=0.40, shoulder=0.29, arm_thick=0.10, hat=0.34,
    ),
    Person(  # stands at ease
        left_arm=(10.0, 17.0, 10.0), right_arm=(-6.0, 17.0, 10.0), left_leg=(-8.0, 8.0, 0.0),
        right_leg=(10.0, 8.0, 0.0),
    ),
    Person(  # carries a pack, strides
        left_arm=(44.0, 10.0, 48.0), right_arm=(30.0, 12.0, 60.0), left_leg=(22.0, 4.0, 6.0),
        right_leg=(-20.0, 4.0, 14.0), pack=0.22, lean=7.0, hat=0.32,
    ),
    Person(  # both arms raised
        left_arm=(150.0, 30.0, 0.0), right_arm=(150.0, 30.0, 0.0), left_leg=(0.0, 13.0, 0.0),
        right_leg=(0.0, 13.0, 0.0), shoulder=0.32,
    ),
    Person(  # runs
        left_arm=(50.0, 10.0, 70.0), right_arm=(-46.0, 12.0, 60.0), left_leg=(-34.0, 3.0, 40.0),
        right_leg=(44.0, 3.0, 34.0), lean=12.0, shoulder=0.30, leg=0.86, helmet=0.25,
    ),
    Person(  # in a dress, arms apart
        left_arm=(8.0, 46.0, 0.0), right_arm=(8.0, 46.0, 0.0), left_leg=(0.0, 6.0, 0.0), right_leg=(0.0, 6.0, 0.0),
        skirt=0.35, shoulder=0.29, arm_thick=0.10, leg_thick=0.125,
    ),
    Person(  # broad, points ahead
        left_arm=(84.0, 6.0, 0.0), right_arm=(4.0, 24.0, 12.0), left_leg=(12.0, 8.0, 0.0),
        right_leg=(-10.0, 8.0, 0.0), shoulder=0.36, hip=0.21, arm_thick=0.125, leg_thick=0.16, hat=0.34,
    ),
)  # fmt: skip


def build(person: Person) -> list[Solid]:
    """The person's solids; the lower foot stands on the ground."""
    p = person
    legs = [_limb((0.0, side * p.hip * 0.62, p.leg), angles, p.leg, side, -1.0)
            for side, angles in ((1.0, p.left_leg), (-1.0, p.right_leg))]  # fmt: skip
    ankle = p.leg_thick * 0.62
    drop = ankle - min(joints[-1][2] for joints in legs)
    solids: list[Solid] = []
    for joints in legs:
        hip, knee, foot = (_raised(joint, drop) for joint in joints)
        solids.append(rod(hip, knee, p.leg_thick * 1.12, p.leg_thick * 0.92))
        solids.append(rod(knee, foot, p.leg_thick * 0.92, p.leg_thick * 0.72))
        solids.append(ball(knee, (p.leg_thick * 0.92,) * 3))
        solids.append(
            ball((foot[0] + p.leg_thick * 0.7, foot[1], foot[2]), (p.leg_thick * 1.7, p.leg_thick * 0.85, ankle))
        )
    pelvis = (0.0, 0.0, p.leg + drop)
    lean = math.sin(math.radians(p.lean)), math.cos(math.radians(p.lean))
    neck = (p.torso * lean[0], 0.0, pelvis[2] + p.torso * lean[1])
    solids.append(ball(pelvis, (p.hip * 0.85, p.hip * 1.12, p.hip * 0.85)))
    solids.append(rod(pelvis, neck, p.hip * 0.98, p.shoulder * 0.92, flatten=p.deep))
    shoulders = (neck[0], 0.0, neck[2] - 0.01)
    solids.append(ball(shoulders, (p.shoulder * p.deep * 0.95, p.shoulder, p.arm_thick * 1.35)))
    for side, angles in ((1.0, p.left_arm), (-1.0, p.right_arm)):
        shoulder, elbow, hand = _limb(
            (neck[0], side * p.shoulder * 0.9, neck[2] - p.arm_thick * 0.4), angles, p.arm, side, 1.0
        )
        solids.append(rod(shoulder, elbow, p.arm_thick * 1.1, p.arm_thick * 0.92))
        solids.append(rod(elbow, hand, p.arm_thick * 0.95, p.arm_thick * 0.8))
        solids.append(ball(elbow, (p.arm_thick * 0.95,) * 3))
        solids.append(ball(hand, (p.arm_thick * 1.25,) * 3))
    skull = (neck[0] + p.head * 0.25 * lean[0] + 0.02, 0.0, neck[2] + p.head * 1.15)
    solids.append(rod(neck, skull, p.head * 0.5))
    solids.append(ball(skull, (p.head * 0.98, p.head * 0.88, p.head * 1.1)))
    return solids + _clothes(p, pelvis, neck, skull)


def _limb(root: Vector, angles: Vector, length: float, side: float, bends: float) -> tuple[Vector, Vector, Vector]:
    """Root, middle joint and end. `bends` is +1 where the end bends forward (elbows), -1 backward (knees)."""
    forward, outward, bend = angles

    def step(start: Vector, pitch: float) -> Vector:
        f, o = math.radians(pitch), math.radians(outward)
        return (
            start[0] + length / 2 * math.sin(f) * math.cos(o),
            start[1] + length / 2 * math.sin(o) * side,
            start[2] - length / 2 * math.cos(f) * math.cos(o),
        )

    middle = step(root, forward)
    return root, middle, step(middle, forward + bends * bend)


def _raised(point: Vector, height: float) -> Vector:
    return (point[0], point[1], point[2] + height)


def _clothes(p: Person, pelvis: Vector, neck: Vector, skull: Vector) -> list[Solid]:
    solids: list[Solid] = []
    if p.belly:
        solids.append(ball((0.07, 0.0, pelvis[2] + p.torso * 0.36), (p.belly, p.belly * 1.05, p.belly * 1.2)))
    if p.skirt:
        hem = (0.0, 0.0, pelvis[2] - p.leg * 0.52)
        solids.append(rod((0.0, 0.0, pelvis[2] + 0.12), hem, p.hip * 0.8, p.skirt))
    if p.pack:
        middle = (neck[0] * 0.6 - p.pack - 0.06, 0.0, neck[2] - p.torso * 0.42)
        solids.append(block(middle, (p.pack * 1.3, p.shoulder * 1.45, p.torso * 0.85), pitch=-p.lean))
    if p.hat:
        brim = skull[2] + p.head * 0.5
        solids.append(rod((skull[0], 0.0, brim), (skull[0], 0.0, brim + 0.05), p.hat))
        solids.append(rod((skull[0], 0.0, brim), (skull[0], 0.0, brim + p.head * 1.1), p.head * 0.95, p.head * 0.75))
    if p.helmet:
        solids.append(ball((skull[0] - 0.02, 0.0, skull[2] + p.head * 0.35), (p.helmet * 1.08, p.helmet, p.helmet)))
        solids += [ball((skull[0], side * p.helmet * 0.85, skull[2] - 0.02), (0.06, 0.05, 0.09)) for side in SIDES]
    return solids

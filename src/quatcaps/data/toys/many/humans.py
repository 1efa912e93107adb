"""People of any number of kinds: a stance, a build, clothes and what they carry; as `toys.humans` measures them."""

from __future__ import annotations

from dataclasses import dataclass

from quatcaps.data.toys.humans import Person, build
from quatcaps.data.toys.many.draws import Draw, Span
from quatcaps.data.toys.parts import SIDES, Vector, ball, block, rod
from quatcaps.data.toys.shapes import Solid

Limb = tuple[Span, Span, Span]


@dataclass(frozen=True)
class Stance:
    """Ranges of a limb's angles: forward from hanging down, outward, and the bend of elbow or knee."""

    left_arm: Limb
    right_arm: Limb
    left_leg: Limb
    right_leg: Limb
    lean: Span = (-3.0, 5.0)


_STRAIGHT: Limb = ((-4.0, 4.0), (4.0, 12.0), (0.0, 4.0))
_WIDE: Limb = ((-4.0, 4.0), (13.0, 22.0), (0.0, 4.0))
_HANGING: Limb = ((-10.0, 12.0), (10.0, 20.0), (4.0, 20.0))
_RAISED: Limb = ((135.0, 172.0), (10.0, 34.0), (0.0, 20.0))
_AHEAD: Limb = ((70.0, 100.0), (2.0, 14.0), (0.0, 16.0))
_ASIDE: Limb = ((-6.0, 12.0), (58.0, 86.0), (0.0, 10.0))
_ON_HIP: Limb = ((-26.0, -12.0), (36.0, 46.0), (80.0, 100.0))
_HOLDING: Limb = ((24.0, 48.0), (8.0, 16.0), (50.0, 80.0))

STANCES: tuple[Stance, ...] = (
    Stance(_HANGING, _HANGING, _STRAIGHT, _STRAIGHT),  # stands
    Stance(  # walks
        ((22.0, 42.0), (8.0, 14.0), (8.0, 26.0)), ((-40.0, -22.0), (8.0, 14.0), (4.0, 20.0)),
        ((-30.0, -18.0), (2.0, 5.0), (6.0, 18.0)), ((18.0, 32.0), (2.0, 5.0), (0.0, 8.0)), (2.0, 8.0),
    ),
    Stance(  # runs
        ((40.0, 64.0), (8.0, 14.0), (60.0, 85.0)), ((-56.0, -38.0), (8.0, 14.0), (50.0, 75.0)),
        ((-42.0, -28.0), (2.0, 5.0), (30.0, 60.0)), ((36.0, 56.0), (2.0, 5.0), (28.0, 50.0)), (10.0, 18.0),
    ),
    Stance(_RAISED, _HANGING, _STRAIGHT, _STRAIGHT),  # waves
    Stance(_RAISED, _RAISED, _WIDE, _WIDE),  # cheers
    Stance(_ASIDE, _ASIDE, _STRAIGHT, _STRAIGHT),  # arms out
    Stance(_HANGING, _AHEAD, _STRAIGHT, _WIDE),  # points ahead
    Stance(_ON_HIP, _ON_HIP, _WIDE, _WIDE),  # hands on the hips
    Stance(_HOLDING, _HOLDING, _STRAIGHT, _STRAIGHT),  # holds something before the chest
    Stance(  # lunges
        _AHEAD, ((-50.0, -30.0), (14.0, 30.0), (10.0, 40.0)),
        ((-36.0, -26.0), (6.0, 12.0), (0.0, 8.0)), ((44.0, 58.0), (6.0, 12.0), (50.0, 66.0)), (2.0, 14.0),
    ),
    Stance(_AHEAD, _AHEAD, _STRAIGHT, _WIDE, (0.0, 8.0)),  # reaches with both arms
    Stance(_RAISED, _ON_HIP, _WIDE, _STRAIGHT),  # one arm up, one on the hip
    Stance(_ASIDE, _RAISED, ((-6.0, 6.0), (16.0, 26.0), (0.0, 6.0)), _STRAIGHT),  # dances
)  # fmt: skip

_BUILDS: dict[str, dict[str, Span]] = {
    "usual": {},
    "slim": {"shoulder": (0.25, 0.29), "hip": (0.18, 0.20), "arm_thick": (0.085, 0.10), "leg_thick": (0.11, 0.13)},
    "broad": {"shoulder": (0.37, 0.44), "arm_thick": (0.125, 0.15), "leg_thick": (0.15, 0.175)},
    "stout": {"belly": (0.26, 0.36), "leg": (0.62, 0.76), "leg_thick": (0.15, 0.18), "hip": (0.23, 0.27)},
    "child": {"leg": (0.56, 0.68), "torso": (0.48, 0.56), "head": (0.26, 0.30), "arm": (0.50, 0.58)},
    "tall": {"leg": (0.94, 1.08), "torso": (0.62, 0.72), "arm": (0.68, 0.78), "head": (0.20, 0.225)},
}
_USUAL: dict[str, Span] = {
    "leg": (0.76, 0.92), "torso": (0.56, 0.68), "shoulder": (0.29, 0.36), "hip": (0.20, 0.245), "deep": (0.60, 0.76),
    "arm": (0.58, 0.70), "arm_thick": (0.10, 0.125), "leg_thick": (0.125, 0.16), "head": (0.215, 0.255),
}  # fmt: skip
_HEADGEAR = ("none", "none", "hat", "helmet", "cap", "bun", "hair", "crown")
_CARRIED = ("nothing", "nothing", "staff", "shield", "sword", "bag", "ball")


def made(draw: Draw) -> list[Solid]:
    """The solids of a person, facing along x."""
    stance = draw.plan(STANCES)
    ranges = _USUAL | _BUILDS[draw.pick("build", tuple(_BUILDS))]
    sizes = draw.spans(ranges)
    headgear, carried = draw.pick("headgear", _HEADGEAR), draw.pick("carried", _CARRIED)
    dressed = draw.pick("dressed", ("plain", "plain", "skirt", "coat", "pack", "cape"))
    person = Person(
        left_arm=_angles(draw, "left arm", stance.left_arm),
        right_arm=_angles(draw, "right arm", stance.right_arm),
        left_leg=_angles(draw, "left leg", stance.left_leg),
        right_leg=_angles(draw, "right leg", stance.right_leg),
        lean=draw.span("lean", *stance.lean),
        hat=draw.span("hat", 0.30, 0.42) if headgear == "hat" else 0.0,
        helmet=sizes["head"] * draw.span("helmet", 1.08, 1.2) if headgear == "helmet" else 0.0,
        pack=draw.span("pack", 0.16, 0.26) if dressed == "pack" else 0.0,
        skirt=draw.span("skirt", 0.30, 0.46) if dressed == "skirt" else 0.0,
        **sizes,
    )
    solids = build(person)
    # In the order of `toys.humans.build`: legs of four solids, pelvis, torso, shoulders, arms of four, neck, skull.
    pelvis, torso = solids[8].sphere[0].tolist(), solids[9].sphere[0].tolist()
    hands = [solids[k].sphere[0].tolist() for k in (14, 18)]
    skull = solids[20].sphere[0].tolist()
    solids += _on_head(headgear, person.head, (skull[0], skull[1], skull[2]))
    solids += _on_body(draw, dressed, person, (pelvis[0], 0.0, pelvis[2]), (torso[0], 0.0, torso[2]))
    side = draw.pick("carrying hand", (0, 1))
    hand = hands[side]
    return solids + _in_hand(draw, carried, (hand[0], hand[1], hand[2]), SIDES[side])


def _angles(draw: Draw, name: str, limb: Limb) -> Vector:
    forward, outward, bend = (draw.span(f"{name} {k}", *limits) for k, limits in enumerate(limb))
    return forward, outward, bend


def _on_head(what: str, head: float, skull: Vector) -> list[Solid]:
    x, _, z = skull
    if what == "cap":
        return [
            ball((x, 0.0, z + head * 0.45), (head * 1.02, head * 0.98, head * 0.75)),
            block((x + head * 1.15, 0.0, z + head * 0.42), (head * 1.1, head * 1.2, 0.05)),
        ]
    if what == "bun":
        return [
            ball((x - head * 0.1, 0.0, z + head * 0.3), (head * 1.08, head * 1.0, head * 0.95)),
            ball((x - head * 0.6, 0.0, z + head * 1.25), (head * 0.5, head * 0.5, head * 0.5)),
        ]
    if what == "hair":
        return [
            ball((x - head * 0.15, 0.0, z + head * 0.25), (head * 1.1, head * 1.08, head * 1.0)),
            ball((x - head * 0.75, 0.0, z - head * 0.7), (head * 0.5, head * 1.0, head * 1.5)),
        ]
    if what == "crown":
        return [rod((x, 0.0, z + head * 0.55), (x, 0.0, z + head * 1.5), head * 0.8, head * 1.05)]
    return []


def _on_body(draw: Draw, what: str, person: Person, pelvis: Vector, torso: Vector) -> list[Solid]:
    if what == "coat":
        hem = pelvis[2] - person.leg * draw.span("hem", 0.35, 0.62)
        return [rod((pelvis[0], 0.0, pelvis[2] + 0.14), (pelvis[0], 0.0, hem), person.hip * 1.1, person.hip * 1.5)]
    if what == "cape":
        top, foot = torso[2] + person.torso * 0.45, pelvis[2] - person.leg * draw.span("cape", 0.2, 0.6)
        x = 2 * torso[0] - pelvis[0] - person.shoulder * person.deep * 0.75
        back = x - draw.span("flying", 0.10, 0.32)
        return [rod((x, 0.0, top), (back, 0.0, foot), person.shoulder * 0.7, person.shoulder * 1.2, flatten=0.16)]
    return []


def _in_hand(draw: Draw, what: str, hand: Vector, side: float) -> list[Solid]:
    x, y, z = hand
    if what == "staff":
        length = draw.span("staff", 0.45, 0.95)
        foot = max(z - length, 0.02)
        return [rod((x, y, foot), (x, y, foot + 2 * length), 0.045)]
    if what == "sword":
        reach = draw.span("sword", 0.6, 0.9)
        return [
            rod((x - 0.1, y, z - 0.05), (x + reach * 0.8, y + side * 0.1, z + reach * 0.6), 0.055, 0.03),
            ball((x + 0.1, y, z + 0.05), (0.05, 0.16, 0.08), pitch=40.0),
        ]
    if what == "shield":
        radius = draw.span("shield", 0.26, 0.40)
        return [ball((x + 0.08, y + side * 0.08, z), (0.07, radius, radius * 1.15), yaw=side * 35.0)]
    if what == "bag":
        size = draw.span("bag", 0.26, 0.40)
        low = max(z - 0.08 - size * 0.4, size * 0.4)
        return [block((x, y + side * 0.03, low), (size * 1.3, size * 0.5, size * 0.8))]
    if what == "ball":
        radius = draw.span("ball", 0.16, 0.24)
        return [ball((x + 0.06, y, max(z, radius)), (radius, radius, radius))]
    return []

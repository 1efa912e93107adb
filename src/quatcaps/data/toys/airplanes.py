"""Ten airplanes on their landing gear, lengths in units of about half their length, angles in degrees."""

from __future__ import annotations

from dataclasses import dataclass

from quatcaps.data.toys.parts import SIDES, ball, block, rod, wing
from quatcaps.data.toys.shapes import Solid


@dataclass(frozen=True)
class Airplane:
    """The proportions of an airplane."""

    length: float = 1.0  # half the fuselage
    thick: float = 0.15  # its radius
    span: float = 0.95  # of one wing
    chord: tuple[float, float] = (0.42, 0.26)  # at root and tip
    sweep: float = 0.0
    wing_x: float = 0.08
    wing_z: float = -0.3  # against the fuselage's radius
    lift: float = 4.0  # dihedral
    tail: float = 0.40  # span of half the tailplane
    tail_chord: tuple[float, float] = (0.24, 0.15)
    fin: float = 0.38
    fin_chord: tuple[float, float] = (0.30, 0.16)
    pointed: bool = False  # a sharp nose
    propellers: int = 0  # 1 on the nose, 2 or 4 on the wings
    jets: int = 0  # pods under the wings, 2 or 4
    rear_jets: bool = False
    upper: float = 0.0  # height of a second wing above the first
    canopy: float = 0.0  # length of the cockpit's bubble
    high_tail: bool = False
    twin_fins: bool = False
    gear: float = 0.16


KINDS: tuple[Airplane, ...] = (
    # 0 … 3 and 5 are the test split.
    Airplane(sweep=0.34, chord=(0.44, 0.20), jets=2, span=1.0, thick=0.14),  # twin-jet airliner
    Airplane(  # low-wing fighter with a propeller
        length=0.85, thick=0.145, span=0.95, chord=(0.44, 0.26), propellers=1, canopy=0.24, wing_x=0.16, tail=0.40,
    ),
    Airplane(  # swept jet fighter with two fins
        length=1.05, thick=0.14, span=0.66, chord=(0.72, 0.20), sweep=0.40, pointed=True, canopy=0.28, twin_fins=True,
        wing_x=-0.10, tail=0.42, tail_chord=(0.30, 0.14), fin=0.34, wing_z=0.1, lift=0.0,
    ),
    Airplane(  # high-wing light plane
        length=0.82, thick=0.16, span=1.02, chord=(0.36, 0.32), propellers=1, wing_z=1.0, lift=2.0, wing_x=0.12,
        tail=0.40, tail_chord=(0.24, 0.20),
    ),
    Airplane(sweep=0.42, chord=(0.46, 0.18), jets=4, span=1.06, thick=0.16, fin=0.44),  # four-jet airliner
    Airplane(  # transport with two propellers
        length=0.95, thick=0.17, span=1.04, chord=(0.40, 0.24), propellers=2, wing_z=0.85, lift=1.0, high_tail=True,
        fin=0.42,
    ),
    Airplane(  # biplane
        length=0.78, thick=0.15, span=0.88, chord=(0.34, 0.32), propellers=1, upper=0.36, wing_x=0.18, tail=0.38,
        tail_chord=(0.24, 0.20), fin=0.30, lift=1.0, wing_z=-0.6,
    ),
    Airplane(  # delta wing
        length=1.08, thick=0.13, span=0.74, chord=(1.15, 0.16), sweep=0.48, pointed=True, wing_x=-0.28, canopy=0.26,
        tail=0.0, fin=0.40, fin_chord=(0.46, 0.16), lift=0.0,
    ),
    Airplane(  # racer with a propeller
        length=0.88, thick=0.15, span=0.90, chord=(0.50, 0.20), propellers=1, canopy=0.22, wing_x=0.10, lift=6.0,
        sweep=0.06, tail=0.42, tail_chord=(0.26, 0.16),
    ),
    Airplane(  # business jet, engines at the rear
        length=0.98, thick=0.14, span=0.90, chord=(0.42, 0.18), sweep=0.26, rear_jets=True, high_tail=True, fin=0.40,
        fin_chord=(0.34, 0.22), tail=0.38,
    ),
)  # fmt: skip


def build(airplane: Airplane) -> list[Solid]:
    """The airplane's solids, its wheels on the ground."""
    a = airplane
    z = a.gear + a.thick
    nose, tail = a.length, -a.length
    front = nose * (0.55 if a.pointed else 0.62)
    solids = [rod((tail * 0.30, 0.0, z), (front, 0.0, z), a.thick)]
    solids.append(rod((tail * 0.30, 0.0, z), (tail, 0.0, z + a.thick * 0.45), a.thick, a.thick * 0.32))
    if a.pointed:
        solids.append(rod((front, 0.0, z), (nose, 0.0, z - a.thick * 0.15), a.thick, a.thick * 0.12))
    else:
        solids.append(ball((front, 0.0, z), (nose - front, a.thick, a.thick)))
    wing_z = z + a.wing_z * a.thick
    levels = [wing_z] if not a.upper else [wing_z, wing_z + a.upper]
    for level in levels:
        solids += [wing((a.wing_x, 0.0, level), a.span, a.chord, a.sweep, 0.075, a.lift, side) for side in SIDES]
    if a.upper:
        solids += [
            block((a.wing_x, side * a.span * 0.68, wing_z + a.upper * 0.55), (0.10, 0.05, a.upper)) for side in SIDES
        ]
    if a.canopy:
        solids.append(ball((a.wing_x + 0.18, 0.0, z + a.thick * 0.75), (a.canopy, a.thick * 0.68, a.thick * 0.85)))
    return solids + _tail(a, z) + _engines(a, z, wing_z) + _gear(a, z)


def _tail(a: Airplane, z: float) -> list[Solid]:
    x, foot = -a.length + a.fin_chord[0] * 0.55, z + a.thick * 0.4
    solids: list[Solid] = []
    if a.twin_fins:
        solids += [
            wing((x + 0.12, side * a.thick * 1.1, foot - 0.06), a.fin, a.fin_chord, 0.16, 0.075, 74.0, side)
            for side in SIDES
        ]
    else:
        solids.append(wing((x, 0.0, foot), a.fin, a.fin_chord, 0.14, 0.08, 90.0))
    if a.tail:
        level = foot + a.fin * 0.94 if a.high_tail else foot
        back = x - (0.12 if a.high_tail else 0.0)
        solids += [wing((back, 0.0, level), a.tail, a.tail_chord, a.sweep * 0.4, 0.06, 2.0, side) for side in SIDES]
    return solids


def _engines(a: Airplane, z: float, wing_z: float) -> list[Solid]:
    solids: list[Solid] = []
    if a.propellers == 1:
        x = a.length * 1.02
        solids.append(ball((x, 0.0, z), (0.12, 0.07, 0.07)))
        solids.append(block((x + 0.03, 0.0, z), (0.045, 0.62, 0.085), roll=35.0))
    places = {2: (0.42,), 4: (0.36, 0.66)}
    for share in places.get(a.jets, ()):
        x = a.wing_x - a.sweep * share + 0.20
        solids += [
            rod(
                (x - 0.22, side * a.span * share, wing_z - 0.05),
                (x + 0.14, side * a.span * share, wing_z - 0.05),
                0.075,
                0.09,
            )
            for side in SIDES
        ]
    for share in places.get(a.propellers, ()):
        x = a.wing_x + a.chord[0] * 0.42
        y = a.span * share
        solids += [rod((x - 0.40, side * y, wing_z), (x + 0.10, side * y, wing_z), 0.06, 0.085) for side in SIDES]
        solids += [block((x + 0.11, side * y, wing_z), (0.045, 0.50, 0.075), roll=side * 50.0) for side in SIDES]
    if a.rear_jets:
        solids += [
            rod((-0.66, side * a.thick * 1.3, z + 0.06), (-0.28, side * a.thick * 1.3, z + 0.06), 0.075, 0.09)
            for side in SIDES
        ]
    return solids


def _gear(a: Airplane, z: float) -> list[Solid]:
    radius, x = 0.075, a.wing_x + 0.05
    y = a.thick * 1.25
    solids = [rod((x, side * (y - 0.04), radius), (x, side * (y + 0.04), radius), radius) for side in SIDES]
    solids += [rod((x, side * y, radius), (x, side * a.thick * 0.6, z - a.thick * 0.5), 0.035) for side in SIDES]
    end = -a.length * 0.82 if a.propellers == 1 else a.length * 0.66
    solids.append(rod((end, -0.03, radius), (end, 0.03, radius), radius))
    solids.append(rod((end, 0.0, radius), (end, 0.0, z), 0.03))
    return solids

"""What the poses of a trained network know of the viewpoint: five diagnostics, each with its chance level.

`algebraic_residual`  rotate primary poses: do class poses turn, and activations stay?
`transfer`            the rotation that a turn of some toys makes of their poses, on other toys
`composition`         do nine such rotations of 20° make one of 180°, and eighteen a circle?
`probe_within`, `probe_across`   what a ridge regression reads of azimuth and elevation
`inspect`             all of them, and the error of the orientation where a pose objective was trained
"""

from quatcaps.inspection.actions import Action, Frames, Rotors, action_on
from quatcaps.inspection.algebra import Residual, algebraic_residual
from quatcaps.inspection.features import Features, features_of
from quatcaps.inspection.inspection import Inspection, inspect
from quatcaps.inspection.probe import Probe, probe_across, probe_within
from quatcaps.inspection.turns import Composition, Transfer, composition, pairs_of, transfer

__all__ = [
    "Action",
    "Composition",
    "Features",
    "Frames",
    "Inspection",
    "Probe",
    "Residual",
    "Rotors",
    "Transfer",
    "action_on",
    "algebraic_residual",
    "composition",
    "features_of",
    "inspect",
    "pairs_of",
    "probe_across",
    "probe_within",
    "transfer",
]

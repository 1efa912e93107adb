"""How robust a trained network is: to images that were made to deceive it, and to affine changes of digits.

`attack`              all attacks on a network, and whether its gradients are masked: what `quatcaps attack` does
`fgsm`, `bim`, `pgd`, `apgd`   attacks within ε of an image that follow the gradient; `square` reads scores alone
`targeted_apgd`, `targeted_fab`   attacks within ε that go to one other class after the other
`deepfool`, `carlini_wagner`   look for the nearest misclassified image
`Victim`              a trained network as attacks see it, and the objective of the vote attack
`affine`              digits moved, turned, scaled and sheared as in affNIST: what `quatcaps attack --affine` does

Attacks are functions of any classifier, pixels in [0, 1] → scores (N, classes).
"""

from quatcaps.robustness.adaptive import apgd, targeted_apgd
from quatcaps.robustness.affine_changes import AFFNIST, Affine, AffineRanges, affine, changed
from quatcaps.robustness.attacks import ATTACKS, Effort
from quatcaps.robustness.balls import Ball
from quatcaps.robustness.boundary import targeted_fab
from quatcaps.robustness.gradient import bim, fgsm, pgd, projected_ascent
from quatcaps.robustness.masking import Sign
from quatcaps.robustness.measure import Attacked, Distances, attack
from quatcaps.robustness.minimal import carlini_wagner, deepfool, distances
from quatcaps.robustness.objectives import cross_entropy, dlr, margin, targeted_dlr
from quatcaps.robustness.squares import square
from quatcaps.robustness.trials import some_images
from quatcaps.robustness.victims import Victim, under_attack

__all__ = [
    "AFFNIST",
    "ATTACKS",
    "Affine",
    "AffineRanges",
    "Attacked",
    "Ball",
    "Distances",
    "Effort",
    "Sign",
    "Victim",
    "affine",
    "apgd",
    "attack",
    "bim",
    "carlini_wagner",
    "changed",
    "cross_entropy",
    "deepfool",
    "distances",
    "dlr",
    "fgsm",
    "margin",
    "pgd",
    "projected_ascent",
    "some_images",
    "square",
    "targeted_apgd",
    "targeted_dlr",
    "targeted_fab",
    "under_attack",
]

"""What options may name, for help and for a shell's completion: both must be there before torch is.

`tests/cli/test_help.py` holds the names against what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import quatcaps
from quatcaps.pipelines import LIGHTING, PATCH_FROM, STANDARDISE, STANDARDISE_FROM
from quatcaps.training.config import (
    BACKENDS,
    LOSSES,
    PLACEMENTS,
    PRECISIONS,
    PROTOCOLS,
    SCHEDULES,
    STEREO_VIEWS,
    VIEWPOINTS,
)

MODELS = (
    "qcn", "qcn-small", "qcn-coarse", "qcn-deep", "qcn-rotor", "qcn-rotor-deep", "qcn-rotor-small", "qcn-joint",
    "qcn-fixed-axis", "qcn-free", "qcn-no-routing", "qcn-logistic", "em", "em-branched", "em-joint", "em-ibm", "vb",
    "em-published", "em-ibm-published", "vb-published",
    "cnn", "resnet-20", "cnn-small",
)  # fmt: skip
DATASETS = (
    "smallnorb", "mnist", "fashionmnist", "svhn", "cifar10", "toys", "toys-mini", "toys-many", "toys-many-mini",
    "toys-one-lamp",
)  # fmt: skip
RECIPES = ("paper", "best", "fast", "small", "demo", "demo-cnn")
CHECKPOINTS = ("best", "last", "average")
SPLITS = ("test", "train", "validation")
ATTACKS = (
    "fgsm", "bim", "pgd", "vote", "apgd-ce", "apgd-dlr", "apgd-t", "fab-t", "square", "ensemble", "autoattack",
    "deepfool", "cw",
)  # fmt: skip
NAMED = {"model": MODELS, "dataset": DATASETS}
"""Settings whose help names them all; the help of the others has the choices in its words."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    **NAMED,
    "stereo_views": STEREO_VIEWS,
    "viewpoints": VIEWPOINTS,
    "protocol": PROTOCOLS,
    "placement": PLACEMENTS,
    "loss": LOSSES,
    "schedule": SCHEDULES,
    "backend": BACKENDS,
    "precision": PRECISIONS,
    "device": ("auto", "cpu", "cuda"),
    "standardise": STANDARDISE,
    "standardise_from": STANDARDISE_FROM,
    "patch_from": PATCH_FROM,
    "lighting": LIGHTING,
}
"""By setting."""


def completing(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """What a shell asks for the names that begin with some letters."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def complete_weights(incomplete: str) -> list[str]:
    """The weights that are installed, without importing them."""
    published = Path(quatcaps.__file__).parent / "weights" / "published"
    return sorted(path.stem for path in published.glob("*.json") if path.stem.startswith(incomplete))

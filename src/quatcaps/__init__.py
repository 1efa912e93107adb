"""Quaternion Capsule Networks in PyTorch.

>>> import quatcaps
>>> network = quatcaps.build("qcn", channels=2, classes=5)

`build` makes networks by name, `load` trained ones; `train`, `evaluate`, `predict` and `export` do what the command
line does; `save`, `save_pretrained`, `push_to_hub` and `from_pretrained` keep networks and share them.
`layers`, `poses`, `routing` and `quaternion` are for networks of one's own, `testing` for tests of them, `inspection`
for what their poses know, `robustness` for attacks on them; what is registered has a name that `build`, `train` and the
command line know.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quatcaps import (
        data,
        inspection,
        layers,
        losses,
        models,
        poses,
        quaternion,
        robustness,
        routing,
        testing,
        weights,
    )
    from quatcaps.capsules import Capsules
    from quatcaps.errors import QuatcapsError
    from quatcaps.exporting import export
    from quatcaps.models import build, list_models, register_model
    from quatcaps.poses import list_poses, register_pose
    from quatcaps.routing import list_routings, register_routing
    from quatcaps.training.config import TrainingConfig
    from quatcaps.weights import from_pretrained, load, push_to_hub, save, save_pretrained
    from quatcaps.workflow import Callback, evaluate, predict, train

__version__ = "0.2.0"
__all__ = [
    "Callback",
    "Capsules",
    "QuatcapsError",
    "TrainingConfig",
    "__version__",
    "build",
    "data",
    "evaluate",
    "export",
    "from_pretrained",
    "inspection",
    "layers",
    "list_models",
    "list_poses",
    "list_routings",
    "load",
    "losses",
    "models",
    "poses",
    "predict",
    "push_to_hub",
    "quaternion",
    "register_model",
    "register_pose",
    "register_routing",
    "robustness",
    "routing",
    "save",
    "save_pretrained",
    "testing",
    "train",
    "weights",
]

_HOMES = {
    "Callback": "workflow",
    "Capsules": "capsules",
    "QuatcapsError": "errors",
    "TrainingConfig": "training.config",
    "build": "models",
    "evaluate": "workflow",
    "export": "exporting",
    "from_pretrained": "weights",
    "list_models": "models",
    "list_poses": "poses",
    "list_routings": "routing",
    "load": "weights",
    "predict": "workflow",
    "push_to_hub": "weights",
    "register_model": "models",
    "register_pose": "poses",
    "register_routing": "routing",
    "save": "weights",
    "save_pretrained": "weights",
    "train": "workflow",
}


def __getattr__(name: str) -> object:
    """Loads what needs torch at first use, so that the command line answers at once."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"quatcaps.{_HOMES[name]}"), name)
    if name in __all__:
        return importlib.import_module(f"quatcaps.{name}")
    raise AttributeError(f"module 'quatcaps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

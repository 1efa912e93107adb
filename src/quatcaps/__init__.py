"""Quaternion Capsule Networks in PyTorch.

>>> import quatcaps
>>> network = quatcaps.build("qcn", channels=2, classes=5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quatcaps.capsules import Capsules
    from quatcaps.errors import QuatcapsError
    from quatcaps.models import build
    from quatcaps.weights import load

__version__ = "0.1.0"
__all__ = ["Capsules", "QuatcapsError", "__version__", "build", "load"]


def __getattr__(name: str) -> Any:
    """Loads what needs torch at first use, so that the command line answers at once."""
    homes = {
        "build": "quatcaps.models",
        "load": "quatcaps.weights",
        "Capsules": "quatcaps.capsules",
        "QuatcapsError": "quatcaps.errors",
    }
    if name in homes:
        import importlib

        return getattr(importlib.import_module(homes[name]), name)
    raise AttributeError(f"module 'quatcaps' has no attribute {name!r}")

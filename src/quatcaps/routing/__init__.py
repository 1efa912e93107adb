"""How votes become parents."""

from quatcaps.routing.em import EM, EMRouting
from quatcaps.routing.window import Window

__all__ = ["EM", "EMRouting", "Window"]

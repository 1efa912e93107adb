"""How votes become parents."""

from quatcaps.routing.em import EM, EM_IBM, EMRouting
from quatcaps.routing.vb import VB, VBRouting
from quatcaps.routing.window import Window

__all__ = ["EM", "EM_IBM", "VB", "EMRouting", "VBRouting", "Window"]

"""How votes become parents."""

from quatcaps.routing.backends import BACKENDS
from quatcaps.routing.em import EM, EM_IBM, EMRouting
from quatcaps.routing.moments import Moments, Parents, SummedVotes
from quatcaps.routing.registry import ROUTINGS, Routing, list_routings, register_routing, routing_setting
from quatcaps.routing.vb import VB, VBRouting
from quatcaps.routing.votes import Votes
from quatcaps.routing.window import Window

__all__ = [
    "BACKENDS",
    "EM",
    "EM_IBM",
    "ROUTINGS",
    "VB",
    "EMRouting",
    "Moments",
    "Parents",
    "Routing",
    "SummedVotes",
    "VBRouting",
    "Votes",
    "Window",
    "list_routings",
    "register_routing",
    "routing_setting",
]

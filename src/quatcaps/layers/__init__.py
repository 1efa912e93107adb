"""Layers as ordinary modules, for networks of one's own."""

from quatcaps.layers.capsules import CapsuleLayer, ClassCapsules, ConvolutionalCapsules, holds_votes, use_backend
from quatcaps.layers.primary import PrimaryCapsules
from quatcaps.layers.residual import ResidualBlock

__all__ = [
    "CapsuleLayer",
    "ClassCapsules",
    "ConvolutionalCapsules",
    "PrimaryCapsules",
    "ResidualBlock",
    "holds_votes",
    "use_backend",
]

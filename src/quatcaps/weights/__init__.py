"""Trained weights by name, each with a card that says what they are, what they were trained on and how well they do."""

from quatcaps.weights.cards import Card
from quatcaps.weights.zoo import card, load, names

__all__ = ["Card", "card", "load", "names"]

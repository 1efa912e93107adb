"""Trained weights by name, each with a card that says what they are, what they were trained on and how well they do;
and networks of one's own, saved and shared."""

from quatcaps.weights.cards import Card
from quatcaps.weights.hub import from_pretrained, push_to_hub, save_pretrained
from quatcaps.weights.saved import save
from quatcaps.weights.zoo import card, load, names

__all__ = ["Card", "card", "from_pretrained", "load", "names", "push_to_hub", "save", "save_pretrained"]

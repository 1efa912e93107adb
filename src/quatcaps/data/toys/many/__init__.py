"""Toys of as many kinds as one likes: body plans, proportions and parts are drawn, each kind by its number.

>>> import torch
>>> from quatcaps.data.toys import many
>>> truck = many.kind(3, 17)
>>> images = many.render(truck, torch.tensor([0.0, 90.0]), torch.full((2,), 35.0), torch.zeros(2, dtype=torch.int64))
>>> images.shape, images.dtype
(torch.Size([2, 2, 48, 48]), torch.uint8)
"""

from __future__ import annotations

from quatcaps.data.toys.many.dataset import KINDS, TEST_KINDS, kinds_in, load, render, viewpoints_of
from quatcaps.data.toys.many.kinds import FIRST, MOST, kind, numbers

__all__ = [
    "FIRST",
    "KINDS",
    "MOST",
    "TEST_KINDS",
    "kind",
    "kinds_in",
    "load",
    "numbers",
    "render",
    "viewpoints_of",
]

"""Toys seen from controlled viewpoints, rendered in the image of smallNORB: nothing to download.

>>> import torch
>>> from quatcaps.data import toys
>>> around = torch.arange(0.0, 360.0, 45.0)
>>> images = toys.render(4, 0, around, torch.full((8,), 35.0), torch.zeros(8, dtype=torch.int64))
>>> toys.CLASSES[4], images.shape, images.dtype
('car', torch.Size([8, 2, 48, 48]), torch.uint8)
"""

from __future__ import annotations

from quatcaps.data.toys.catalogue import CLASSES, SPLITS
from quatcaps.data.toys.dataset import AZIMUTHS, ELEVATIONS, LIGHTINGS, load, render

__all__ = ["AZIMUTHS", "CLASSES", "ELEVATIONS", "LIGHTINGS", "SPLITS", "load", "render"]

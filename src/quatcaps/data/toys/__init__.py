"""Toys seen from controlled viewpoints, rendered in the image of smallNORB: nothing to download.

>>> from quatcaps.data import toys
>>> test = toys.load("test", size=8, azimuths=[0], elevations=[0], lightings=[0])
>>> len(test), test.classes
(25, ('animal', 'human', 'airplane', 'truck', 'car'))
"""

from __future__ import annotations

from quatcaps.data.toys.catalogue import CLASSES, SPLITS
from quatcaps.data.toys.dataset import AZIMUTHS, ELEVATIONS, LIGHTINGS, load, render

__all__ = ["AZIMUTHS", "CLASSES", "ELEVATIONS", "LIGHTINGS", "SPLITS", "load", "render"]

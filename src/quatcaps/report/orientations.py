"""How far off orientations are, as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import Tensor

from quatcaps.report.canvas import MUTED, TEXT, WIDTH, dress, literal, new_figure, save
from quatcaps.report.styles import styles_for
from quatcaps.training.poses import NEAR


def orientation_curves(degrees: Mapping[str, Tensor], path: Path) -> None:
    """For each network, the share of images within an angle of the true orientation, by the angle."""
    figure = new_figure(WIDTH, 3.8)
    axes = figure.subplots()
    dress(axes, "Orientation", "angle (°)", "images within it (%)")
    styles = styles_for(degrees)
    for name, values in degrees.items():
        errors = np.sort(values.double().numpy())
        shares = 100 * np.arange(1, len(errors) + 1) / len(errors)
        label = f"{literal(name)}, median {np.median(errors):.1f}°"
        axes.step(errors, shares, where="post", color=styles[name].colour, linewidth=2, label=label)
    angles = np.linspace(0, 180, 181)
    # Of two random orientations, the angle θ between them has the density (1 − cos θ) / π.
    chance = 100 * (np.radians(angles) - np.sin(np.radians(angles))) / math.pi
    axes.plot(angles, chance, color=MUTED, linestyle=":", linewidth=1.5, label="random orientations")
    told = f"{' and '.join(f'{near}°' for near in NEAR)}, as in the table"
    for number, near in enumerate(NEAR):
        axes.axvline(near, color=MUTED, linewidth=0.8, label=told if number == 0 else None)
    axes.set_xlim(0, 180)
    axes.set_xticks([0, *NEAR, 60, 90, 120, 150, 180])
    axes.set_ylim(0, 100)
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=TEXT)
    save(figure, path)

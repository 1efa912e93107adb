"""Fine-tuning: published weights, new classes, few images.

    python examples/fine_tuning.py

`quatcaps.load(name, classes=…)` keeps what was learned and begins the class capsules anew. First the class capsules
alone are trained in a loop, then `quatcaps.train` trains everything. The images here are drawn; for photographs begin
with `qcn-cifar10`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

import quatcaps
from quatcaps.models import CapsuleNetwork


class Strokes(Dataset[tuple[np.ndarray, int]]):
    """28×28 bytes with a bright stroke at one side.

    `classes` has the names that the network is given too: where they differ, training begins the class capsules anew.
    """

    classes = ("left", "right", "top")

    def __init__(self, each: int, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.labels = np.arange(3 * each) % 3
        self.images = chance.integers(0, 40, (3 * each, 28, 28), dtype=np.uint8)
        for image, label in zip(self.images, self.labels, strict=True):
            at = chance.integers(3, 7)
            view = image.T if label == 2 else image[:, ::-1] if label == 1 else image
            view[4:24, at : at + 3] = 255

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        return self.images[number], int(self.labels[number])


def train_the_head(network: CapsuleNetwork, strokes: Strokes, steps: int) -> None:
    """Trains the class capsules alone; what comes before them is computed once."""
    labels = torch.from_numpy(strokes.labels)
    with torch.no_grad():
        children = network.primary(network.preprocess(list(strokes.images)))
        for layer in network.layers:
            children = layer(*children)
    optimiser = torch.optim.Adam(network.classify.parameters(), lr=0.1)
    for step in range(steps):
        loss = quatcaps.losses.cross_entropy(network.classify(*children).scores, labels, scale=10.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 10 == 9 or step == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}")


def main() -> None:
    strokes = Strokes(each=6, seed=0)
    network = quatcaps.load("qcn-mnist", classes=strokes.classes)
    train_the_head(network, strokes, steps=60)
    with tempfile.TemporaryDirectory() as place:
        # A rate far below that of the recipe: what was learned before is worth keeping.
        config = {"epochs": 2, "batch": 18, "learning_rate": 1e-4}
        run = quatcaps.train(network, (strokes, Strokes(2, seed=1)), config, output=Path(place) / "tuned", quiet=True)
        total = quatcaps.evaluate(run, Strokes(each=4, seed=2)).total
        print(f"{total.errors} of {total.images} new images are wrong")


if __name__ == "__main__":
    main()

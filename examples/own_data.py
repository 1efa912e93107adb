"""Images of your own: a folder by class, and a PyTorch dataset.

    python examples/own_data.py

Both are made here from three drawn shapes. With pictures of yours, begin at `quatcaps.train`. The command line takes
the folder as well: `quatcaps train --dataset shapes --recipe small`.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw
from torch.utils.data import Dataset

import quatcaps

CLASSES = ("cross", "disc", "ring")
SETTINGS = {"epochs": 5, "batch": 12}


def draw(kind: str, chance: random.Random) -> Image.Image:
    """A shape of any brightness, somewhere near the middle of 32×32 pixels."""
    picture = Image.new("L", (32, 32), chance.randrange(60))
    pen, light = ImageDraw.Draw(picture), chance.randrange(150, 256)
    x, y, r = chance.randrange(12, 20), chance.randrange(12, 20), chance.randrange(7, 11)
    if kind == "cross":
        pen.line((x - r, y, x + r, y), fill=light, width=4)
        pen.line((x, y - r, x, y + r), fill=light, width=4)
    else:
        pen.ellipse((x - r, y - r, x + r, y + r), fill=light if kind == "disc" else None, outline=light, width=3)
    return picture


class Shapes(Dataset[tuple[Image.Image, int]]):
    """A map-style dataset: an item is an image and the number of its class.

    Images are Pillow's, or bytes as arrays or tensors, all of one size. Leave standardising and augmentation to the
    configuration; `classes` names the classes, as in the datasets of torchvision.
    """

    classes = CLASSES

    def __init__(self, each: int, seed: int) -> None:
        chance = random.Random(seed)
        self.items = [(draw(kind, chance), number) for number, kind in enumerate(CLASSES) for _ in range(each)]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> tuple[Image.Image, int]:
        return self.items[number]


def save_as_folder(shapes: Shapes, folder: Path) -> None:
    """One subfolder for each class; a fifth of every class will be the test split."""
    for number, (picture, label) in enumerate(shapes):
        (folder / CLASSES[label]).mkdir(parents=True, exist_ok=True)
        picture.save(folder / CLASSES[label] / f"{number}.png")


class Losses(quatcaps.Callback):
    """Prints the loss of every epoch."""

    def epoch(
        self, epoch: int, epochs: int, loss: float, error: float, measured: dict[str, float], degrees: dict[str, float]
    ) -> None:
        print(f"epoch {epoch + 1}: loss {loss:.4f}, test error {100 * measured['test']:.0f}%")


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)

        # A folder. `recipe` has the settings that are not given: here those of a small network for CPUs.
        save_as_folder(Shapes(30, seed=0), folder / "shapes")
        run = quatcaps.train(
            "qcn-small",
            folder / "shapes",
            SETTINGS,
            recipe="small",
            output=folder / "folder",
            data_dir=folder / "data",
            callbacks=[Losses()],
            quiet=True,
        )
        print(quatcaps.predict(run, folder / "shapes" / "disc" / "30.png")[0].name)

        # A dataset, or rather two: to learn from, and to be measured on.
        data = (Shapes(24, seed=1), Shapes(6, seed=2))
        run = quatcaps.train(
            "cnn-small", data, SETTINGS, recipe="small", output=folder / "runs" / "dataset", quiet=True
        )
        evaluation = quatcaps.evaluate(run, Shapes(20, seed=3))
        print(f"{evaluation.total.errors} of {evaluation.total.images} new images are wrong")


if __name__ == "__main__":
    main()

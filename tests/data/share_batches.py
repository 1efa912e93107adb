"""One of several processes under torchrun: writes which images its share of three epochs shows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from quatcaps.data.batches import Share, TrainingBatches
from quatcaps.data.imageset import ImageSet
from quatcaps.pipelines import Pipeline

share = Share.of_this_process()
stored = torch.arange(50, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 4, 4)
images = ImageSet("numbers", stored, torch.zeros(50, dtype=torch.int64), ("one",))
batches = TrainingBatches(images, 12, Pipeline(4, 4, standardise="none"), 7, torch.device("cpu"), share=share)
shown = [
    [round(255 * float(image[0, 0, 0])) for image in batch.images]
    for epoch in range(3)
    for batch in batches.epoch(epoch)
]
Path(sys.argv[1], f"{share.rank}.json").write_text(json.dumps(shown))

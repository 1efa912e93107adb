"""What the way from stored images to batches adds to a training step: the same steps with it and without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

import torch

from quatcaps.bench import precision
from quatcaps.bench.failures import reason
from quatcaps.bench.networks import read_model
from quatcaps.bench.precision import TF32, as_training
from quatcaps.bench.rows import NO_TIMING, Timing
from quatcaps.data.batches import Batch, TrainingBatches
from quatcaps.data.imageset import ImageSet
from quatcaps.layers import use_backend
from quatcaps.models import build
from quatcaps.pipelines import PIPELINES, Pipeline
from quatcaps.training.config import TrainingConfig
from quatcaps.training.step import TrainingStep

IMAGES = {"cpu": 2_000, "cuda": 24_300}
STEPS = {"cpu": 2, "cuda": 100}
"""Steps of a round; rounds of the variants take turns."""
WARM_UP = 5
BASE = "one batch, again and again"
EVERYTHING = {"flip": True, "rotation": 15.0, "scale": 0.2, "brightness": 0.2, "contrast": 0.2}


@dataclass(frozen=True)
class DataCase:
    """Steps on one batch, or on batches whose images are kept on the `device` or on the `host`."""

    model: str
    batch: int
    dataset: str
    placement: str = ""
    everything: bool = False
    tf32: TF32 | None = None

    @property
    def words(self) -> str:
        if not self.placement:
            return BASE
        return f"images on the {self.placement}{', every augmentation' if self.everything else ''}"

    @property
    def pipeline(self) -> Pipeline:
        usual = PIPELINES[self.dataset]
        return replace(usual, **EVERYTHING) if self.everything else usual  # type: ignore[arg-type]


@dataclass(frozen=True)
class DataRow:
    """A case with the seconds of a step in each round, and its time as a multiple of the base's."""

    case: DataCase
    timing: Timing | None = None
    note: str = ""
    time_ratio: float | None = None

    @property
    def label(self) -> str:
        return self.case.words

    @property
    def tf32(self) -> TF32 | None:
        return self.case.tf32

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.case.model,
            "dataset": self.case.dataset,
            "batch": self.case.batch,
            "variant": self.case.words,
            **precision.to_json(self.case.tf32),
            **(self.timing.to_json() if self.timing else NO_TIMING),
            "images_per_second": self.case.batch / self.timing.median if self.timing else None,
            "time_ratio": self.time_ratio,
            "note": self.note,
        }


def data_cases(
    models: Sequence[str],
    batches: Sequence[int],
    allowed: Sequence[TF32 | None] = (None,),
    dataset: str = "smallnorb",
) -> list[DataCase]:
    """For every model, batch and TF32: without the data path, with it, with images on the host, with all there is."""
    return [
        DataCase(model, batch, dataset, placement, everything, tf32)
        for model in models
        for batch in batches
        for tf32 in allowed
        for placement, everything in (("", False), ("device", False), ("host", False), ("device", True))
    ]


def measure_data(
    cases: Sequence[DataCase], device: torch.device, rounds: int, doing: Callable[[str], None]
) -> list[DataRow]:
    """All cases of one model, batch and TF32 in turns, so that a change in the machine meets all of them alike."""
    rows: list[DataRow] = []
    for key in dict.fromkeys(map(together, cases)):
        group = [case for case in cases if together(case) == key]
        doing(f"{group[0].model}, batch {group[0].batch}, data path")
        try:
            timings = take_turns(group, device, rounds)
        except Exception as error:
            rows += [DataRow(case, note=reason(error)) for case in group]
            continue
        base = timings[0].median
        rows += [
            DataRow(case, timing, time_ratio=timing.median / base) for case, timing in zip(group, timings, strict=True)
        ]
    return rows


def together(case: DataCase) -> tuple[str, int, TF32 | None]:
    """What cases that take turns have in common."""
    return case.model, case.batch, case.tf32


def take_turns(cases: Sequence[DataCase], device: torch.device, rounds: int) -> list[Timing]:
    images = random_images(IMAGES[device.type])
    name, settings = read_model(cases[0].model)
    config = TrainingConfig(model=name, model_settings=dict(settings), batch=cases[0].batch)
    network = build(name, channels=images.channels, classes=len(images.classes), seed=0, **settings).to(device)
    step = TrainingStep(use_backend(network, "auto"), config, device)
    streams = [stream(case, images, device) for case in cases]
    with as_training(cases[0].tf32):
        firsts = [one_round(step, batches, WARM_UP, device) for batches in streams]
        found: list[list[float]] = [[] for _ in cases]
        for _ in range(rounds):
            for seconds, batches in zip(found, streams, strict=True):
                seconds.append(one_round(step, batches, STEPS[device.type], device))
    for batches in streams:
        batches.close()
    return [Timing(first, tuple(seconds)) for first, seconds in zip(firsts, found, strict=True)]


def stream(case: DataCase, images: ImageSet, device: torch.device) -> Any:
    """Batches without end."""
    pipeline = case.pipeline
    batches = TrainingBatches(images, case.batch, pipeline, 0, device, placement=case.placement or "device")
    if not case.placement:
        first = next(batches.epoch(0))
        return (first for _ in count())
    return (batch for batch in chain.from_iterable(batches.epoch(epoch) for epoch in count()))


def one_round(step: TrainingStep, batches: Iterator[Batch], steps: int, device: torch.device) -> float:
    """Seconds per step by the clock on the wall, from an idle device to an idle device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    for _ in range(steps):
        batch = next(batches)
        step(batch.images, batch.labels, 1e-4, 0)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - started) / steps


def random_images(count: int) -> ImageSet:
    """Stereo pairs of smallNORB's size."""
    generator = torch.Generator().manual_seed(0)
    stored = torch.randint(256, (count, 2, 48, 48), dtype=torch.uint8, generator=generator)
    labels = torch.randint(5, (count,), generator=generator)
    return ImageSet("random pairs", stored, labels, tuple("abcde"))

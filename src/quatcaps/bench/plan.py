"""What a benchmark measures, from what was asked for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quatcaps.bench.cases import CLASSES, FULL, PASSES, SIDE, TRAIN, Case, Layer, Sized, SizedNetwork
from quatcaps.bench.data_path import DataCase, data_cases
from quatcaps.bench.networks import check_model
from quatcaps.bench.precision import TF32, choices
from quatcaps.bench.variants import BATCHES, VARIANTS, check_variant, usual_batches, usual_variants
from quatcaps.errors import QuatcapsError, at_least_one, unknown_name
from quatcaps.routing import BACKENDS
from quatcaps.routing.backends import default
from quatcaps.training.config import PRECISIONS

LAUNCHES = ("both", "eager", "graph")
STEPS = {"cpu": 7, "cuda": 30}
MODEL = "qcn"
SHAPE = "qcn-deep"
"""What is measured by its size unless told: the shape of the recipe `best`."""
SIDES = {"cpu": (32, 48, 96), "cuda": (32, 48, 96, 224)}
CLASS_COUNTS = (5, 10, 100, 1000)
SCALED_BATCHES = {"cpu": (2,), "cuda": (64,)}
"""Sizes of whole networks, and the images in a step, unless told."""


@dataclass(frozen=True)
class Plan:
    """What was asked for; what is empty or None is the usual, some of it the device's."""

    models: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    passing: str = "both"
    launch: str = "both"
    tf32: str = "default"
    against: str | None = None
    steps: int | None = None
    cold: bool = False
    precision: str = FULL

    def check(self, device: torch.device) -> None:
        """Raises where something is unknown or cannot be."""
        for model in self.measured:
            check_model(model)
        for variant in self.variants:
            check_variant(variant)
        for batch in self.batches:
            at_least_one("images in a batch", batch)
        if self.passing not in (*PASSES, "both"):
            raise unknown_name("pass", self.passing, (*PASSES, "both"))
        if self.precision == "ieee":
            raise QuatcapsError("--precision ieee: where bench may round to TF32 is said by --tf32; give --tf32 off")
        if self.precision not in PRECISIONS:
            raise unknown_name("precision", self.precision, PRECISIONS)
        if self.launch not in LAUNCHES:
            raise unknown_name("launch", self.launch, LAUNCHES)
        if self.launch == "graph" and device.type != "cuda":
            raise QuatcapsError("--launch graph on the CPU: CUDA graphs need --device cuda")
        if self.cold and device.type != "cuda":
            raise QuatcapsError("--cold on the CPU: kernels are compiled in a step with --device cuda")
        self.allowed(device)
        at_least_one("counted steps", self.counted(device))

    @property
    def measured(self) -> tuple[str, ...]:
        """The models, that which the others are held against among them."""
        others = () if self.against is None else (self.against,)
        return tuple(dict.fromkeys((*(self.models or (MODEL,)), *others)))

    def allowed(self, device: torch.device) -> tuple[TF32 | None, ...]:
        return choices(self.tf32, device)

    def counted(self, device: torch.device) -> int:
        return STEPS[device.type] if self.steps is None else self.steps

    def cases(self, device: torch.device) -> list[Case]:
        """By model, pass and batch, the variants together."""
        passes = PASSES if self.passing == "both" else (self.passing,)
        variants = tuple(dict.fromkeys(self.variants or usual_variants(device)))
        wanted = {variant: self.batches or usual_batches(variant, device) for variant in variants}
        return [
            Case(model, passing, variant, batch, graph, tf32, precision=self.precision)
            for model in self.measured
            for passing in passes
            for batch in sorted({batch for batches in wanted.values() for batch in batches})
            for variant in variants
            if batch in wanted[variant]
            for graph in self.launches(device, VARIANTS[variant].captured)
            for tf32 in self.allowed(device)
        ]

    def one_case(self, device: torch.device) -> Case:
        """The first of what was asked for, as a timeline shows it: unless told, a training step of the shape of `best`
        by the device's fastest backend, on a GPU as a graph."""
        variant = self.variants[0] if self.variants else default(device)
        batch = self.batches[0] if self.batches else BATCHES[device.type][0]
        graph = device.type == "cuda" and self.launch != "eager" and VARIANTS[variant].captured
        passing = TRAIN if self.passing == "both" else self.passing
        model = self.models[0] if self.models else SHAPE
        return Case(model, passing, variant, batch, graph, self.allowed(device)[0], precision=self.precision)

    def data_cases(self, device: torch.device) -> list[DataCase]:
        """The data path with each model and batch, by the device's fastest backend."""
        return data_cases(self.measured, self.batches or BATCHES[device.type], self.allowed(device))

    def launches(self, device: torch.device, captured: bool) -> tuple[bool, ...]:
        """Whether as a graph: no, yes or both."""
        if device.type != "cuda" or self.launch == "eager":
            return (False,)
        if self.launch == "graph":
            return (True,)
        return (False, True) if captured else (False,)

    def scaling(self, device: torch.device) -> list[Sized]:
        """One layer by its sizes, then whole networks by theirs, on the backends asked for or the device's fastest."""
        return [*self.layers(device), *self.sized_networks(device)]

    def layers(self, device: torch.device) -> list[Layer]:
        """One layer with each of its three sizes in turn over at least five values, the others fixed."""
        on_cuda = device.type == "cuda"
        batch, kernel, side = (64, 5, 6) if on_cuda else (4, 3, 5)
        sizes = [("children", size, 16, side) for size in (4, 8, 16, 32, 64, 128)]
        sizes += [("parents", 16, size, side) for size in (2, 4, 8, 16, 32, 64)]
        sizes += [("positions", 16, 16, size) for size in (2, 3, 4, 6, 9, 13)]
        return [
            Layer(axis, variant, batch, kernel, children, parents, positions, self.captured(device), tf32)
            for variant in self.scaled_backends(device)
            for tf32 in self.allowed(device)
            for axis, children, parents, positions in sizes
        ]

    def sized_networks(self, device: torch.device) -> list[SizedNetwork]:
        """A training step by the side of the images, then by the number of classes, the other fixed."""
        sizes = [("side", side, CLASSES) for side in SIDES[device.type]]
        sizes += [("classes", SIDE, count) for count in CLASS_COUNTS]
        return [
            SizedNetwork(
                axis, Case(model, TRAIN, variant, batch, self.captured(device), tf32, side, classes, self.precision)
            )
            for model in dict.fromkeys(self.models or (SHAPE,))
            for batch in self.batches or SCALED_BATCHES[device.type]
            for variant in self.scaled_backends(device)
            for tf32 in self.allowed(device)
            for axis, side, classes in sizes
        ]

    def scaled_backends(self, device: torch.device) -> list[str]:
        return [name for name in dict.fromkeys(self.variants) if name in BACKENDS] or [default(device)]

    def captured(self, device: torch.device) -> bool:
        """Whether what is measured by its size runs as a graph."""
        return device.type == "cuda" and self.launch != "eager"

"""What a benchmark measures, from what was asked for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quatcaps.bench.data_path import DataCase, data_cases
from quatcaps.bench.rows import PASSES, Case, Layer
from quatcaps.bench.variants import BATCHES, VARIANTS, check_model, check_variant, usual_batches, usual_variants
from quatcaps.errors import QuatcapsError, at_least_one, unknown_name
from quatcaps.routing import BACKENDS
from quatcaps.routing.backends import default

LAUNCHES = ("both", "eager", "graph")
STEPS = {"cpu": 7, "cuda": 30}


@dataclass(frozen=True)
class Plan:
    """What was asked for; what is empty or None is the device's usual."""

    models: tuple[str, ...] = ("qcn",)
    variants: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    passing: str = "both"
    launch: str = "both"
    steps: int | None = None

    def check(self, device: torch.device) -> None:
        """Raises where something is unknown or cannot be."""
        for model in self.models:
            check_model(model)
        for variant in self.variants:
            check_variant(variant)
        for batch in self.batches:
            at_least_one("images in a batch", batch)
        if self.passing not in (*PASSES, "both"):
            raise unknown_name("pass", self.passing, (*PASSES, "both"))
        if self.launch not in LAUNCHES:
            raise unknown_name("launch", self.launch, LAUNCHES)
        if self.launch == "graph" and device.type != "cuda":
            raise QuatcapsError("--launch graph on the CPU: CUDA graphs need --device cuda")
        at_least_one("counted steps", self.counted(device))

    def counted(self, device: torch.device) -> int:
        return STEPS[device.type] if self.steps is None else self.steps

    def cases(self, device: torch.device) -> list[Case]:
        """By model, pass and batch, the variants together."""
        passes = PASSES if self.passing == "both" else (self.passing,)
        variants = tuple(dict.fromkeys(self.variants or usual_variants(device)))
        wanted = {variant: self.batches or usual_batches(variant, device) for variant in variants}
        return [
            Case(model, passing, variant, batch, graph)
            for model in dict.fromkeys(self.models)
            for passing in passes
            for batch in sorted({batch for batches in wanted.values() for batch in batches})
            for variant in variants
            if batch in wanted[variant]
            for graph in self.launches(device, VARIANTS[variant].captured)
        ]

    def data_cases(self, device: torch.device) -> list[DataCase]:
        """The data path with each model and batch, by the device's fastest backend."""
        return data_cases(self.models, self.batches or BATCHES[device.type])

    def launches(self, device: torch.device, captured: bool) -> tuple[bool, ...]:
        """Whether as a graph: no, yes or both."""
        if device.type != "cuda" or self.launch == "eager":
            return (False,)
        if self.launch == "graph":
            return (True,)
        return (False, True) if captured else (False,)

    def layers(self, device: torch.device) -> list[Layer]:
        """One layer with each of its three sizes in turn over at least five values, the others fixed."""
        chosen = [name for name in dict.fromkeys(self.variants) if name in BACKENDS] or [default(device)]
        on_cuda = device.type == "cuda"
        batch, kernel, side = (64, 5, 6) if on_cuda else (4, 3, 5)
        graph = on_cuda and self.launch != "eager"
        sizes = [("children", size, 16, side) for size in (4, 8, 16, 32, 64, 128)]
        sizes += [("parents", 16, size, side) for size in (2, 4, 8, 16, 32, 64)]
        sizes += [("positions", 16, 16, size) for size in (2, 3, 4, 6, 9, 13)]
        return [
            Layer(axis, variant, batch, kernel, children, parents, positions, graph)
            for variant in chosen
            for axis, children, parents, positions in sizes
        ]

"""What is measured: plain values, one for each row of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quatcaps.bench import precision
from quatcaps.bench.precision import TF32

TRAIN, FORWARD = "train", "forward"
PASSES = (TRAIN, FORWARD)
CHANNELS, CLASSES, SIDE = 2, 5, 32
"""Of the images, unless a case says otherwise: smallNORB's."""
FULL = "float32"
LABELS = {"paper": "paper 4×4", "compile": "reference, torch.compile"}
"""How results call the variants that are no backends."""


@dataclass(frozen=True)
class Case:
    """One thing to measure: a pass of a network by one variant; `graph`: as one captured CUDA graph.

    `model` is as `networks.read_model` reads it; images are `side` × `side`. `precision` is that of the convolutions,
    as training has it.
    """

    model: str
    passing: str
    variant: str
    batch: int
    graph: bool = False
    tf32: TF32 | None = None
    side: int = SIDE
    classes: int = CLASSES
    precision: str = FULL

    @property
    def label(self) -> str:
        return LABELS.get(self.variant, self.variant)

    @property
    def words(self) -> str:
        computed = self.label if self.precision == FULL else f"{self.label}, {self.precision}"
        return f"{self.model}, {self.passing}, batch {self.batch}, {computed}{launched(self.graph, self.tf32)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "pass": self.passing,
            "variant": self.label,
            "batch": self.batch,
            "graph": self.graph,
            "precision": self.precision,
            **precision.to_json(self.tf32),
            "side": self.side,
            "classes": self.classes,
        }


@dataclass(frozen=True)
class Layer:
    """One routing layer to measure; `axis` is the size that varies, and `side` × `side` are the parents' positions."""

    axis: str
    variant: str
    batch: int
    kernel: int
    children: int
    parents: int
    side: int
    graph: bool = False
    tf32: TF32 | None = None

    @property
    def size(self) -> int:
        return self.sizes[self.axis]

    @property
    def sizes(self) -> dict[str, int]:
        """Those that may vary."""
        return {"children": self.children, "parents": self.parents, "positions": self.side**2}

    @property
    def subject(self) -> str:
        return "one routing layer"

    @property
    def measures(self) -> str:
        return f"forward and backward, {self.kernel}×{self.kernel} kernel"

    @property
    def words(self) -> str:
        return f"one layer, {self.size} {self.axis}, {self.variant}{launched(self.graph, self.tf32)}"

    @property
    def fixed(self) -> str:
        """What stands still while one size varies."""
        return ", ".join(f"{size} {name}" for name, size in self.sizes.items() if name != self.axis)

    def to_json(self) -> dict[str, Any]:
        return {
            "axis": self.axis,
            "size": self.size,
            "variant": self.variant,
            "batch": self.batch,
            "kernel": self.kernel,
            **self.sizes,
            "graph": self.graph,
            **precision.to_json(self.tf32),
        }


@dataclass(frozen=True)
class SizedNetwork:
    """A training step of a whole network whose images' `side`, or whose number of `classes`, varies."""

    axis: str
    case: Case

    @property
    def size(self) -> int:
        return self.case.side if self.axis == "side" else self.case.classes

    @property
    def subject(self) -> str:
        return self.case.model

    @property
    def measures(self) -> str:
        return "training step"

    @property
    def variant(self) -> str:
        return self.case.variant

    @property
    def batch(self) -> int:
        return self.case.batch

    @property
    def graph(self) -> bool:
        return self.case.graph

    @property
    def tf32(self) -> TF32 | None:
        return self.case.tf32

    @property
    def words(self) -> str:
        return f"{self.case.words}, {self.fixed}, {self.axis} {self.size}"

    @property
    def fixed(self) -> str:
        """What stands still while one size varies."""
        return f"{self.case.classes} classes" if self.axis == "side" else f"images of {self.case.side}×{self.case.side}"

    def to_json(self) -> dict[str, Any]:
        return {"axis": self.axis, "size": self.size, **self.case.to_json()}


Sized = Layer | SizedNetwork
"""What is measured by its size."""


def launched(graph: bool, tf32: TF32 | None) -> str:
    """How a step runs, to be added to what it is."""
    return f"{', graph' if graph else ''}{f', {tf32.name}' if tf32 else ''}"

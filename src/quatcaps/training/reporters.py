"""Who is told how a run gets on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Reporter(Protocol):
    """Who is told how a run gets on."""

    def step(self, step: int, steps: int, epoch: int, loss: float, error: float) -> None: ...

    def epoch(
        self, epoch: int, epochs: int, loss: float, error: float, measured: dict[str, float], degrees: dict[str, float]
    ) -> None: ...


class Reporters:
    """Several, told one after the other."""

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self.reporters = tuple(reporters)

    def step(self, step: int, steps: int, epoch: int, loss: float, error: float) -> None:
        for each in self.reporters:
            each.step(step, steps, epoch, loss, error)

    def epoch(
        self, epoch: int, epochs: int, loss: float, error: float, measured: dict[str, float], degrees: dict[str, float]
    ) -> None:
        for each in self.reporters:
            each.epoch(epoch, epochs, loss, error, measured, degrees)

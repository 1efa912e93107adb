"""What every network is: what trainers, evaluation, benchmarks and weights may ask of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn


@runtime_checkable
class Output(Protocol):
    """What every network returns."""

    @property
    def activations(self) -> Tensor:
        """(N, classes) in [0, 1]: the largest names the class."""
        ...

    @property
    def scores(self) -> Tensor:
        """(N, classes): what cross-entropy reads."""
        ...


class Network(nn.Module):
    """(N, channels, height, width) images → an `Output`.

    A network of one's own derives from this, passes on how many channels and classes it has and the settings that
    shape it, and has a `forward`. `least_size` and `votes` are for those that know.
    """

    __call__: Callable[..., Output]

    def __init__(self, channels: int, classes: int, settings: Any = None) -> None:
        super().__init__()
        self.channels, self.classes, self.settings = channels, classes, settings

    @property
    def least_size(self) -> int:
        """The side of the smallest square image that fits."""
        return 1

    def votes(self, height: int, width: int) -> int:
        """How many votes one image of that size casts, in all layers; 0 where there are no capsules."""
        return 0
